//! One and two bits a weight under one scale.

use bytemuck::{Pod, Zeroable};

use super::Block;
use crate::WeightFormat;
use crate::le::F16Le;

/// 128 signs: `+d` for a set bit, else `-d`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ1_0 {
    /// Scale.
    pub d: F16Le,
    /// Bit `i % 8` of byte `i / 8`.
    pub qs: [u8; 16],
}

/// 64 codes: `d * (q - 1)`, hence -1, 0, 1 or 2 times the scale.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2_0 {
    /// Scale.
    pub d: F16Le,
    /// Two bits at `2 * (i % 4)` of byte `i / 4`.
    pub qs: [u8; 16],
}

impl Block for BlockQ1_0 {
    const FORMAT: WeightFormat = WeightFormat::Q1_0;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..128 {
            out[i] = if (self.qs[i / 8] >> (i % 8)) & 1 == 1 {
                d
            } else {
                -d
            };
        }
    }
}

impl Block for BlockQ2_0 {
    const FORMAT: WeightFormat = WeightFormat::Q2_0;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..64 {
            let q = (self.qs[i / 4] >> (2 * (i % 4))) & 3;
            out[i] = d * (i32::from(q) - 1) as f32;
        }
    }
}
