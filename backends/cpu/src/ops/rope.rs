//! Rotary position embedding and the norms of queries and keys before it.

use super::norm::{NormWeights, norm_row};
use crate::vector::{F32s, Kernel};
use kvant_device::{HeadShape, RopeSpec, RopeStyle};

/// Norms before rotation, with their factors.
#[derive(Debug, Clone)]
pub(crate) enum QkNormWeights {
    /// Each head apart.
    PerHead { q: NormWeights, k: NormWeights },
    /// All heads of a token as one row.
    Whole { q: NormWeights, k: NormWeights },
}

/// Norm and rotation, ready to run.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    pub(crate) heads: HeadShape,
    pub(crate) norm: Option<QkNormWeights>,
    pub(crate) style: RopeStyle,
    pub(crate) rotary_dim: usize,
}

/// Rotates `heads` heads of one token: norms and rotates `from` into `to`, both `[heads][head_dim]`.
#[derive(Clone, Copy)]
pub(crate) struct RotateHeads<'a> {
    pub(crate) rope: &'a Rope,
    /// Keys, or else queries.
    pub(crate) keys: bool,
    /// First head, of all heads of the token.
    pub(crate) first_head: usize,
    pub(crate) n_heads: usize,
    /// All heads of the token.
    pub(crate) all: *const f32,
    /// Cosines, then sines, `[rotary_dim]`.
    pub(crate) table: *const f32,
    /// `[n_heads][head_dim]`.
    pub(crate) to: *mut f32,
    /// Factor on the results.
    pub(crate) scale: f32,
    /// Room for a normed row of all heads, where norms are of the whole row.
    pub(crate) row: *mut f32,
}

impl Kernel for RotateHeads<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        // SAFETY: by the caller of `dispatch`.
        unsafe { self.rotate::<V>() }
    }
}

impl RotateHeads<'_> {
    /// # Safety
    /// As [`F32s`]; rows hold what their fields say.
    #[inline(always)]
    pub(crate) unsafe fn rotate<V: F32s>(self) {
        let dim = self.rope.heads.head_dim;
        let half = self.rope.rotary_dim / 2;
        // SAFETY: by the caller.
        unsafe {
            let mut from = self.all;
            if let Some(QkNormWeights::Whole { q, k }) = &self.rope.norm {
                let (norm, width) = if self.keys {
                    (k, self.rope.heads.k_width())
                } else {
                    (q, self.rope.heads.q_width())
                };
                norm_row::<V>(norm, self.all, self.row, width);
                from = self.row;
            }
            let cos = std::slice::from_raw_parts(self.table, half);
            let sin = std::slice::from_raw_parts(self.table.add(half), half);
            for h in 0..self.n_heads {
                let mut head = from.add((self.first_head + h) * dim);
                let to = self.to.add(h * dim);
                if let Some(QkNormWeights::PerHead { q, k }) = &self.rope.norm {
                    norm_row::<V>(if self.keys { k } else { q }, head, to, dim);
                    head = to;
                }
                match self.rope.style {
                    RopeStyle::Half => half_style::<V>(head, to, cos, sin, self.scale),
                    RopeStyle::Adjacent => adjacent_style(head, to, cos, sin, self.scale),
                }
                for d in self.rope.rotary_dim..dim {
                    *to.add(d) = *head.add(d) * self.scale;
                }
            }
        }
    }
}

/// Pairs `(j, j + half)`; `from` may be `to`.
#[inline(always)]
unsafe fn half_style<V: F32s>(
    from: *const f32,
    to: *mut f32,
    cos: &[f32],
    sin: &[f32],
    scale: f32,
) {
    let half = cos.len();
    // SAFETY: both rows hold `2 * half` elements.
    unsafe {
        let mut j = 0;
        let factor = V::splat(scale);
        while j + V::LANES <= half {
            let (a, b) = (V::load(from.add(j)), V::load(from.add(j + half)));
            let (c, s) = (V::load(cos.as_ptr().add(j)), V::load(sin.as_ptr().add(j)));
            let x = a.mul(c).sub(b.mul(s)).mul(factor);
            let y = b.mul(c).add(a.mul(s)).mul(factor);
            x.store(to.add(j));
            y.store(to.add(j + half));
            j += V::LANES;
        }
        while j < half {
            let (a, b) = (*from.add(j), *from.add(j + half));
            *to.add(j) = (a * cos[j] - b * sin[j]) * scale;
            *to.add(j + half) = (b * cos[j] + a * sin[j]) * scale;
            j += 1;
        }
    }
}

/// Pairs `(2j, 2j + 1)`; `from` may be `to`.
#[inline(always)]
unsafe fn adjacent_style(from: *const f32, to: *mut f32, cos: &[f32], sin: &[f32], scale: f32) {
    for (j, (&c, &s)) in cos.iter().zip(sin).enumerate() {
        // SAFETY: both rows hold `2 * cos.len()` elements.
        unsafe {
            let (a, b) = (*from.add(2 * j), *from.add(2 * j + 1));
            *to.add(2 * j) = (a * c - b * s) * scale;
            *to.add(2 * j + 1) = (b * c + a * s) * scale;
        }
    }
}

/// Frequencies of a table, worked out once.
#[derive(Debug, Clone)]
pub(crate) struct RopeFrequencies {
    /// Radians a token, `[rotary_dim / 2]`, for sequences up to `original_context` tokens.
    short: Vec<f64>,
    /// Beyond it.
    long: Vec<f64>,
    original_context: usize,
    factor: f64,
}

impl RopeFrequencies {
    pub(crate) fn new(spec: &RopeSpec) -> Self {
        let original_context = match &spec.scaling {
            kvant_device::RopeScaling::Long {
                original_context, ..
            } => *original_context,
            _ => usize::MAX,
        };
        Self {
            short: spec.frequencies(0),
            long: spec.frequencies(usize::MAX),
            original_context,
            factor: f64::from(spec.attention_factor()),
        }
    }

    /// Writes cosines, then sines, of a token at `position` of a sequence of `total_len` tokens.
    pub(crate) fn row(&self, position: u32, total_len: usize, out: &mut [f32]) {
        let frequencies = if total_len > self.original_context {
            &self.long
        } else {
            &self.short
        };
        let (cos, sin) = out.split_at_mut(frequencies.len());
        for ((c, s), f) in cos.iter_mut().zip(sin).zip(frequencies) {
            let (sine, cosine) = (f64::from(position) * f).sin_cos();
            *c = (cosine * self.factor) as f32;
            *s = (sine * self.factor) as f32;
        }
    }
}
