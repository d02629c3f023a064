//! The table. To add an op: write a function that makes its cases, and add it to [`cases`].

use crate::build::CaseBuilder;
use crate::case::{Case, CaseSequence, CaseStep, Tolerance};
use kvant_device::{
    Activation, Attention, Epilogue, HeadShape, KvLayerDecl, NO_BLOCK, Norm, NormKind, Op, QkNorm,
    QkRope, RopeScaling, RopeSpec, RopeStyle, Rows,
};
use kvant_quant::{KV_BLOCK_TOKENS, WeightFormat};
use smallvec::smallvec;

/// Every case.
pub fn cases() -> Vec<Case> {
    let mut all = row_cases();
    all.extend(matmul_cases());
    all.extend(attention_cases());
    all
}

const ROWS: [usize; 4] = [1, 2, 7, 33];
const WIDTHS: [usize; 4] = [32, 80, 576, 640];
const ACTIVATIONS: [Activation; 3] = [Activation::Silu, Activation::GeluTanh, Activation::Gelu];

/// Ops that treat rows apart and multiply no matrix.
pub fn row_cases() -> Vec<Case> {
    let mut all = Vec::new();
    for rows in ROWS {
        for width in WIDTHS {
            all.extend([NormKind::Rms, NormKind::Layer].map(|kind| norm_case(rows, width, kind)));
            all.extend([false, true].map(|post| add_norm_case(rows, width, post)));
            all.extend(ACTIVATIONS.map(|a| gated_case(rows, width, a)));
            all.push(elementwise_case(rows, width));
        }
    }
    all.extend(rope_cases());
    all
}

fn norm_case(rows: usize, width: usize, kind: NormKind) -> Case {
    let mut b = CaseBuilder::new(format!("Norm {kind:?} rows={rows} width={width}"));
    let x = b.activations(rows, width);
    let weight = b.vector(width, 1.0);
    let y = b.node(
        Op::Norm(Norm {
            kind,
            weight,
            eps: 1e-5,
        }),
        &[x],
        &[(Rows::Tokens, width)],
    );
    b.finish_plain(&y, rows, Tolerance::F32)
}

fn add_norm_case(rows: usize, width: usize, with_post: bool) -> Case {
    let mut b = CaseBuilder::new(format!(
        "AddNorm post={with_post} rows={rows} width={width}"
    ));
    let (x, y) = (b.activations(rows, width), b.activations(rows, width));
    let mut norm = |mean| Norm {
        kind: NormKind::Rms,
        weight: b.vector(width, mean),
        eps: 1e-6,
    };
    let (post, pre) = (norm(0.5), norm(1.0));
    let op = Op::AddNorm {
        post: with_post.then_some(post),
        scale: 0.7,
        pre,
    };
    let out = b.node(op, &[x, y], &[(Rows::Tokens, width); 2]);
    b.finish_plain(&out, rows, Tolerance::F32)
}

fn gated_case(rows: usize, width: usize, activation: Activation) -> Case {
    let mut b = CaseBuilder::new(format!("GatedAct {activation:?} rows={rows} width={width}"));
    let x = b.activations(rows, 2 * width);
    let y = b.node(Op::GatedAct { activation }, &[x], &[(Rows::Tokens, width)]);
    b.finish_plain(&y, rows, Tolerance::F32)
}

fn elementwise_case(rows: usize, width: usize) -> Case {
    let mut b = CaseBuilder::new(format!(
        "Add, Scale, Softcap, GatherRows rows={rows} width={width}"
    ));
    let (x, y) = (b.activations(rows, width), b.activations(rows, width));
    let shape = [(Rows::Tokens, width)];
    let sum = b.node(Op::Add { scale: -0.25 }, &[x, y], &shape)[0];
    let scaled = b.node(Op::Scale { factor: 3.5 }, &[sum], &shape)[0];
    let capped = b.node(Op::Softcap { cap: 2.0 }, &[scaled], &shape)[0];
    let gathered = b.node(Op::GatherRows, &[capped], &[(Rows::Outputs, width)])[0];
    let mut step = b.plain_step(rows);
    step.output_rows = (0..rows as u32).rev().step_by(2).collect();
    b.finish(&[sum, scaled, capped, gathered], vec![step], Tolerance::F32)
}

fn scalings(rotary_dim: usize) -> Vec<RopeScaling> {
    let ramp = |from: f32| {
        (0..rotary_dim / 2)
            .map(|j| from + j as f32 * 0.25)
            .collect::<Vec<_>>()
    };
    vec![
        RopeScaling::None,
        RopeScaling::Linear { factor: 4.0 },
        RopeScaling::Factors { factors: ramp(1.0) },
        RopeScaling::Long {
            short_factors: ramp(1.0),
            long_factors: ramp(2.0),
            original_context: 20,
            attention_factor: 1.2,
        },
        RopeScaling::Yarn {
            factors: ramp(1.0),
            attention_factor: 1.1,
        },
    ]
}

/// Head shapes of real models and of none.
const HEADS: [HeadShape; 6] = [
    HeadShape {
        n_heads: 9,
        n_kv_heads: 3,
        head_dim: 64,
        v_head_dim: 64,
    },
    HeadShape {
        n_heads: 4,
        n_kv_heads: 1,
        head_dim: 256,
        v_head_dim: 256,
    },
    HeadShape {
        n_heads: 2,
        n_kv_heads: 2,
        head_dim: 80,
        v_head_dim: 80,
    },
    HeadShape {
        n_heads: 8,
        n_kv_heads: 2,
        head_dim: 128,
        v_head_dim: 128,
    },
    HeadShape {
        n_heads: 3,
        n_kv_heads: 1,
        head_dim: 96,
        v_head_dim: 64,
    },
    HeadShape {
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 16,
        v_head_dim: 16,
    },
];

fn rope_cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (i, heads) in HEADS.into_iter().enumerate() {
        for style in [RopeStyle::Half, RopeStyle::Adjacent] {
            for norms in 0..3 {
                let rows = ROWS[(i + norms) % ROWS.len()];
                let rotary_dim = if i % 2 == 1 {
                    heads.head_dim / 2
                } else {
                    heads.head_dim
                };
                let scaling = scalings(rotary_dim).swap_remove((i + norms) % 5);
                let mut b = CaseBuilder::new(format!(
                    "QkNormRope {heads:?} {style:?} norms={norms} rows={rows}"
                ));
                let qkv = b.activations(rows, heads.qkv_width());
                let spec = RopeSpec {
                    rotary_dim,
                    theta: 10_000.0,
                    scaling,
                };
                let table = b.node(Op::RopeTable(spec), &[], &[(Rows::Tokens, rotary_dim)])[0];
                let mut norm = |width| Norm {
                    kind: NormKind::Rms,
                    weight: b.vector(width, 1.0),
                    eps: 1e-6,
                };
                let norm = match norms {
                    0 => None,
                    1 => Some(QkNorm::PerHead {
                        q: norm(heads.head_dim),
                        k: norm(heads.head_dim),
                    }),
                    _ => Some(QkNorm::Whole {
                        q: norm(heads.q_width()),
                        k: norm(heads.k_width()),
                    }),
                };
                let rope = QkRope {
                    heads,
                    norm,
                    style,
                    rotary_dim,
                };
                let out = b.node(
                    Op::QkNormRope(rope),
                    &[qkv, table],
                    &[(Rows::Tokens, heads.qkv_width())],
                )[0];
                all.push(b.finish_plain(&[table, out], rows, Tolerance::F32));
            }
        }
    }
    all
}

/// Products: every format on odd shapes, every epilogue, several weights, biases.
pub fn matmul_cases() -> Vec<Case> {
    let mut all = Vec::new();
    for &format in WeightFormat::ALL {
        if !is_matrix_format(format) {
            continue;
        }
        let block = format.block().elements;
        let widths: &[usize] = if block == 1 {
            &[33, 96, 577]
        } else {
            &[block, 3 * block]
        };
        for (i, &k) in widths.iter().enumerate() {
            for (n, rows) in [(1, 9), (70, 1), (17, 3), (33, 7), (40, 18), (16, 70)] {
                // The long shapes once a format are enough.
                if i > 0 && rows > 18 {
                    continue;
                }
                all.push(matmul_case(format, n, k, rows, Epilogue::Store, false));
            }
        }
    }
    for format in [WeightFormat::Q4_1, WeightFormat::Q6_K, WeightFormat::F16] {
        for rows in [1, 5, 20] {
            for with_bias in [false, true] {
                all.push(matmul_case(
                    format,
                    33,
                    256,
                    rows,
                    Epilogue::Residual { scale: 0.5 },
                    with_bias,
                ));
                all.extend(
                    ACTIVATIONS
                        .map(|a| matmul_case(format, 33, 256, rows, Epilogue::Gated(a), with_bias)),
                );
                all.push(mixed_matmul_case(format, rows, with_bias));
            }
        }
    }
    all
}

/// Whether a format holds matrices (wide integers and activation types do not).
fn is_matrix_format(format: WeightFormat) -> bool {
    !matches!(
        format,
        WeightFormat::Q8_1
            | WeightFormat::Q8_K
            | WeightFormat::I8
            | WeightFormat::I16
            | WeightFormat::I32
            | WeightFormat::I64
            | WeightFormat::F64
    )
}

fn matmul_case(
    format: WeightFormat,
    n: usize,
    k: usize,
    rows: usize,
    epilogue: Epilogue,
    with_bias: bool,
) -> Case {
    let mut b = CaseBuilder::new(format!(
        "MatMul {format} n={n} k={k} rows={rows} {epilogue:?} bias={with_bias}"
    ));
    let x = b.activations(rows, k);
    let mut weights = CaseBuilder::one(b.matrix(format, n, k));
    let mut inputs = vec![x];
    match epilogue {
        Epilogue::Gated(_) => weights.push(b.matrix(format, n, k)),
        Epilogue::Residual { .. } => inputs.push(b.activations(rows, n)),
        Epilogue::Store => {}
    }
    let biases = weights
        .iter()
        .map(|_| with_bias.then(|| b.vector(n, 0.0)))
        .collect();
    let y = b.node(
        Op::MatMul {
            weights,
            biases,
            epilogue,
        },
        &inputs,
        &[(Rows::Tokens, n)],
    );
    let tolerance = match epilogue {
        Epilogue::Gated(_) => Tolerance::GATED_ROUNDED_ACTIVATIONS,
        _ => Tolerance::ROUNDED_ACTIVATIONS,
    };
    b.finish_plain(&y, rows, tolerance)
}

/// Three weights of different heights and formats side by side, as queries, keys and values are.
fn mixed_matmul_case(format: WeightFormat, rows: usize, with_bias: bool) -> Case {
    let mut b = CaseBuilder::new(format!(
        "MatMul of three {format} rows={rows} bias={with_bias}"
    ));
    let x = b.activations(rows, 256);
    let heights = [48, 16, 19];
    let weights = smallvec![
        b.matrix(format, heights[0], 256),
        b.matrix(WeightFormat::Q8_0, heights[1], 256),
        b.matrix(format, heights[2], 256)
    ];
    let biases = heights
        .iter()
        .map(|&n| with_bias.then(|| b.vector(n, 0.0)))
        .collect();
    let op = Op::MatMul {
        weights,
        biases,
        epilogue: Epilogue::Store,
    };
    let y = b.node(op, &[x], &[(Rows::Tokens, heights.iter().sum())]);
    b.finish_plain(&y, rows, Tolerance::ROUNDED_ACTIVATIONS)
}

/// Attention over paged keys and values: shapes, windows, caps, ragged batches, shuffled blocks.
pub fn attention_cases() -> Vec<Case> {
    let mut all = Vec::new();
    let histories: [&[(usize, usize)]; 5] = [
        &[(0, 1)],
        &[(0, 33)],
        &[(31, 1), (64, 1), (100, 1)],
        &[(40, 17), (0, 5), (95, 1)],
        &[(600, 3), (1100, 1)],
    ];
    for heads in HEADS {
        for (i, history) in histories.into_iter().enumerate() {
            for (window, softcap) in [
                (None, None),
                (Some(20), None),
                (Some(64), Some(5.0)),
                (None, Some(30.0)),
            ] {
                // The long contexts on one head shape with and without a window are enough.
                if i == 4 && (heads.head_dim > 64 || softcap.is_some()) {
                    continue;
                }
                all.push(attention_case(heads, history, window, softcap));
            }
        }
    }
    all.push(copy_case());
    all
}

/// Sequences of `(tokens before, tokens in the last step)`; earlier tokens go in by earlier steps.
fn attention_case(
    heads: HeadShape,
    history: &[(usize, usize)],
    window: Option<usize>,
    softcap: Option<f32>,
) -> Case {
    let mut b = CaseBuilder::new(format!(
        "PagedAttention {heads:?} {history:?} window={window:?} softcap={softcap:?}"
    ));
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
    let tolerance = Tolerance {
        normalised_square: 1e-8,
        max_error: 2e-3,
    };
    b.finish(&[q, out], steps, tolerance)
}

/// A block copied before a step is the block that attention then reads.
fn copy_case() -> Case {
    let heads = HEADS[0];
    let mut b = CaseBuilder::new("CopyBlocks".to_owned());
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
    b.finish(
        &[out],
        steps,
        Tolerance {
            normalised_square: 1e-8,
            max_error: 2e-3,
        },
    )
}
