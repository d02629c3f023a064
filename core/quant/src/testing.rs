//! Random valid tensors for the tests of this crate and of those above it.

use bytemuck::{bytes_of, cast_slice_mut};

use crate::WeightFormat;
use crate::le::{F16Le, F32Le, I16Le, U16Le};
use crate::small_float::bf16_encode;
use crate::weights::*;

/// A small deterministic generator (SplitMix64), the same on every platform.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Uniform in `[low, high)`.
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.bits() >> 40) as f32 / (1u64 << 24) as f32)
    }

    /// Standard normal (Irwin-Hall sum of twelve uniforms, so never beyond 6).
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform(0.0, 1.0)).sum::<f32>() - 6.0
    }
}

/// `n_blocks` blocks of a format with random codes and finite scales, so that values stay within
/// about one in magnitude: every code, grid row and sign pattern occurs, scales of both signs too.
/// Derived fields (the sums of Q8_1 and Q8_K) agree with the codes. Integer formats hold any value.
pub fn random_blocks(format: WeightFormat, n_blocks: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed ^ (u64::from(format.ggml_id()) << 56));
    let mut bytes = vec![0; n_blocks * format.block().bytes];
    for byte in &mut bytes {
        *byte = random.bits() as u8;
    }
    for block in bytes.chunks_exact_mut(format.block().bytes) {
        make_valid(format, block, &mut random);
    }
    bytes
}

/// A scale that puts a code of magnitude `largest` between a quarter and one, of either sign.
fn scale(largest: f32, random: &mut Random) -> F16Le {
    let magnitude = random.uniform(0.25, 1.0) / largest;
    F16Le::new(if random.bits() & 1 == 0 {
        magnitude
    } else {
        -magnitude
    })
}

/// Replaces what random bytes must not hold.
fn make_valid(format: WeightFormat, bytes: &mut [u8], random: &mut Random) {
    macro_rules! set_scales {
        ($block:ty, $($field:ident: $largest:expr),+) => {{
            let block = &mut cast_slice_mut::<u8, $block>(bytes)[0];
            $(block.$field = scale($largest, random);)+
        }};
    }
    match format {
        WeightFormat::I8 | WeightFormat::I16 | WeightFormat::I32 | WeightFormat::I64 => {}
        WeightFormat::F32 => {
            bytes.copy_from_slice(&random.uniform(-1.0, 1.0).to_le_bytes());
        }
        WeightFormat::F64 => {
            bytes.copy_from_slice(&f64::from(random.uniform(-1.0, 1.0)).to_le_bytes());
        }
        WeightFormat::F16 => {
            bytes.copy_from_slice(bytes_of(&F16Le::new(random.uniform(-1.0, 1.0))));
        }
        WeightFormat::BF16 => {
            let code = bf16_encode(random.uniform(-1.0, 1.0));
            bytes.copy_from_slice(&code.to_le_bytes());
        }
        WeightFormat::Q4_0 => set_scales!(BlockQ4_0, d: 8.0),
        WeightFormat::Q4_1 => set_scales!(BlockQ4_1, d: 15.0, m: 1.0),
        WeightFormat::Q5_0 => set_scales!(BlockQ5_0, d: 16.0),
        WeightFormat::Q5_1 => set_scales!(BlockQ5_1, d: 31.0, m: 1.0),
        WeightFormat::Q8_0 => set_scales!(BlockQ8_0, d: 128.0),
        WeightFormat::Q8_1 => {
            let block = &mut cast_slice_mut::<u8, BlockQ8_1>(bytes)[0];
            block.d = scale(128.0, random);
            let sum: i32 = block.qs.iter().map(|&q| i32::from(q)).sum();
            block.s = F16Le::new(block.d.get() * sum as f32);
        }
        WeightFormat::Q2_K => set_scales!(BlockQ2K, d: 45.0, dmin: 15.0),
        WeightFormat::Q3_K => set_scales!(BlockQ3K, d: 128.0),
        WeightFormat::Q4_K => set_scales!(BlockQ4K, d: 945.0, dmin: 63.0),
        WeightFormat::Q5_K => set_scales!(BlockQ5K, d: 1953.0, dmin: 63.0),
        WeightFormat::Q6_K => set_scales!(BlockQ6K, d: 4096.0),
        WeightFormat::Q8_K => {
            let block = &mut cast_slice_mut::<u8, BlockQ8K>(bytes)[0];
            block.d = F32Le::new(scale(128.0, random).get());
            for (sum, codes) in block.bsums.iter_mut().zip(block.qs.chunks_exact(16)) {
                *sum = I16Le::new(codes.iter().map(|&q| i16::from(q)).sum());
            }
        }
        WeightFormat::IQ2_XXS => set_scales!(BlockIq2Xxs, d: 167.0),
        WeightFormat::IQ2_XS => set_scales!(BlockIq2Xs, d: 167.0),
        WeightFormat::IQ2_S => set_scales!(BlockIq2S, d: 167.0),
        WeightFormat::IQ3_XXS => set_scales!(BlockIq3Xxs, d: 481.0),
        WeightFormat::IQ3_S => set_scales!(BlockIq3S, d: 465.0),
        WeightFormat::IQ1_S => set_scales!(BlockIq1S, d: 17.0),
        WeightFormat::IQ1_M => {
            let d = u16::from_le_bytes(bytemuck::cast(scale(17.0, random)));
            let block = &mut cast_slice_mut::<u8, BlockIq1M>(bytes)[0];
            for (i, field) in block.scales.iter_mut().enumerate() {
                let nibble = (d >> (4 * i)) & 15;
                *field = U16Le::new((field.get() & 0x0FFF) | (nibble << 12));
            }
        }
        WeightFormat::IQ4_NL => set_scales!(BlockIq4Nl, d: 127.0),
        WeightFormat::IQ4_XS => set_scales!(BlockIq4Xs, d: 4064.0),
        WeightFormat::TQ1_0 => {
            let block = &mut cast_slice_mut::<u8, BlockTq1_0>(bytes)[0];
            for byte in &mut block.qs {
                *byte = trits_byte(random.below(243));
            }
            for byte in &mut block.qh {
                *byte = trits_byte(3 * random.below(81));
            }
            block.d = scale(1.0, random);
        }
        WeightFormat::TQ2_0 => set_scales!(BlockTq2_0, d: 2.0),
        WeightFormat::MXFP4 => bytes[0] = 120 + random.below(5) as u8,
        WeightFormat::NVFP4 => {
            for scale in &mut bytes[..4] {
                *scale = 0x08 + random.below(0x18) as u8;
            }
        }
        WeightFormat::Q1_0 => set_scales!(BlockQ1_0, d: 1.0),
        WeightFormat::Q2_0 => set_scales!(BlockQ2_0, d: 2.0),
    }
}

/// The TQ1_0 byte of five trits, given as a number below 243.
fn trits_byte(number: usize) -> u8 {
    (number * 256).div_ceil(243) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_blocks_are_repeatable_and_moderate() {
        for &format in WeightFormat::ALL {
            let bytes = random_blocks(format, 50, 7);
            assert_eq!(bytes, random_blocks(format, 50, 7));
            assert_ne!(bytes, random_blocks(format, 50, 8));
            let mut values = vec![0.0; 50 * format.block().elements];
            crate::decode(format, &bytes, &mut values).expect("whole blocks");
            assert!(values.iter().all(|v| v.is_finite()), "{format}");
            let largest = values.iter().fold(0f32, |a, v| a.max(v.abs()));
            let integer = matches!(
                format,
                WeightFormat::I8 | WeightFormat::I16 | WeightFormat::I32 | WeightFormat::I64
            );
            assert!(
                integer || (0.05..=2.1).contains(&largest),
                "{format} {largest}"
            );
        }
    }
}
