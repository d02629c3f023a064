//! Ternary blocks: the scale is the largest magnitude, so only tensors that are ternary already
//! survive the trip unchanged.

use super::{reciprocal, signed_extreme};
use crate::le::F16Le;
use crate::weights::{BlockTq1_0, BlockTq2_0};

/// Codes 0, 1, 2 for -d, 0, d.
fn trits(values: &[f32; 256]) -> (F16Le, [u8; 256]) {
    let d = signed_extreme(values).abs();
    let inverse = reciprocal(d);
    let codes = values.map(|v| ((v * inverse).round() as i32 + 1) as u8);
    (F16Le::new(d), codes)
}

/// The byte of up to five trits taken `stride` apart, the first most significant: their base-3
/// fraction in units of 1/256, rounded up so that shifting the trits out again loses nothing.
fn pack(codes: &[u8], stride: usize) -> u8 {
    let weights = [81, 27, 9, 3, 1];
    let number: u16 = codes
        .iter()
        .step_by(stride)
        .zip(weights)
        .map(|(&t, weight)| u16::from(t) * weight)
        .sum();
    (number * 256).div_ceil(243) as u8
}

pub(super) fn tq1_0(values: &[f32; 256]) -> BlockTq1_0 {
    let (d, codes) = trits(values);
    BlockTq1_0 {
        qs: std::array::from_fn(|i| match i {
            0..32 => pack(&codes[i..160], 32),
            _ => pack(&codes[160 + i - 32..240], 16),
        }),
        qh: std::array::from_fn(|i| pack(&codes[240 + i..], 4)),
        d,
    }
}

pub(super) fn tq2_0(values: &[f32; 256]) -> BlockTq2_0 {
    let (d, codes) = trits(values);
    BlockTq2_0 {
        qs: std::array::from_fn(|i| {
            let first = 128 * (i / 32) + i % 32;
            (0..4).fold(0, |byte, g| byte | (codes[first + 32 * g] << (2 * g)))
        }),
        d,
    }
}
