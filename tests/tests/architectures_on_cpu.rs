//! Every architecture against `transformers`, on the CPU backend. Weights are floats here, which every
//! instruction set but the bf16 tiles multiplies as floats.

use kvant_cpu::{CpuBackend, Level};
use kvant_kv::KvFormat;
use kvant_tests::architectures;
use kvant_tests::golden::Spelling;

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
        KvFormat::F32,
    );
}

#[test]
fn keys_and_values_in_f16_cost_their_rounding_alone() {
    architectures::logits_are_those_of_transformers(&backend, &[Spelling::Folder], KvFormat::F16);
}

#[test]
fn ragged_batches_agree() {
    for kv in [KvFormat::F16, KvFormat::F32] {
        architectures::ragged_batches_agree(&backend, kv);
    }
}
