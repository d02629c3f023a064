//! The table. To add an op: write a function that makes its cases, and add it to [`cases`].

use crate::build::CaseBuilder;
use crate::case::{Case, Tolerance};
use crate::kv_cases::attention_cases;
use kvant_device::{
    Activation, Epilogue, HeadShape, Norm, NormKind, Op, QkNorm, QkRope, RopeScaling, RopeSpec,
    RopeStyle, Rows,
};
use kvant_quant::WeightFormat;
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
pub(crate) const HEADS: [HeadShape; 6] = [
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
