//! Every architecture against `transformers`, on the CPU backend. Weights are floats here, which every
//! instruction set but the bf16 tiles multiplies as floats.

use kvant_cpu::{CpuBackend, Level};
use kvant_tests::architectures::{self, Tolerance};
use kvant_tests::golden::Spelling;

/// As on the reference backend.
const TOLERANCE: Tolerance = Tolerance {
    f16: 1e-3,
    f32: 2e-2,
};

/// The best instruction set without tiles.
fn backend() -> CpuBackend {
    let level = Level::available()
        .filter(|level| *level != Level::Amx)
        .last();
    CpuBackend::with_level(Some(2), level.unwrap_or(Level::Scalar))
}

#[test]
fn folders_and_gguf_twins_give_the_logits_of_transformers() {
    architectures::logits_are_those_of_transformers(
        &backend,
        &[Spelling::Folder, Spelling::OldFolder, Spelling::Gguf],
        TOLERANCE,
    );
}

#[test]
fn ragged_batches_agree() {
    architectures::ragged_batches_agree(&backend, TOLERANCE.f16);
}
