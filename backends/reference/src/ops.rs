//! Every op but attention, from its definition.

use crate::backend::RefWeight;
use kvant_device::{
    Activation, NormKind, QkNorm, QkRope, RopeSpec, RopeStyle, StepInput, WeightId,
};

/// Norm of each run of `width` elements.
pub(crate) fn norm(x: &[f32], kind: NormKind, weight: &[f32], eps: f32, width: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(width) {
        let mean = match kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => row.iter().map(|&v| f64::from(v)).sum::<f64>() / width as f64,
        };
        let square = row
            .iter()
            .map(|&v| (f64::from(v) - mean).powi(2))
            .sum::<f64>()
            / width as f64;
        let scale = 1.0 / (square + f64::from(eps)).sqrt();
        out.extend(
            row.iter()
                .zip(weight)
                .map(|(&v, &w)| ((f64::from(v) - mean) * scale * f64::from(w)) as f32),
        );
    }
    out
}

/// `a + scale * b`.
pub(crate) fn add(a: &[f32], b: &[f32], scale: f32) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + scale * b).collect()
}

/// `x [rows, k]` times each weight `[n_i, k]`, side by side, plus bias.
pub(crate) fn matmul(x: &[f32], k: usize, parts: &[(&RefWeight, Option<&[f32]>)]) -> Vec<f32> {
    let mut out = Vec::new();
    for row in x.chunks_exact(k) {
        for (weight, bias) in parts {
            for (n, w) in weight.values.chunks_exact(weight.n_cols).enumerate() {
                let dot: f64 = row
                    .iter()
                    .zip(w)
                    .map(|(&a, &b)| f64::from(a) * f64::from(b))
                    .sum();
                out.push(dot as f32 + bias.map_or(0.0, |b| b[n]));
            }
        }
    }
    out
}

/// The activation of one element.
pub(crate) fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            0.5 * x
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
        }
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    }
}

/// The error function, by its Taylor series near zero and by a continued fraction beyond
/// (Abramowitz and Stegun 7.1.5 and 7.1.14).
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 3.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..200 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let tail = (1..=60).rev().fold(a, |t, n| a + f64::from(n) / 2.0 / t);
        1.0 - (-a * a).exp() / (std::f64::consts::PI.sqrt() * tail)
    };
    value.copysign(x)
}

/// `activation(first half) * second half` of each row.
pub(crate) fn gated(x: &[f32], width: usize, activation: Activation) -> Vec<f32> {
    let half = width / 2;
    x.chunks_exact(width)
        .flat_map(|row| {
            row[..half]
                .iter()
                .zip(&row[half..])
                .map(|(&g, &u)| (activate(activation, f64::from(g)) * f64::from(u)) as f32)
        })
        .collect()
}

/// Cosines, then sines, of each token.
pub(crate) fn rope_table(spec: &RopeSpec, step: &StepInput<'_>) -> Vec<f32> {
    let factor = f64::from(spec.attention_factor());
    let mut out = Vec::with_capacity(step.tokens.len() * spec.rotary_dim);
    for sequence in step.sequences {
        let frequencies = spec.frequencies(sequence.total_len);
        for row in sequence.first_row..sequence.first_row + sequence.n_rows {
            let position = f64::from(step.positions[row]);
            out.extend(
                frequencies
                    .iter()
                    .map(|f| ((position * f).cos() * factor) as f32),
            );
            out.extend(
                frequencies
                    .iter()
                    .map(|f| ((position * f).sin() * factor) as f32),
            );
        }
    }
    out
}

/// Norm factors of queries and keys, looked up.
pub(crate) struct QkNormWeights<'a> {
    norm: QkNorm,
    q: &'a [f32],
    k: &'a [f32],
}

impl<'a> QkNormWeights<'a> {
    pub(crate) fn new(norm: QkNorm, weight: impl Fn(WeightId) -> &'a [f32]) -> Self {
        let (QkNorm::PerHead { q, k } | QkNorm::Whole { q, k }) = norm;
        Self {
            norm,
            q: weight(q.weight),
            k: weight(k.weight),
        }
    }
}

/// Queries and keys normed and rotated, values as they are.
pub(crate) fn qk_norm_rope(
    rope: &QkRope,
    norms: Option<&QkNormWeights<'_>>,
    qkv: &[f32],
    table: &[f32],
) -> Vec<f32> {
    let heads = &rope.heads;
    let (q_width, k_width, dim) = (heads.q_width(), heads.k_width(), heads.head_dim);
    let mut out = Vec::with_capacity(qkv.len());
    for (row, angles) in qkv
        .chunks_exact(heads.qkv_width())
        .zip(table.chunks_exact(rope.rotary_dim))
    {
        let (mut q, mut k) = (
            row[..q_width].to_vec(),
            row[q_width..q_width + k_width].to_vec(),
        );
        if let Some(weights) = norms {
            let (qn, kn, whole) = match weights.norm {
                QkNorm::PerHead { q, k } => (q, k, false),
                QkNorm::Whole { q, k } => (q, k, true),
            };
            q = norm(
                &q,
                qn.kind,
                weights.q,
                qn.eps,
                if whole { q_width } else { dim },
            );
            k = norm(
                &k,
                kn.kind,
                weights.k,
                kn.eps,
                if whole { k_width } else { dim },
            );
        }
        for head in q.chunks_exact_mut(dim).chain(k.chunks_exact_mut(dim)) {
            rotate(&mut head[..rope.rotary_dim], rope.style, angles);
        }
        out.extend(q.iter().chain(&k).chain(&row[q_width + k_width..]));
    }
    out
}

fn rotate(head: &mut [f32], style: RopeStyle, angles: &[f32]) {
    let half = head.len() / 2;
    for j in 0..half {
        let (a, b) = match style {
            RopeStyle::Half => (j, j + half),
            RopeStyle::Adjacent => (2 * j, 2 * j + 1),
        };
        let (cos, sin) = (f64::from(angles[j]), f64::from(angles[half + j]));
        let (x, y) = (f64::from(head[a]), f64::from(head[b]));
        head[a] = (x * cos - y * sin) as f32;
        head[b] = (x * sin + y * cos) as f32;
    }
}
