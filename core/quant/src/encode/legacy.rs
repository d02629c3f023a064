//! Blocks of 32: the scale follows from the extremes.

use super::{reciprocal, signed_extreme, split_nibbles};
use crate::le::{F16Le, U32Le};
use crate::weights::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0};

/// Codes of a symmetric grid of `2 * half` levels on which the signed extreme is level 0. The
/// reciprocal of the scale is that before rounding to binary16.
fn symmetric(values: &[f32; 32], half: u8) -> (F16Le, [u8; 32]) {
    let d = signed_extreme(values) / -f32::from(half);
    let inverse = reciprocal(d);
    let codes = values.map(|v| ((v * inverse + f32::from(half) + 0.5) as u8).min(2 * half - 1));
    (F16Le::new(d), codes)
}

/// Codes of a grid of `levels + 1` levels from the minimum to the maximum.
fn affine(values: &[f32; 32], levels: u8) -> (F16Le, F16Le, [u8; 32]) {
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (max - min) / f32::from(levels);
    let inverse = reciprocal(d);
    let codes = values.map(|v| (((v - min) * inverse + 0.5) as u8).min(levels));
    (F16Le::new(d), F16Le::new(min), codes)
}

/// The fifth bits.
fn high_bits(codes: &[u8; 32]) -> U32Le {
    let bits = codes.iter().enumerate();
    U32Le::new(bits.fold(0, |bits, (i, &q)| bits | (u32::from(q >> 4) << i)))
}

pub(super) fn q4_0(values: &[f32; 32]) -> BlockQ4_0 {
    let (d, codes) = symmetric(values, 8);
    BlockQ4_0 {
        d,
        qs: split_nibbles(&codes),
    }
}

pub(super) fn q4_1(values: &[f32; 32]) -> BlockQ4_1 {
    let (d, m, codes) = affine(values, 15);
    BlockQ4_1 {
        d,
        m,
        qs: split_nibbles(&codes),
    }
}

pub(super) fn q5_0(values: &[f32; 32]) -> BlockQ5_0 {
    let (d, codes) = symmetric(values, 16);
    BlockQ5_0 {
        d,
        qh: high_bits(&codes),
        qs: split_nibbles(&codes),
    }
}

pub(super) fn q5_1(values: &[f32; 32]) -> BlockQ5_1 {
    let (d, m, codes) = affine(values, 31);
    BlockQ5_1 {
        d,
        m,
        qh: high_bits(&codes),
        qs: split_nibbles(&codes),
    }
}

pub(super) fn q8_0(values: &[f32; 32]) -> BlockQ8_0 {
    let d = signed_extreme(values).abs() / 127.0;
    let inverse = reciprocal(d);
    BlockQ8_0 {
        d: F16Le::new(d),
        qs: values.map(|v| (v * inverse).round() as i8),
    }
}
