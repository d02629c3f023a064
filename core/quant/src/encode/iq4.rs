//! Blocks whose codes index the sixteen uneven levels of [`IQ4_VALUES`].

use super::search::{BestFit, Fit};
use super::{EPSILON, nearest, reciprocal, signed_extreme, split_nibbles};
use crate::le::{F16Le, U16Le};
use crate::weights::{BlockIq4Nl, BlockIq4Xs, IQ4_VALUES};

/// Index of the nearest level; of two equally near ones the upper.
fn nearest_level(x: f32) -> u8 {
    let above = IQ4_VALUES.partition_point(|&level| f32::from(level) <= x);
    let Some(below) = above.checked_sub(1) else {
        return 0;
    };
    match IQ4_VALUES.get(above) {
        Some(&upper) if x - f32::from(IQ4_VALUES[below]) >= f32::from(upper) - x => above as u8,
        _ => below as u8,
    }
}

/// Scale of a group of 32: spreads are tried around those that put the signed extreme on the last
/// and on the first level.
fn search_scale(values: &[f32; 32]) -> f32 {
    const TRIALS: i8 = 7;
    let extreme = signed_extreme(values);
    if extreme.abs() < EPSILON {
        return 0.0;
    }
    let lowest = f32::from(IQ4_VALUES[0]);
    let fit = |inverse: f32| {
        Fit::new(values, |x| {
            let q = f32::from(IQ4_VALUES[usize::from(nearest_level(inverse * x))]);
            let w = x * x;
            // Not the order of the k-quant searches: it decides which of two near trials wins.
            (w * q * x, w * q * q)
        })
    };
    let mut best = BestFit::new(fit(1.0 / (-extreme / lowest)));
    for trial in -TRIALS..=TRIALS {
        best.offer(fit((f32::from(trial) + lowest) / extreme));
    }
    best.scale
}

pub(super) fn iq4_nl(values: &[f32; 32]) -> BlockIq4Nl {
    let d = search_scale(values);
    let inverse = reciprocal(d);
    BlockIq4Nl {
        d: F16Le::new(d),
        qs: split_nibbles(&values.map(|x| nearest_level(inverse * x))),
    }
}

pub(super) fn iq4_xs(values: &[f32; 256]) -> BlockIq4Xs {
    let (groups, _) = values.as_chunks::<32>();
    let scales: [f32; 8] = std::array::from_fn(|k| search_scale(&groups[k]));
    let d = -signed_extreme(&scales) / 32.0;
    let inverse = reciprocal(d);
    let (mut scales_h, mut scales_l, mut qs) = (0, [0; 4], [0; 128]);
    for k in 0..8 {
        let scale = nearest(inverse * scales[k]).clamp(-32, 31);
        let group_inverse = reciprocal(d * scale as f32);
        let codes = groups[k].map(|x| nearest_level(group_inverse * x));
        qs[16 * k..16 * k + 16].copy_from_slice(&split_nibbles(&codes));
        let raw = (scale + 32) as u16;
        scales_l[k / 2] |= ((raw & 15) as u8) << (4 * (k % 2));
        scales_h |= (raw >> 4) << (2 * k);
    }
    BlockIq4Xs {
        d: F16Le::new(d),
        scales_h: U16Le::new(scales_h),
        scales_l,
        qs,
    }
}
