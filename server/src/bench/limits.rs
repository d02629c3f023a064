//! The bytes a step must read, and the most memory that was held.

use kvant_device::WeightUse;
use kvant_kv::KvFormats;
use kvant_model::Model;

use super::measure::Test;

/// Bytes that a step of `test` reads at least: every matrix once, and keys and values of each sequence,
/// half way through the answer.
pub(super) fn step_bytes(model: &Model, kv: KvFormats, test: &Test) -> u64 {
    let weights: usize = model
        .weights()
        .iter()
        .map(|weight| &weight.desc)
        .filter(|desc| desc.usage != WeightUse::Table)
        .map(|desc| desc.format.bytes_for(desc.n_cols).unwrap_or(0) * desc.n_rows)
        .sum();
    let spec = model.spec();
    let context = test.depth.max(1) + test.n_tokens / 2;
    let kv_bytes: usize = spec
        .layers
        .iter()
        .map(|layer| {
            let attention = &layer.attention;
            let window = spec.kv_groups.get(attention.kv_group).copied().flatten();
            let n_tokens = window.map_or(context, |window| window.min(context));
            let key_bytes = attention.head_dim * kv.k.element_bytes();
            let value_bytes = attention.v_head_dim * kv.v.element_bytes();
            n_tokens * attention.n_kv_heads * (key_bytes + value_bytes)
        })
        .sum();
    (weights + test.batch * kv_bytes) as u64
}

/// The most memory that this process has held so far, where the system tells.
pub(super) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
