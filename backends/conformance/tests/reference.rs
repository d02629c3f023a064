//! The table itself: every case runs on the reference, gives finite values that are not all alike, and
//! a result that is a little wrong is found out.

use kvant_conformance::{cases, check, run};
use kvant_reference::ReferenceBackend;

#[test]
fn every_case_runs_on_the_reference() {
    let backend = ReferenceBackend::default();
    for case in cases() {
        let outputs = run(&backend, &case, false).unwrap_or_else(|e| panic!("{e}"));
        for output in &outputs {
            assert!(!output.is_empty(), "{}: an output is empty", case.name);
            assert!(
                output.iter().all(|v| v.is_finite()),
                "{}: a value is not finite",
                case.name
            );
            assert!(
                output.iter().any(|v| v.abs() > 1e-6),
                "{}: all zero",
                case.name
            );
        }
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<String> = cases().into_iter().map(|c| c.name).collect();
    names.sort();
    let n = names.len();
    names.dedup();
    assert_eq!(names.len(), n);
}

#[test]
fn a_wrong_value_is_found() {
    let backend = ReferenceBackend::default();
    let case = cases().swap_remove(0);
    let want = run(&backend, &case, false).unwrap();
    let mut got = want.clone();
    check(&case, &got, &want).unwrap();
    let rms = (want[0].iter().map(|v| v * v).sum::<f32>() / want[0].len() as f32).sqrt();
    got[0][3] += rms * 1e-3;
    check(&case, &got, &want).unwrap_err();
    got[0][3] = f32::NAN;
    check(&case, &got, &want).unwrap_err();
}
