//! Every architecture against `transformers`, on the reference backend.

use kvant_reference::ReferenceBackend;
use kvant_tests::architectures::{self, Tolerance};
use kvant_tests::golden::Spelling;

/// What remains beside equally rounded keys is a key here and there that rounds the other way.
const TOLERANCE: Tolerance = Tolerance {
    f16: 1e-3,
    f32: 2e-2,
};

#[test]
fn folders_give_the_logits_of_transformers() {
    architectures::logits_are_those_of_transformers(
        &ReferenceBackend::default,
        &[Spelling::Folder, Spelling::OldFolder],
        TOLERANCE,
    );
}

#[test]
fn gguf_twins_give_the_logits_of_transformers() {
    architectures::logits_are_those_of_transformers(
        &ReferenceBackend::default,
        &[Spelling::Gguf],
        TOLERANCE,
    );
}

#[test]
fn ragged_batches_agree() {
    architectures::ragged_batches_agree(&ReferenceBackend::default, TOLERANCE.f16);
}

#[test]
fn greedy_continuations_are_equal() {
    architectures::greedy_continuations_are_equal(
        &ReferenceBackend::default,
        &[Spelling::Folder, Spelling::OldFolder, Spelling::Gguf],
    );
}
