//! The engine's properties on the CPU backend: to the bit when deterministic, else within what other
//! kernels round differently.

use kvant_cpu::CpuBackend;
use kvant_quant::WeightFormat;
use kvant_tests::properties::{self, Agreement};
use kvant_tests::tiny::TinySpec;

/// Two threads, so that work is really shared.
fn backend() -> CpuBackend {
    CpuBackend::new(Some(2))
}

/// Wide enough for blocks of 32 in every matrix.
const QUANTISED: TinySpec = TinySpec {
    n_heads: 4,
    format: WeightFormat::Q8_0,
    ..TinySpec::LLAMA
};

const SPECS: [TinySpec; 3] = [TinySpec::LLAMA, TinySpec::GEMMA3, QUANTISED];

#[test]
fn chunked_prefill_is_whole_prefill() {
    for spec in SPECS {
        properties::chunked_is_whole(&backend, &spec, true, Agreement::Bits);
        // Prompts may be computed on bf16 tiles, single tokens in 8-bit blocks; random weights pass the
        // difference on undamped.
        properties::chunked_is_whole(&backend, &spec, false, Agreement::Within(0.1));
    }
}

#[test]
fn a_batch_is_each_alone() {
    for spec in SPECS {
        properties::batched_is_alone(&backend, &spec, true, Agreement::Bits);
    }
}

#[test]
fn forks_copy_on_write() {
    for spec in SPECS {
        properties::fork_shares_and_copies(&backend, &spec);
    }
}

#[test]
fn request_storms() {
    for seed in 0..6 {
        properties::storms_lose_no_block(&backend, &SPECS[seed as usize % 3], seed);
    }
}
