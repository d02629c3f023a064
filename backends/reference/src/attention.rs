//! Keys and values in blocks, and attention over them, two passes, in f64.
//!
//! A block of keys or values is `[KV_BLOCK_TOKENS, n_kv_heads, head_dim]`, row-major.

use crate::backend::RefBuffer;
use half::f16;
use kvant_device::{Attention, HeadShape, KvBinding, KvLayerDecl, StepInput};
use kvant_quant::{KV_BLOCK_TOKENS, KvFormat};

/// Writes keys and values of every token of the step.
pub(crate) fn write_kv(
    kv: &KvBinding<RefBuffer>,
    layers: &[KvLayerDecl],
    layer: usize,
    heads: &HeadShape,
    qkv: &[f32],
    step: &StepInput<'_>,
) {
    let binding = &kv.layers[layer];
    let mut bytes = kv.buffer.borrow_mut();
    for sequence in step.sequences {
        let table = sequence.block_tables[layers[layer].group];
        for row in sequence.first_row..sequence.first_row + sequence.n_rows {
            let position = step.positions[row] as usize;
            let (block, slot) = (
                table[position / KV_BLOCK_TOKENS] as usize,
                position % KV_BLOCK_TOKENS,
            );
            let values = &qkv[row * heads.qkv_width()..][..heads.qkv_width()];
            let (k, v) = values[heads.q_width()..].split_at(heads.k_width());
            store(
                &mut bytes[binding.k_offset + block * binding.k_block_bytes..],
                binding.k_format,
                slot,
                k,
            );
            store(
                &mut bytes[binding.v_offset + block * binding.v_block_bytes..],
                binding.v_format,
                slot,
                v,
            );
        }
    }
}

fn store(block: &mut [u8], format: KvFormat, slot: usize, row: &[f32]) {
    match format {
        KvFormat::F16 => {
            let dst = &mut block[slot * row.len() * 2..][..row.len() * 2];
            for (dst, &value) in dst.chunks_exact_mut(2).zip(row) {
                dst.copy_from_slice(&f16::from_f32(value).to_le_bytes());
            }
        }
        other => unreachable!("{} is refused when a program is prepared", other.name()),
    }
}

fn load(block: &[u8], format: KvFormat, index: usize) -> f64 {
    match format {
        KvFormat::F16 => f16::from_le_bytes([block[2 * index], block[2 * index + 1]]).to_f64(),
        other => unreachable!("{} is refused when a program is prepared", other.name()),
    }
}

/// Attention of every token of the step over its sequence.
pub(crate) fn attend(
    kv: &KvBinding<RefBuffer>,
    layers: &[KvLayerDecl],
    attention: &Attention,
    q: &[f32],
    q_stride: usize,
    step: &StepInput<'_>,
) -> Vec<f32> {
    let heads = &attention.heads;
    let (dim, v_dim) = (heads.head_dim, heads.v_head_dim);
    let binding = &kv.layers[attention.layer];
    let bytes = kv.buffer.borrow();
    let mut out = Vec::with_capacity(step.tokens.len() * heads.n_heads * v_dim);
    for sequence in step.sequences {
        let table = sequence.block_tables[layers[attention.layer].group];
        for row in sequence.first_row..sequence.first_row + sequence.n_rows {
            let position = step.positions[row] as usize;
            let first = attention
                .window
                .map_or(0, |w| (position + 1).saturating_sub(w));
            for head in 0..heads.n_heads {
                let kv_head = head / (heads.n_heads / heads.n_kv_heads);
                let query = &q[row * q_stride + head * dim..][..dim];
                let key = |t: usize, d: usize| {
                    let block = table[t / KV_BLOCK_TOKENS] as usize * binding.k_block_bytes
                        + binding.k_offset;
                    let index = (t % KV_BLOCK_TOKENS * heads.n_kv_heads + kv_head) * dim + d;
                    load(&bytes[block..], binding.k_format, index)
                };
                let value = |t: usize, d: usize| {
                    let block = table[t / KV_BLOCK_TOKENS] as usize * binding.v_block_bytes
                        + binding.v_offset;
                    let index = (t % KV_BLOCK_TOKENS * heads.n_kv_heads + kv_head) * v_dim + d;
                    load(&bytes[block..], binding.v_format, index)
                };
                let scores: Vec<f64> = (first..=position)
                    .map(|t| {
                        let dot: f64 = query
                            .iter()
                            .enumerate()
                            .map(|(d, &x)| f64::from(x) * key(t, d))
                            .sum();
                        let score = dot * f64::from(attention.scale);
                        attention.softcap.map_or(score, |cap| {
                            f64::from(cap) * (score / f64::from(cap)).tanh()
                        })
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..v_dim).map(|d| {
                    let mixed: f64 = weights
                        .iter()
                        .enumerate()
                        .map(|(i, w)| w * value(first + i, d))
                        .sum();
                    (mixed / sum) as f32
                }));
            }
        }
    }
    out
}

/// Copies blocks in every layer of their group.
pub(crate) fn copy_blocks(kv: &KvBinding<RefBuffer>, layers: &[KvLayerDecl], step: &StepInput<'_>) {
    let mut bytes = kv.buffer.borrow_mut();
    for copy in step.copies {
        for (binding, _) in kv
            .layers
            .iter()
            .zip(layers)
            .filter(|(_, layer)| layer.group == copy.group)
        {
            let regions = [
                (binding.k_offset, binding.k_block_bytes),
                (binding.v_offset, binding.v_block_bytes),
            ];
            for (offset, size) in regions {
                let src = offset + copy.src as usize * size;
                bytes.copy_within(src..src + size, offset + copy.dst as usize * size);
            }
        }
    }
}
