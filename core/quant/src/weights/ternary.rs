//! Ternary weights, 256 a block: `d * (t - 1)`.

use bytemuck::{Pod, Zeroable};

use super::Block;
use crate::WeightFormat;
use crate::le::F16Le;

/// Five trits a byte, stored as a base-3 fraction of 256 so that multiplying by 3 shifts them out.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTq1_0 {
    /// 240 trits: trit `i / 32` of byte `i % 32` for `i < 160`, then trit `(i - 160) / 16` of byte
    /// `32 + (i - 160) % 16`.
    pub qs: [u8; 48],
    /// The last 16, four trits a byte: trit `(i - 240) / 4` of byte `(i - 240) % 4`.
    pub qh: [u8; 4],
    /// Scale.
    pub d: F16Le,
}

/// Two bits a code, laid out as in Q2_K.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockTq2_0 {
    /// Byte `32 * (i / 128) + i % 32`, shift `2 * (i % 128 / 32)`.
    pub qs: [u8; 64],
    /// Scale.
    pub d: F16Le,
}

/// Trit `n` (0..5), the most significant first.
fn trit(byte: u8, n: usize) -> u8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as u8
}

impl Block for BlockTq1_0 {
    const FORMAT: WeightFormat = WeightFormat::TQ1_0;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..256 {
            let t = match i {
                0..160 => trit(self.qs[i % 32], i / 32),
                160..240 => trit(self.qs[32 + i % 16], (i - 160) / 16),
                _ => trit(self.qh[i % 4], (i - 240) / 4),
            };
            out[i] = d * (i32::from(t) - 1) as f32;
        }
    }
}

impl Block for BlockTq2_0 {
    const FORMAT: WeightFormat = WeightFormat::TQ2_0;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..256 {
            let t = (self.qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3;
            out[i] = d * (i32::from(t) - 1) as f32;
        }
    }
}
