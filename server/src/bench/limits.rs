//! What bounds decoding: the bytes a step must read, and how fast this machine reads.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use kvant_device::WeightUse;
use kvant_kv::KvFormats;
use kvant_model::Model;

use super::measure::Test;

/// Passes over the buffer; the fastest counts.
const PASSES: usize = 8;

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

/// Bytes a second that `threads` threads read from a buffer of `bytes`, by plain 64-bit sums.
pub(super) fn read_bandwidth(threads: usize, bytes: u64) -> f64 {
    let n_words = (bytes / 8).clamp(1 << 20, 1 << 26) as usize;
    let buffer: Vec<u64> = (0..n_words as u64).collect();
    let share = n_words.div_ceil(threads);
    let barrier = Barrier::new(threads);
    let mut fastest = f64::INFINITY;
    for _ in 0..PASSES {
        let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let workers: Vec<_> = buffer
                .chunks(share)
                .map(|part| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        let started = Instant::now();
                        black_box(sum(part));
                        (started, Instant::now())
                    })
                })
                .collect();
            workers
                .into_iter()
                .filter_map(|worker| worker.join().ok())
                .collect()
        });
        let first = times.iter().map(|time| time.0).min();
        let last = times.iter().map(|time| time.1).max();
        if let (Some(first), Some(last)) = (first, last) {
            fastest = fastest.min((last - first).as_secs_f64());
        }
    }
    (n_words * 8) as f64 / fastest
}

/// A sum in enough lanes that loads, not additions, take the time.
fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0u64; 32];
    let chunks = words.chunks_exact(lanes.len());
    let rest: u64 = chunks.remainder().iter().fold(0, |sum, word| sum ^ word);
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane ^= word;
        }
    }
    lanes.iter().fold(rest, |sum, lane| sum ^ lane)
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
