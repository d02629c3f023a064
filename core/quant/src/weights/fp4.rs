//! FP4 (E2M1) codes under a small float scale.
//!
//! The codes are read through a table of doubled integers, and the scale is halved to make up.

use bytemuck::{Pod, Zeroable};

use super::{Block, split_nibble};
use crate::WeightFormat;
use crate::small_float::ue4m3_decode;

/// Twice the E2M1 value of each code.
pub const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// 32 codes, one E8M0 scale.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    /// E8M0 scale.
    pub e: u8,
    /// Nibbles: low ones are elements 0..16, high ones 16..32.
    pub qs: [u8; 16],
}

/// 64 codes, one UE4M3 scale each 16. The tensor's second-level scale is a separate tensor.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockNvfp4 {
    /// UE4M3 scales.
    pub d: [u8; 4],
    /// Nibbles: in each group of 16, bytes of 8, low nibbles first.
    pub qs: [u8; 32],
}

/// Half of an E8M0 scale, `2^(e - 128)`. The NaN code 255 reads as `2^127`.
pub fn e8m0_half(e: u8) -> f32 {
    if e < 2 {
        f32::from_bits(0x0020_0000 << e)
    } else {
        f32::from_bits((u32::from(e) - 1) << 23)
    }
}

/// Half of an NVFP4 scale. The NaN code reads as zero and the top bit is not looked at (so that
/// `0xFF` is an ordinary number), as in the `gguf` package; [`check_scales`](crate::check_scales)
/// refuses both.
pub fn ue4m3_half(d: u8) -> f32 {
    match d {
        0x7F => 0.0,
        0xFF => 240.0,
        d => ue4m3_decode(d) * 0.5,
    }
}

impl Block for BlockMxfp4 {
    const FORMAT: WeightFormat = WeightFormat::MXFP4;

    fn decode(&self, out: &mut [f32]) {
        let d = e8m0_half(self.e);
        for i in 0..32 {
            out[i] = d * f32::from(E2M1_DOUBLED[usize::from(split_nibble(&self.qs, i))]);
        }
    }
}

impl Block for BlockNvfp4 {
    const FORMAT: WeightFormat = WeightFormat::NVFP4;

    fn decode(&self, out: &mut [f32]) {
        for i in 0..64 {
            let (group, r) = (i / 16, i % 16);
            let q = (self.qs[8 * group + r % 8] >> (4 * (r / 8))) & 15;
            out[i] = ue4m3_half(self.d[group]) * f32::from(E2M1_DOUBLED[usize::from(q)]);
        }
    }
}
