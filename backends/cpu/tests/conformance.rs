//! Every op case of the conformance table, on every instruction set of this machine, against the
//! reference.

use kvant_conformance::{Case, attention_cases, check, matmul_cases, row_cases, run};
use kvant_cpu::{CpuBackend, Level};
use kvant_reference::ReferenceBackend;

fn compare(cases: &[Case]) {
    let reference = ReferenceBackend::default();
    let backends: Vec<CpuBackend> = Level::available()
        .map(|level| CpuBackend::with_level(Some(1), level))
        .chain([CpuBackend::new(Some(3))])
        .collect();
    let mut failures = Vec::new();
    for case in cases {
        let want = run(&reference, case, false).expect("the reference runs every case");
        for backend in &backends {
            for deterministic in [false, true] {
                let result =
                    run(backend, case, deterministic).and_then(|got| Ok(check(case, &got, &want)?));
                if let Err(error) = result {
                    failures.push(format!("{}: {error}", backend.level()));
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
}

#[test]
fn rows() {
    compare(&row_cases());
}

#[test]
fn products() {
    compare(&matmul_cases());
}

#[test]
fn attention() {
    compare(&attention_cases());
}
