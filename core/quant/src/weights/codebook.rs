//! The IQ types: codes are indices into a codebook, either of single values (IQ4) or of whole rows
//! of 8 or 4 with separate signs.
//!
//! In the layouts below `k` is a group of 32 elements, `m` a group of 8.

use bytemuck::{Pod, Zeroable};
use half::f16;

use super::{Block, grids, split_nibble};
use crate::WeightFormat;
use crate::le::{F16Le, U16Le, U32Le};

/// The sixteen levels of IQ4_NL and IQ4_XS.
pub const IQ4_VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// `IQ4_VALUES[q]` times `d`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Nl {
    /// Scale.
    pub d: F16Le,
    /// Nibbles: low ones are elements 0..16, high ones 16..32.
    pub qs: [u8; 16],
}

/// Eight groups of 32 with six-bit scales: `d * scale * IQ4_VALUES[q]`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Xs {
    /// Scale of the scales.
    pub d: F16Le,
    /// High two bits of the scales, group `k` at bit `2 * k`.
    pub scales_h: U16Le,
    /// Low four bits of the scales, two groups a byte.
    pub scales_l: [u8; 4],
    /// Sixteen bytes a group, nibbles as in [`BlockIq4Nl`].
    pub qs: [u8; 128],
}

/// A group of 32 of [`BlockIq2Xxs`].
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct GroupIq2Xxs {
    /// Rows of the grid, one each 8 elements.
    pub rows: [u8; 4],
    /// Four seven-bit sign indices, then a four-bit scale.
    pub signs_scale: U32Le,
}

/// Rows of eight from a grid of 256.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2Xxs {
    /// Scale of the scales.
    pub d: F16Le,
    /// The eight groups of 32.
    pub groups: [GroupIq2Xxs; 8],
}

/// Rows of eight from a grid of 512.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2Xs {
    /// Scale of the scales.
    pub d: F16Le,
    /// For each 8 elements: nine bits of grid row, seven of sign index.
    pub qs: [U16Le; 32],
    /// A nibble each 16 elements.
    pub scales: [u8; 8],
}

/// Rows of eight from a grid of 1024, with free signs.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq2S {
    /// Scale of the scales.
    pub d: F16Le,
    /// Low eight bits of the grid rows.
    pub qs: [u8; 32],
    /// Signs, a bit an element.
    pub signs: [u8; 32],
    /// High two bits of the grid rows, four rows a byte.
    pub qh: [u8; 8],
    /// A nibble each 16 elements.
    pub scales: [u8; 8],
}

/// Rows of four from a grid of 256.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq3Xxs {
    /// Scale of the scales.
    pub d: F16Le,
    /// Grid rows, one each 4 elements.
    pub qs: [u8; 64],
    /// For each 32 elements: four seven-bit sign indices, then a four-bit scale.
    pub signs_scales: [U32Le; 8],
}

/// Rows of four from a grid of 512, with free signs.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq3S {
    /// Scale of the scales.
    pub d: F16Le,
    /// Low eight bits of the grid rows.
    pub qs: [u8; 64],
    /// Ninth bit of the grid rows, eight rows a byte.
    pub qh: [u8; 8],
    /// Signs, a bit an element.
    pub signs: [u8; 32],
    /// A nibble each 32 elements.
    pub scales: [u8; 4],
}

/// Ternary rows of eight from a grid of 2048, shifted by an eighth.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq1S {
    /// Scale of the scales.
    pub d: F16Le,
    /// Low eight bits of the grid rows.
    pub qs: [u8; 32],
    /// For each 32 elements: four times three high bits of a grid row, a three-bit scale, and the
    /// sign of the shift.
    pub qh: [U16Le; 8],
}

/// As [`BlockIq1S`], with a scale each 16 and a shift each 8 elements.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq1M {
    /// Low eight bits of the grid rows.
    pub qs: [u8; 32],
    /// A nibble each 8 elements: three high bits of the grid row, the sign of the shift.
    pub qh: [u8; 16],
    /// Four times three bits of scale below four bits of `d`; see [`BlockIq1M::d_bits`].
    pub scales: [U16Le; 4],
}

impl BlockIq4Xs {
    /// Scale (-32..32) of group `k` (0..8).
    #[inline]
    pub fn scale(&self, k: usize) -> i8 {
        let low = (self.scales_l[k / 2] >> (4 * (k % 2))) & 15;
        let high = ((self.scales_h.get() >> (2 * k)) & 3) as u8;
        (low | (high << 4)) as i8 - 32
    }
}

impl BlockIq1M {
    /// The binary16 bits of the block's scale, which has no field of its own.
    #[inline]
    pub fn d_bits(&self) -> u16 {
        let [s0, s1, s2, s3] = self.scales.map(U16Le::get);
        (s0 >> 12) | ((s1 >> 8) & 0x00F0) | ((s2 >> 4) & 0x0F00) | (s3 & 0xF000)
    }
}

/// Sign bits of eight elements (bit set: negative) from a seven-bit index; the eighth makes the
/// number of negatives even.
#[inline]
pub fn sign_mask(index: u8) -> u8 {
    let index = index & 127;
    index | (((index.count_ones() & 1) as u8) << 7)
}

/// `scale * row`, negated where the mask has a bit set.
fn signed_row(scale: f32, row: &[i8], signs: u8, out: &mut [f32]) {
    for (j, (&value, out)) in row.iter().zip(out).enumerate() {
        let magnitude = scale * f32::from(value);
        *out = if (signs >> j) & 1 == 1 {
            -magnitude
        } else {
            magnitude
        };
    }
}

/// `scale * (row + delta)`.
fn shifted_row(scale: f32, row: &[i8; 8], delta: f32, out: &mut [f32]) {
    for (&value, out) in row.iter().zip(out) {
        *out = scale * (f32::from(value) + delta);
    }
}

fn shift(negative: bool) -> f32 {
    if negative { -0.125 } else { 0.125 }
}

impl Block for BlockIq4Nl {
    const FORMAT: WeightFormat = WeightFormat::IQ4_NL;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..32 {
            out[i] = d * f32::from(IQ4_VALUES[usize::from(split_nibble(&self.qs, i))]);
        }
    }
}

impl Block for BlockIq4Xs {
    const FORMAT: WeightFormat = WeightFormat::IQ4_XS;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..256 {
            let k = i / 32;
            let q = (self.qs[16 * k + i % 16] >> (4 * (i % 32 / 16))) & 15;
            out[i] = d * f32::from(self.scale(k)) * f32::from(IQ4_VALUES[usize::from(q)]);
        }
    }
}

impl Block for BlockIq2Xxs {
    const FORMAT: WeightFormat = WeightFormat::IQ2_XXS;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for (m, out) in out.chunks_exact_mut(8).enumerate() {
            let group = &self.groups[m / 4];
            let packed = group.signs_scale.get();
            let scale = d * (0.5 + (packed >> 28) as f32) * 0.25;
            let row = &grids::IQ2_XXS[usize::from(group.rows[m % 4])];
            let signs = sign_mask((packed >> (7 * (m % 4))) as u8);
            signed_row(scale, row, signs, out);
        }
    }
}

impl Block for BlockIq2Xs {
    const FORMAT: WeightFormat = WeightFormat::IQ2_XS;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for (m, out) in out.chunks_exact_mut(8).enumerate() {
            let packed = self.qs[m].get();
            let scale = d * (0.5 + iq2_scale(&self.scales, m)) * 0.25;
            let row = &grids::IQ2_XS[usize::from(packed & 511)];
            signed_row(scale, row, sign_mask((packed >> 9) as u8), out);
        }
    }
}

impl Block for BlockIq2S {
    const FORMAT: WeightFormat = WeightFormat::IQ2_S;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for (m, out) in out.chunks_exact_mut(8).enumerate() {
            let high = u16::from((self.qh[m / 4] >> (2 * (m % 4))) & 3);
            let row = &grids::IQ2_S[usize::from(u16::from(self.qs[m]) | (high << 8))];
            let scale = d * (0.5 + iq2_scale(&self.scales, m)) * 0.25;
            signed_row(scale, row, self.signs[m], out);
        }
    }
}

/// The scale nibble of the `m`-th 8 elements in IQ2_XS and IQ2_S.
fn iq2_scale(scales: &[u8; 8], m: usize) -> f32 {
    f32::from((scales[m / 4] >> (4 * (m % 4 / 2))) & 15)
}

impl Block for BlockIq3Xxs {
    const FORMAT: WeightFormat = WeightFormat::IQ3_XXS;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for (m, out) in out.chunks_exact_mut(8).enumerate() {
            let packed = self.signs_scales[m / 4].get();
            let scale = d * (0.5 + (packed >> 28) as f32) * 0.5;
            let signs = sign_mask((packed >> (7 * (m % 4))) as u8);
            for half in 0..2 {
                let row = &grids::IQ3_XXS[usize::from(self.qs[2 * m + half])];
                let out = &mut out[4 * half..4 * half + 4];
                signed_row(scale, row, signs >> (4 * half), out);
            }
        }
    }
}

impl Block for BlockIq3S {
    const FORMAT: WeightFormat = WeightFormat::IQ3_S;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for (r, out) in out.chunks_exact_mut(4).enumerate() {
            let high = u16::from((self.qh[r / 8] >> (r % 8)) & 1);
            let row = &grids::IQ3_S[usize::from(u16::from(self.qs[r]) | (high << 8))];
            let k = r / 8;
            let nibble = (self.scales[k / 2] >> (4 * (k % 2))) & 15;
            let scale = d * f32::from(1 + 2 * nibble);
            signed_row(scale, row, self.signs[r / 2] >> (4 * (r % 2)), out);
        }
    }
}

impl Block for BlockIq1S {
    const FORMAT: WeightFormat = WeightFormat::IQ1_S;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for (m, out) in out.chunks_exact_mut(8).enumerate() {
            let qh = self.qh[m / 4].get();
            let scale = d * f32::from(2 * ((qh >> 12) & 7) + 1);
            let high = (qh >> (3 * (m % 4))) & 7;
            let row = &grids::IQ1[usize::from(u16::from(self.qs[m]) | (high << 8))];
            shifted_row(scale, row, shift(qh & 0x8000 != 0), out);
        }
    }
}

impl Block for BlockIq1M {
    const FORMAT: WeightFormat = WeightFormat::IQ1_M;

    fn decode(&self, out: &mut [f32]) {
        let d = f16::from_bits(self.d_bits()).to_f32();
        for (m, out) in out.chunks_exact_mut(8).enumerate() {
            let nibble = u16::from((self.qh[m / 2] >> (4 * (m % 2))) & 15);
            let three_bits = (self.scales[m / 8].get() >> (3 * (m % 8 / 2))) & 7;
            let scale = d * f32::from(2 * three_bits + 1);
            let row = &grids::IQ1[usize::from(u16::from(self.qs[m]) | ((nibble & 7) << 8))];
            shifted_row(scale, row, shift(nibble & 8 != 0), out);
        }
    }
}
