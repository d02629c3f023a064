//! Superblocks of 256 whose groups have small integer scales under one or two fp16 ones.

use bytemuck::{Pod, Zeroable};

use super::Block;
use crate::WeightFormat;
use crate::le::{F16Le, F32Le, I16Le};

/// 16 groups of 16: `d * scale * q - dmin * min`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    /// A group's scale in the low nibble, its minimum in the high one.
    pub scales: [u8; 16],
    /// Two bits a code; byte `32 * (i / 128) + i % 32`, shift `2 * (i % 128 / 32)`.
    pub qs: [u8; 64],
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
}

/// 16 groups of 16: `d * scale * (q - 4)`, where bit 2 of `q` lies in `hmask`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// Bit `i / 32` of byte `i % 32` is the high bit of element `i`.
    pub hmask: [u8; 32],
    /// The low two bits, as in [`BlockQ2K`].
    pub qs: [u8; 64],
    /// Sixteen packed scales; see [`q3k_scale`].
    pub scales: [u8; 12],
    /// Scale of the scales.
    pub d: F16Le,
}

/// 8 groups of 32: `d * scale * q - dmin * min`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
    /// Eight packed scales and minima; see [`scale_min`].
    pub scales: [u8; 12],
    /// Nibbles; byte `32 * (i / 64) + i % 32`, the high one for odd `i / 32`.
    pub qs: [u8; 128],
}

/// 8 groups of 32: `d * scale * q - dmin * min`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    /// Scale of the scales.
    pub d: F16Le,
    /// Scale of the minima.
    pub dmin: F16Le,
    /// Eight packed scales and minima; see [`scale_min`].
    pub scales: [u8; 12],
    /// Bit `i / 32` of byte `i % 32` is the fifth bit of element `i`.
    pub qh: [u8; 32],
    /// The low four bits, as in [`BlockQ4K`].
    pub qs: [u8; 128],
}

/// 16 groups of 16: `d * scale * (q - 32)`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// The low four bits; in each half of 128, byte `64 * half + i % 64`, the high nibble from
    /// element 64 of the half on.
    pub ql: [u8; 128],
    /// The high two bits; byte `32 * half + i % 32`, shift `2 * (i % 128 / 32)`.
    pub qh: [u8; 64],
    /// Scales of the groups.
    pub scales: [i8; 16],
    /// Scale of the scales.
    pub d: F16Le,
}

/// The activation block that k-quants are multiplied with: `d * q`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8K {
    /// Scale.
    pub d: F32Le,
    /// Codes.
    pub qs: [i8; 256],
    /// Sums of the codes of each group of 16.
    pub bsums: [I16Le; 16],
}

/// The six-bit scale and minimum of group `j` (0..8) of a Q4_K or Q5_K block.
#[inline]
pub fn scale_min(scales: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        (scales[j] & 63, scales[j + 4] & 63)
    } else {
        (
            (scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4),
            (scales[j + 4] >> 4) | ((scales[j] >> 6) << 4),
        )
    }
}

/// Packs eight scales and minima, each below 64, as [`scale_min`] reads them.
pub fn scale_min_pack(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = (scales[j] & 63) | ((scales[j + 4] >> 4) << 6);
        packed[j + 4] = (mins[j] & 63) | ((mins[j + 4] >> 4) << 6);
        packed[j + 8] = (scales[j + 4] & 15) | ((mins[j + 4] & 15) << 4);
    }
    packed
}

/// The scale (-32..32) of group `j` (0..16) of a Q3_K block.
#[inline]
pub fn q3k_scale(scales: &[u8; 12], j: usize) -> i8 {
    let low = (scales[j % 8] >> (4 * (j / 8))) & 15;
    let high = (scales[8 + j % 4] >> (2 * (j / 4))) & 3;
    (low | (high << 4)) as i8 - 32
}

/// Packs sixteen scales (-32..32) as [`q3k_scale`] reads them.
pub fn q3k_scales_pack(scales: &[i8; 16]) -> [u8; 12] {
    let mut packed = [0; 12];
    for (j, &scale) in scales.iter().enumerate() {
        let raw = (scale + 32) as u8;
        packed[j % 8] |= (raw & 15) << (4 * (j / 8));
        packed[8 + j % 4] |= (raw >> 4) << (2 * (j / 4));
    }
    packed
}

/// Two-bit code of element `i` in Q2_K and Q3_K.
fn two_bits(qs: &[u8; 64], i: usize) -> u8 {
    (qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3
}

/// Four-bit code of element `i` in Q4_K and Q5_K.
fn four_bits(qs: &[u8; 128], i: usize) -> u8 {
    (qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2))) & 15
}

/// Bit of element `i` in a mask of 32 bytes, one bit plane a group of 32.
fn plane_bit(mask: &[u8; 32], i: usize) -> u8 {
    (mask[i % 32] >> (i / 32)) & 1
}

impl Block for BlockQ2K {
    const FORMAT: WeightFormat = WeightFormat::Q2_K;

    fn decode(&self, out: &mut [f32]) {
        let (d, dmin) = (self.d.get(), self.dmin.get());
        for i in 0..256 {
            let packed = self.scales[i / 16];
            let scale = d * f32::from(packed & 15);
            let min = dmin * f32::from(packed >> 4);
            out[i] = scale * f32::from(two_bits(&self.qs, i)) - min;
        }
    }
}

impl Block for BlockQ3K {
    const FORMAT: WeightFormat = WeightFormat::Q3_K;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..256 {
            let scale = d * f32::from(q3k_scale(&self.scales, i / 16));
            let q = two_bits(&self.qs, i) | (plane_bit(&self.hmask, i) << 2);
            out[i] = scale * (i32::from(q) - 4) as f32;
        }
    }
}

impl Block for BlockQ4K {
    const FORMAT: WeightFormat = WeightFormat::Q4_K;

    fn decode(&self, out: &mut [f32]) {
        let (d, dmin) = (self.d.get(), self.dmin.get());
        for i in 0..256 {
            let (scale, min) = scale_min(&self.scales, i / 32);
            let q = four_bits(&self.qs, i);
            out[i] = d * f32::from(scale) * f32::from(q) - dmin * f32::from(min);
        }
    }
}

impl Block for BlockQ5K {
    const FORMAT: WeightFormat = WeightFormat::Q5_K;

    fn decode(&self, out: &mut [f32]) {
        let (d, dmin) = (self.d.get(), self.dmin.get());
        for i in 0..256 {
            let (scale, min) = scale_min(&self.scales, i / 32);
            let q = four_bits(&self.qs, i) | (plane_bit(&self.qh, i) << 4);
            out[i] = d * f32::from(scale) * f32::from(q) - dmin * f32::from(min);
        }
    }
}

impl Block for BlockQ6K {
    const FORMAT: WeightFormat = WeightFormat::Q6_K;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..256 {
            let low = (self.ql[64 * (i / 128) + i % 64] >> (4 * (i % 128 / 64))) & 15;
            let high = (self.qh[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
            let scale = d * f32::from(self.scales[i / 16]);
            out[i] = scale * (i32::from(low | (high << 4)) - 32) as f32;
        }
    }
}

impl Block for BlockQ8K {
    const FORMAT: WeightFormat = WeightFormat::Q8_K;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..256 {
            out[i] = d * f32::from(self.qs[i]);
        }
    }
}
