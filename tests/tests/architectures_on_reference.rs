//! Every architecture against `transformers`, on the reference backend.

use kvant_kv::KvFormat;
use kvant_reference::ReferenceBackend;
use kvant_tests::architectures;
use kvant_tests::golden::Spelling;

#[test]
fn folders_give_the_logits_of_transformers() {
    architectures::logits_are_those_of_transformers(
        &ReferenceBackend::default,
        &[Spelling::Folder, Spelling::OldFolder],
        KvFormat::F32,
    );
}

#[test]
fn gguf_twins_give_the_logits_of_transformers() {
    architectures::logits_are_those_of_transformers(
        &ReferenceBackend::default,
        &[Spelling::Gguf],
        KvFormat::F32,
    );
}

#[test]
fn keys_and_values_in_f16_cost_their_rounding_alone() {
    architectures::logits_are_those_of_transformers(
        &ReferenceBackend::default,
        &[Spelling::Folder],
        KvFormat::F16,
    );
}

#[test]
fn ragged_batches_agree() {
    architectures::ragged_batches_agree(&ReferenceBackend::default, KvFormat::F32);
}

#[test]
fn greedy_continuations_are_equal() {
    architectures::greedy_continuations_are_equal(
        &ReferenceBackend::default,
        &[Spelling::Folder, Spelling::OldFolder, Spelling::Gguf],
    );
}
