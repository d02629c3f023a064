//! With `deterministic`, a row has the same bits whatever shares its step and however its sequence was
//! cut into steps, on every instruction set and any number of threads.

use kvant_conformance::{Case, CaseStep, attention_cases, run};
use kvant_cpu::{CpuBackend, Level};

fn backends() -> Vec<CpuBackend> {
    Level::available()
        .flat_map(|level| [1, 3].map(|threads| CpuBackend::with_level(Some(threads), level)))
        .collect()
}

/// Outputs of the last step.
fn outputs(backend: &CpuBackend, case: &Case) -> Vec<Vec<f32>> {
    run(backend, case, true).unwrap_or_else(|e| panic!("{e}"))
}

/// Asserts that `part` has the bits of the rows of `whole` from `first_row` on; `n_rows` rows in all.
fn assert_rows(
    case: &Case,
    whole: &[Vec<f32>],
    n_rows: usize,
    part: &[Vec<f32>],
    first_row: usize,
) {
    for (whole, part) in whole.iter().zip(part) {
        let width = whole.len() / n_rows;
        let rows = &whole[first_row * width..][..part.len()];
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(rows), bits(part), "{}", case.name);
    }
}

#[test]
fn batched_is_alone() {
    let backends = backends();
    for case in attention_cases() {
        let Some(last) = case.steps.last() else {
            continue;
        };
        if last.sequences.len() < 2 {
            continue;
        }
        let n_rows = last.tokens.len();
        for backend in &backends {
            let whole = outputs(backend, &case);
            let mut first_row = 0;
            for sequence in &last.sequences {
                let mut alone = case.clone();
                let step = CaseStep {
                    tokens: last.tokens[first_row..first_row + sequence.n_rows].to_vec(),
                    sequences: vec![sequence.clone()],
                    ..CaseStep::default()
                };
                *alone.steps.last_mut().expect("there is a last step") = step;
                let part = outputs(backend, &alone);
                assert_rows(&case, &whole, n_rows, &part, first_row);
                first_row += sequence.n_rows;
            }
        }
    }
}

#[test]
fn chunked_is_whole() {
    let backends = backends();
    let mut checked = 0;
    for case in attention_cases() {
        let Some(last) = case.steps.last() else {
            continue;
        };
        let [sequence] = &last.sequences[..] else {
            continue;
        };
        if sequence.n_rows < 3 || !last.copies.is_empty() {
            continue;
        }
        checked += 1;
        let n_rows = sequence.n_rows;
        let mut chunked = case.clone();
        chunked.steps.pop();
        let before = sequence.context_len - n_rows;
        let cuts = [0, n_rows / 2, n_rows - 1, n_rows];
        for cut in cuts.windows(2) {
            let mut part = sequence.clone();
            part.n_rows = cut[1] - cut[0];
            part.context_len = before + cut[1];
            let blocks = part.context_len.div_ceil(kvant_quant::KV_BLOCK_TOKENS);
            part.block_tables
                .iter_mut()
                .for_each(|t| t.truncate(blocks));
            chunked.steps.push(CaseStep {
                tokens: last.tokens[cut[0]..cut[1]].to_vec(),
                sequences: vec![part],
                ..CaseStep::default()
            });
        }
        for backend in &backends {
            let whole = outputs(backend, &case);
            let part = outputs(backend, &chunked);
            assert_rows(&case, &whole, n_rows, &part, n_rows - 1);
        }
    }
    assert!(checked > 10);
}

#[test]
fn threads_do_not_matter() {
    for level in Level::available() {
        let one = CpuBackend::with_level(Some(1), level);
        let three = CpuBackend::with_level(Some(3), level);
        for case in attention_cases() {
            let n_rows = case.steps.last().map_or(0, |s| s.tokens.len());
            let (a, b) = (outputs(&one, &case), outputs(&three, &case));
            assert_rows(&case, &a, n_rows, &b, 0);
        }
    }
}
