//! What is known of a row after part of its context, and how two such parts become one.

use crate::vector::{F32s, exp, load_first, store_first};

/// A row's maximum score, the sum of `e^(score - max)`, and the values weighted by the same,
/// `[v_head_dim]`.
#[derive(Clone, Copy)]
pub(crate) struct Partial {
    pub(crate) max: *mut f32,
    pub(crate) sum: *mut f32,
    pub(crate) values: *mut f32,
}

impl Partial {
    /// Of a row that has seen nothing.
    ///
    /// # Safety
    /// The pointers are valid.
    pub(crate) unsafe fn clear(self, v_head_dim: usize) {
        // SAFETY: by the caller.
        unsafe {
            *self.max = f32::NEG_INFINITY;
            *self.sum = 0.0;
            self.values.write_bytes(0, v_head_dim);
        }
    }

    /// Adds what `next` knows: both are brought to the larger maximum. Folding into an empty partial
    /// copies, to the bit.
    ///
    /// # Safety
    /// As [`F32s`]; the pointers of both are valid and distinct.
    #[inline(always)]
    pub(crate) unsafe fn fold<V: F32s>(self, next: Self, v_head_dim: usize) {
        // SAFETY: by the caller.
        unsafe {
            if *next.max == f32::NEG_INFINITY {
                return;
            }
            let max = if *self.max > *next.max {
                *self.max
            } else {
                *next.max
            };
            let mut factors = [0f32; crate::vector::MAX_LANES];
            factors[0] = *self.max - max;
            factors[1] = *next.max - max;
            exp(V::load(factors.as_ptr())).store(factors.as_mut_ptr());
            let (ours, theirs) = (factors[0], factors[1]);
            *self.max = max;
            *self.sum = (*next.sum).mul_add(theirs, *self.sum * ours);
            let (ours, theirs) = (V::splat(ours), V::splat(theirs));
            for d in (0..v_head_dim).step_by(V::LANES) {
                let n = V::LANES.min(v_head_dim - d);
                let a = load_first::<V>(self.values.add(d), n);
                let b = load_first::<V>(next.values.add(d), n);
                store_first(b.mul_add(theirs, a.mul(ours)), self.values.add(d), n);
            }
        }
    }

    /// `values / sum` to `out [v_head_dim]`.
    ///
    /// # Safety
    /// As [`F32s`]; all pointers are valid.
    #[inline(always)]
    pub(crate) unsafe fn finish<V: F32s>(self, v_head_dim: usize, out: *mut f32) {
        // SAFETY: by the caller.
        unsafe {
            let factor = V::splat(1.0 / *self.sum);
            for d in (0..v_head_dim).step_by(V::LANES) {
                let n = V::LANES.min(v_head_dim - d);
                let x = load_first::<V>(self.values.add(d), n);
                store_first(x.mul(factor), out.add(d), n);
            }
        }
    }
}
