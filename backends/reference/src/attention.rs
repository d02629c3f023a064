//! Keys and values in blocks, and attention over them, two passes, in f64.
//!
//! A block of keys or values is `[KV_BLOCK_TOKENS, n_kv_heads, head_dim]`, row-major.

use crate::backend::RefBuffer;
use kvant_device::{Attention, HeadShape, KvBinding, KvLayerDecl, NO_BLOCK, StepInput};
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

/// Writes one token's heads, `[n_kv_heads, head_dim]`.
fn store(block: &mut [u8], format: KvFormat, slot: usize, row: &[f32]) {
    let bytes = row.len() * format.element_bytes();
    format.encode(row, &mut block[slot * bytes..][..bytes]);
}

/// One head of keys or values of a sequence's blocks `first_block..`, decoded, `[tokens, dim]`; zeros in
/// blocks that are gone.
fn head_of_blocks(
    bytes: &[u8],
    format: KvFormat,
    region: (usize, usize),
    table: &[u32],
    n_kv_heads: usize,
    kv_head: usize,
    dim: usize,
) -> Vec<f64> {
    let (offset, block_bytes) = region;
    let head_bytes = dim * format.element_bytes();
    let mut head = vec![0.0; dim];
    let mut out = Vec::with_capacity(table.len() * KV_BLOCK_TOKENS * dim);
    for &id in table {
        if id == NO_BLOCK {
            out.resize(out.len() + KV_BLOCK_TOKENS * dim, 0.0);
            continue;
        }
        let block = &bytes[offset + id as usize * block_bytes..];
        for slot in 0..KV_BLOCK_TOKENS {
            let first = (slot * n_kv_heads + kv_head) * head_bytes;
            format.decode(&block[first..first + head_bytes], &mut head);
            out.extend(head.iter().map(|&x| f64::from(x)));
        }
    }
    out
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
    let (dim, v_dim, n_kv_heads) = (heads.head_dim, heads.v_head_dim, heads.n_kv_heads);
    let out_width = heads.n_heads * v_dim;
    let binding = &kv.layers[attention.layer];
    let bytes = kv.buffer.borrow();
    let mut out = vec![0.0; step.tokens.len() * out_width];
    for sequence in step.sequences {
        let table = sequence.block_tables[layers[attention.layer].group];
        for head in 0..heads.n_heads {
            let kv_head = head / (heads.n_heads / n_kv_heads);
            let k_region = (binding.k_offset, binding.k_block_bytes);
            let v_region = (binding.v_offset, binding.v_block_bytes);
            let keys = head_of_blocks(
                &bytes,
                binding.k_format,
                k_region,
                table,
                n_kv_heads,
                kv_head,
                dim,
            );
            let values = head_of_blocks(
                &bytes,
                binding.v_format,
                v_region,
                table,
                n_kv_heads,
                kv_head,
                v_dim,
            );
            for row in sequence.first_row..sequence.first_row + sequence.n_rows {
                let position = step.positions[row] as usize;
                let first = attention
                    .window
                    .map_or(0, |w| (position + 1).saturating_sub(w));
                let query = &q[row * q_stride + head * dim..][..dim];
                let scores: Vec<f64> = keys[first * dim..(position + 1) * dim]
                    .chunks_exact(dim)
                    .map(|key| {
                        let dot: f64 = query.iter().zip(key).map(|(&x, k)| f64::from(x) * k).sum();
                        let score = dot * f64::from(attention.scale);
                        attention.softcap.map_or(score, |cap| {
                            f64::from(cap) * (score / f64::from(cap)).tanh()
                        })
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let mut sum = 0.0;
                let mut mixed = vec![0.0; v_dim];
                for (score, value) in scores
                    .iter()
                    .zip(values[first * v_dim..].chunks_exact(v_dim))
                {
                    let weight = (score - max).exp();
                    sum += weight;
                    mixed
                        .iter_mut()
                        .zip(value)
                        .for_each(|(m, v)| *m += weight * v);
                }
                let dst = &mut out[row * out_width + head * v_dim..][..v_dim];
                dst.iter_mut()
                    .zip(&mixed)
                    .for_each(|(dst, m)| *dst = (m / sum) as f32);
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
