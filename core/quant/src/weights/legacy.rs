//! Blocks of 32 with one scale: the first GGML quantisations and the 8-bit activation block.

use bytemuck::{Pod, Zeroable};

use super::{Block, split_nibble};
use crate::WeightFormat;
use crate::le::{F16Le, U32Le};

/// `d * (q - 8)`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// Scale.
    pub d: F16Le,
    /// Nibbles: low ones are elements 0..16, high ones 16..32.
    pub qs: [u8; 16],
}

/// `d * q + m`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    /// Scale.
    pub d: F16Le,
    /// Minimum.
    pub m: F16Le,
    /// Nibbles: low ones are elements 0..16, high ones 16..32.
    pub qs: [u8; 16],
}

/// `d * (q - 16)`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// Scale.
    pub d: F16Le,
    /// Bit `i` is the fifth bit of element `i`.
    pub qh: U32Le,
    /// Nibbles: low ones are elements 0..16, high ones 16..32.
    pub qs: [u8; 16],
}

/// `d * q + m`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// Scale.
    pub d: F16Le,
    /// Minimum.
    pub m: F16Le,
    /// Bit `i` is the fifth bit of element `i`.
    pub qh: U32Le,
    /// Nibbles: low ones are elements 0..16, high ones 16..32.
    pub qs: [u8; 16],
}

/// `d * q`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// Scale.
    pub d: F16Le,
    /// Codes.
    pub qs: [i8; 32],
}

/// `d * q`, with the sum that lets a dot product apply the other side's minimum.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_1 {
    /// Scale.
    pub d: F16Le,
    /// `d` times the sum of the codes.
    pub s: F16Le,
    /// Codes.
    pub qs: [i8; 32],
}

fn five_bits(qs: &[u8; 16], qh: u32, i: usize) -> u8 {
    split_nibble(qs, i) | (((qh >> i) & 1) << 4) as u8
}

impl Block for BlockQ4_0 {
    const FORMAT: WeightFormat = WeightFormat::Q4_0;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..32 {
            out[i] = d * (i32::from(split_nibble(&self.qs, i)) - 8) as f32;
        }
    }
}

impl Block for BlockQ4_1 {
    const FORMAT: WeightFormat = WeightFormat::Q4_1;

    fn decode(&self, out: &mut [f32]) {
        let (d, m) = (self.d.get(), self.m.get());
        for i in 0..32 {
            out[i] = d * f32::from(split_nibble(&self.qs, i)) + m;
        }
    }
}

impl Block for BlockQ5_0 {
    const FORMAT: WeightFormat = WeightFormat::Q5_0;

    fn decode(&self, out: &mut [f32]) {
        let (d, qh) = (self.d.get(), self.qh.get());
        for i in 0..32 {
            out[i] = d * (i32::from(five_bits(&self.qs, qh, i)) - 16) as f32;
        }
    }
}

impl Block for BlockQ5_1 {
    const FORMAT: WeightFormat = WeightFormat::Q5_1;

    fn decode(&self, out: &mut [f32]) {
        let (d, m, qh) = (self.d.get(), self.m.get(), self.qh.get());
        for i in 0..32 {
            out[i] = d * f32::from(five_bits(&self.qs, qh, i)) + m;
        }
    }
}

impl Block for BlockQ8_0 {
    const FORMAT: WeightFormat = WeightFormat::Q8_0;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..32 {
            out[i] = d * f32::from(self.qs[i]);
        }
    }
}

impl Block for BlockQ8_1 {
    const FORMAT: WeightFormat = WeightFormat::Q8_1;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.get();
        for i in 0..32 {
            out[i] = d * f32::from(self.qs[i]);
        }
    }
}
