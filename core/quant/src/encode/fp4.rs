//! MXFP4 by the scale rule of the OCP MX specification: the power of two that puts the largest
//! magnitude between 4 and 8 scales, where everything above 6 becomes 6.

use super::{signed_extreme, split_nibbles};
use crate::weights::{BlockMxfp4, E2M1_DOUBLED, e8m0_half};

pub(super) fn mxfp4(values: &[f32; 32]) -> BlockMxfp4 {
    // The biased exponent of a float is its floored logarithm; that of a subnormal reads as 0,
    // like the smallest scale.
    let exponent = signed_extreme(values).abs().to_bits() >> 23;
    let e = exponent.saturating_sub(2) as u8;
    let half = e8m0_half(e);
    BlockMxfp4 {
        e,
        qs: split_nibbles(&values.map(|v| nearest_code(half, v))),
    }
}

/// Code of the nearest value, the first of equally near ones.
fn nearest_code(half_scale: f32, value: f32) -> u8 {
    let mut best = (0, f32::INFINITY);
    for (code, &doubled) in E2M1_DOUBLED.iter().enumerate() {
        let error = (half_scale * f32::from(doubled) - value).abs();
        if error < best.1 {
            best = (code as u8, error);
        }
    }
    best.0
}
