//! Norms of a row, alone or with the residual sum before it.

use crate::vector::{F32s, Kernel, load_first, store_first};
use kvant_device::NormKind;
use std::sync::Arc;

/// A norm with its factors.
#[derive(Debug, Clone)]
pub(crate) struct NormWeights {
    pub(crate) kind: NormKind,
    pub(crate) weight: Arc<[f32]>,
    pub(crate) eps: f32,
}

/// `out = norm(x)`; `out` may be `x`.
#[inline(always)]
pub(crate) unsafe fn norm_row<V: F32s>(
    norm: &NormWeights,
    x: *const f32,
    out: *mut f32,
    width: usize,
) {
    // SAFETY: rows and factors have `width` elements, by the caller.
    unsafe {
        let weight = norm.weight.as_ptr();
        let n = width as f32;
        let mean = match norm.kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => fold(x, width, |sum: V, x| sum.add(x)).sum() / n,
        };
        let shift = V::splat(mean);
        let squares = match norm.kind {
            NormKind::Rms => fold(x, width, |sum: V, x| x.mul_add(x, sum)),
            NormKind::Layer => deviations::<V>(x, width, shift),
        };
        let factor = V::splat(1.0 / (squares.sum() / n + norm.eps).sqrt());
        for at in (0..width).step_by(V::LANES) {
            let n = V::LANES.min(width - at);
            let x = load_first::<V>(x.add(at), n);
            let w = load_first::<V>(weight.add(at), n);
            store_first(x.sub(shift).mul(factor).mul(w), out.add(at), n);
        }
    }
}

/// Folds a row, four vectors side by side; missing elements count as 0.
#[inline(always)]
unsafe fn fold<V: F32s>(x: *const f32, width: usize, f: impl Fn(V, V) -> V) -> V {
    // SAFETY: by the caller.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        let mut at = 0;
        while at + 4 * V::LANES <= width {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = f(*sum, V::load(x.add(at + i * V::LANES)));
            }
            at += 4 * V::LANES;
        }
        while at < width {
            let n = V::LANES.min(width - at);
            sums[0] = f(sums[0], load_first(x.add(at), n));
            at += n;
        }
        sums[0].add(sums[1]).add(sums[2].add(sums[3]))
    }
}

/// Squares of `x - mean`.
#[inline(always)]
unsafe fn deviations<V: F32s>(x: *const f32, width: usize, mean: V) -> V {
    // SAFETY: by the caller.
    unsafe {
        let whole = width / V::LANES * V::LANES;
        let mut sum = fold(x, whole, |sum: V, x| {
            let d = x.sub(mean);
            d.mul_add(d, sum)
        });
        if whole < width {
            let n = width - whole;
            let d = load_first::<V>(x.add(whole), n)
                .sub(mean)
                .keep(0, n, V::splat(0.0));
            sum = d.mul_add(d, sum);
        }
        sum
    }
}

/// `sum = x + scale * post(y)`, then `normed = pre(sum)`, for one row.
pub(crate) struct AddNormRow<'a> {
    pub(crate) post: Option<&'a NormWeights>,
    pub(crate) pre: &'a NormWeights,
    pub(crate) scale: f32,
    pub(crate) x: *const f32,
    pub(crate) y: *const f32,
    pub(crate) sum: *mut f32,
    pub(crate) normed: *mut f32,
    pub(crate) width: usize,
}

impl Kernel for AddNormRow<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        // SAFETY: by the caller of `dispatch`: rows have `width` elements and do not overlap.
        unsafe {
            let mut y = self.y;
            if let Some(post) = self.post {
                norm_row::<V>(post, self.y, self.sum, self.width);
                y = self.sum;
            }
            let scale = V::splat(self.scale);
            for at in (0..self.width).step_by(V::LANES) {
                let n = V::LANES.min(self.width - at);
                let x = load_first::<V>(self.x.add(at), n);
                let y = load_first::<V>(y.add(at), n);
                store_first(y.mul_add(scale, x), self.sum.add(at), n);
            }
            norm_row::<V>(self.pre, self.sum, self.normed, self.width);
        }
    }
}

/// `out = norm(x)` for one row.
pub(crate) struct NormRow<'a> {
    pub(crate) norm: &'a NormWeights,
    pub(crate) x: *const f32,
    pub(crate) out: *mut f32,
    pub(crate) width: usize,
}

impl Kernel for NormRow<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        // SAFETY: by the caller of `dispatch`.
        unsafe { norm_row::<V>(self.norm, self.x, self.out, self.width) }
    }
}
