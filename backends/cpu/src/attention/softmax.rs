//! The softmax of one row of scores.

use crate::vector::{F32s, exp, tanh};

/// Turns scores into weights `e^(score - max)` in place. Only the columns `from..to` are seen; those
/// before and after, up to `n` (a multiple of the lanes), become 0. Returns the maximum and the sum
/// of the weights; `(-∞, 0)` when nothing is seen.
///
/// # Safety
/// As [`F32s`]; `scores` holds `n` elements.
#[inline(always)]
pub(super) unsafe fn weights<V: F32s>(
    scores: *mut f32,
    n: usize,
    from: usize,
    to: usize,
    softcap: Option<f32>,
) -> (f32, f32) {
    // SAFETY: by the caller.
    unsafe {
        let zero = V::splat(0.0);
        if from >= to {
            for at in (0..n).step_by(V::LANES) {
                zero.store(scores.add(at));
            }
            return (f32::NEG_INFINITY, 0.0);
        }
        let first = from / V::LANES * V::LANES;
        let last = to.next_multiple_of(V::LANES);
        let mut largest = V::splat(f32::NEG_INFINITY);
        for at in (first..last).step_by(V::LANES) {
            let mut score = V::load(scores.add(at));
            if let Some(cap) = softcap {
                score = tanh(score.mul(V::splat(1.0 / cap))).mul(V::splat(cap));
            }
            if at < from || at + V::LANES > to {
                let hidden = V::splat(f32::NEG_INFINITY);
                score = score.keep(from.saturating_sub(at), to - at, hidden);
            }
            score.store(scores.add(at));
            largest = largest.max(score);
        }
        let max = largest.largest();
        let shift = V::splat(max);
        let mut sum = zero;
        for at in (first..last).step_by(V::LANES) {
            let weight = exp(V::load(scores.add(at)).sub(shift));
            weight.store(scores.add(at));
            sum = sum.add(weight);
        }
        for at in (0..first).chain(last..n).step_by(V::LANES) {
            zero.store(scores.add(at));
        }
        (max, sum.sum())
    }
}
