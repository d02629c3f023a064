//! Cases of keys and values: written, copied, attended to.

use crate::build::CaseBuilder;
use crate::case::{Case, CaseSequence, CaseStep, Tolerance};
use crate::cases::HEADS;
use kvant_device::{
    Attention, HeadShape, KvLayerDecl, NO_BLOCK, Op, QkRope, RopeScaling, RopeSpec, RopeStyle, Rows,
};
use kvant_quant::{KV_BLOCK_TOKENS, KvFormat, KvFormats};

/// How far attention over keys and values in these formats may be from the reference: with a format
/// that rounds, a key here and there rounds the other way.
fn tolerance(kv: KvFormats) -> Tolerance {
    if kv == KvFormats::from(KvFormat::F32) {
        return Tolerance {
            normalised_square: 1e-10,
            max_error: 2e-4,
        };
    }
    Tolerance {
        normalised_square: 1e-8,
        max_error: 2e-3,
    }
}

/// Attention over paged keys and values: shapes, windows, caps, ragged batches, shuffled blocks; every
/// format of keys with every format of values.
pub fn attention_cases() -> Vec<Case> {
    let mut all = Vec::new();
    let f16 = KvFormats::from(KvFormat::F16);
    let masks = [
        (None, None),
        (Some(20), None),
        (Some(64), Some(5.0)),
        (None, Some(30.0)),
    ];
    let histories: [&[(usize, usize)]; 5] = [
        &[(0, 1)],
        &[(0, 33)],
        &[(31, 1), (64, 1), (100, 1)],
        &[(40, 17), (0, 5), (95, 1)],
        &[(600, 3), (1100, 1)],
    ];
    for (h, heads) in HEADS.into_iter().enumerate() {
        for (i, history) in histories.into_iter().enumerate() {
            for (window, softcap) in masks {
                // The long contexts on one head shape with and without a window are enough.
                if i == 4 && (heads.head_dim > 64 || softcap.is_some()) {
                    continue;
                }
                all.push(attention_case(heads, history, window, softcap, f16));
            }
            // Other formats on one mask each: masks know nothing of formats.
            for (f, kv) in KvFormats::all().filter(|&kv| kv != f16).enumerate() {
                if i == 4 && heads.head_dim > 64 {
                    continue;
                }
                let (window, softcap) = masks[(h + i + f) % masks.len()];
                all.push(attention_case(heads, history, window, softcap, kv));
            }
        }
    }
    all.extend(KvFormats::all().map(copy_case));
    all
}

/// Sequences of `(tokens before, tokens in the last step)`; earlier tokens go in by earlier steps.
fn attention_case(
    heads: HeadShape,
    history: &[(usize, usize)],
    window: Option<usize>,
    softcap: Option<f32>,
    kv: KvFormats,
) -> Case {
    let mut b = CaseBuilder::new(format!(
        "PagedAttention {heads:?} {history:?} window={window:?} softcap={softcap:?} kv={kv}"
    ));
    b.kv = kv;
    b.kv_layers.push(KvLayerDecl {
        group: 0,
        n_kv_heads: heads.n_kv_heads,
        head_dim: heads.head_dim,
        v_head_dim: heads.v_head_dim,
    });
    let blocks_of = |&(before, now): &(usize, usize)| (before + now).div_ceil(KV_BLOCK_TOKENS);
    let n_blocks: usize = history.iter().map(blocks_of).sum();
    b.n_blocks.push(n_blocks);
    // Ids shuffled over the pool, so that order in memory means nothing.
    let mut ids: Vec<u32> = (0..n_blocks as u32).collect();
    for i in (1..ids.len()).rev() {
        let j = b.random.below(i + 1);
        ids.swap(i, j);
    }
    let tables: Vec<Vec<u32>> = history
        .iter()
        .map(|h| ids.split_off(ids.len() - blocks_of(h)))
        .collect();
    let n_tokens: usize = history.iter().map(|(before, now)| before + now).sum();
    let table_rows = n_tokens.min(96);
    let qkv = b.activations(table_rows, heads.qkv_width());
    let rope = RopeSpec {
        rotary_dim: heads.head_dim,
        theta: 10_000.0,
        scaling: RopeScaling::None,
    };
    let rope_table = b.node(Op::RopeTable(rope), &[], &[(Rows::Tokens, heads.head_dim)])[0];
    let rope = QkRope {
        heads,
        norm: None,
        style: RopeStyle::Half,
        rotary_dim: heads.head_dim,
    };
    let q = b.node(
        Op::RopeWriteKv { layer: 0, rope },
        &[qkv, rope_table],
        &[(Rows::Tokens, heads.q_width())],
    )[0];
    let scale = 1.0 / (heads.head_dim as f32).sqrt();
    let op = Op::PagedAttention(Attention {
        layer: 0,
        heads,
        scale,
        softcap,
        window,
    });
    let out = b.node(
        op,
        &[q],
        &[(Rows::Tokens, heads.n_heads * heads.v_head_dim)],
    )[0];
    let mut steps = Vec::new();
    for (index, &(before, _)) in history.iter().enumerate().filter(|(_, h)| h.0 > 0) {
        let table = tables[index][..before.div_ceil(KV_BLOCK_TOKENS)].to_vec();
        let tokens = (0..before)
            .map(|_| b.random.below(table_rows) as u32)
            .collect();
        let sequences = vec![CaseSequence {
            n_rows: before,
            context_len: before,
            total_len: before,
            block_tables: vec![table],
        }];
        steps.push(CaseStep {
            tokens,
            sequences,
            output_rows: vec![],
            copies: vec![],
        });
    }
    let sequences: Vec<CaseSequence> = history
        .iter()
        .zip(&tables)
        .map(|(&(before, now), table)| {
            let mut table = table.clone();
            if let Some(window) = window {
                // Blocks that the window has passed are holes.
                let passed = (before + 1).saturating_sub(window) / KV_BLOCK_TOKENS;
                table[..passed].fill(NO_BLOCK);
            }
            CaseSequence {
                n_rows: now,
                context_len: before + now,
                total_len: before + now,
                block_tables: vec![table],
            }
        })
        .collect();
    let n_rows = sequences.iter().map(|s| s.n_rows).sum::<usize>();
    let tokens = (0..n_rows)
        .map(|_| b.random.below(table_rows) as u32)
        .collect();
    steps.push(CaseStep {
        tokens,
        sequences,
        output_rows: vec![],
        copies: vec![],
    });
    b.finish(&[q, out], steps, tolerance(kv))
}

/// A block copied before a step is the block that attention then reads.
fn copy_case(kv: KvFormats) -> Case {
    let heads = HEADS[0];
    let mut b = CaseBuilder::new(format!("CopyBlocks kv={kv}"));
    b.kv = kv;
    b.kv_layers.push(KvLayerDecl {
        group: 0,
        n_kv_heads: heads.n_kv_heads,
        head_dim: heads.head_dim,
        v_head_dim: heads.v_head_dim,
    });
    b.n_blocks.push(5);
    b.node(Op::CopyBlocks, &[], &[]);
    let qkv = b.activations(48, heads.qkv_width());
    b.node(Op::WriteKv { layer: 0, heads }, &[qkv], &[]);
    let op = Op::PagedAttention(Attention {
        layer: 0,
        heads,
        scale: 0.125,
        softcap: None,
        window: None,
    });
    let out = b.node(
        op,
        &[qkv],
        &[(Rows::Tokens, heads.n_heads * heads.v_head_dim)],
    )[0];
    let step = |tokens: std::ops::Range<u32>, context_len, table: &[u32], copies| CaseStep {
        sequences: vec![CaseSequence {
            n_rows: tokens.len(),
            context_len,
            total_len: context_len,
            block_tables: vec![table.to_vec()],
        }],
        tokens: tokens.collect(),
        output_rows: vec![],
        copies,
    };
    // The second sequence forks from the first in its open block: block 3 is copied to 4.
    let steps = vec![
        step(0..40, 40, &[1, 3], vec![]),
        step(40..44, 44, &[1, 4], vec![(0, 3, 4)]),
    ];
    b.finish(&[out], steps, tolerance(kv))
}
