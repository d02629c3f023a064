//! Decoders of the formats that no public package decodes, against formulas written out here, and
//! the packed fields against published examples.

use kvant_quant::testing::random_blocks;
use kvant_quant::weights::{q3k_scale, q3k_scales_pack, scale_min, scale_min_pack, sign_mask};
use kvant_quant::{QuantError, WeightFormat, decode};
use proptest::prelude::*;

/// Checks every element of random blocks against `value(block, element)`.
fn check(format: WeightFormat, value: impl Fn(&[u8], usize) -> f32) {
    let bytes = random_blocks(format, 40, 1);
    let mut out = vec![f32::NAN; 40 * format.block().elements];
    decode(format, &bytes, &mut out).expect("whole blocks");
    for (i, actual) in out.iter().enumerate() {
        let (block, element) = (i / format.block().elements, i % format.block().elements);
        let size = format.block().bytes;
        let expected = value(&bytes[block * size..(block + 1) * size], element);
        assert_eq!(
            *actual, expected,
            "{format} block {block} element {element}"
        );
    }
}

fn f16(bytes: &[u8]) -> f32 {
    half::f16::from_bits(u16::from(bytes[0]) | (u16::from(bytes[1]) << 8)).to_f32()
}

#[test]
fn eight_bit_activation_blocks() {
    check(WeightFormat::Q8_1, |block, i| {
        f16(block) * f32::from(block[4 + i] as i8)
    });
    check(WeightFormat::Q8_K, |block, i| {
        let d = f32::from_bits((0..4).fold(0, |bits, j| bits | (u32::from(block[j]) << (8 * j))));
        d * f32::from(block[4 + i] as i8)
    });
}

#[test]
fn one_and_two_bit_blocks() {
    check(WeightFormat::Q1_0, |block, i| {
        let bits = (0..16).fold(0u128, |bits, j| {
            bits | (u128::from(block[2 + j]) << (8 * j))
        });
        f16(block) * if bits >> i & 1 == 1 { 1.0 } else { -1.0 }
    });
    check(WeightFormat::Q2_0, |block, i| {
        let bits = (0..16).fold(0u128, |bits, j| {
            bits | (u128::from(block[2 + j]) << (8 * j))
        });
        f16(block) * [-1.0, 0.0, 1.0, 2.0][(bits >> (2 * i) & 3) as usize]
    });
}

#[test]
fn plain_integers_and_doubles() {
    fn bits(bytes: &[u8]) -> u64 {
        bytes
            .iter()
            .rev()
            .fold(0, |bits, &b| (bits << 8) | u64::from(b))
    }
    check(WeightFormat::I8, |b, _| f32::from(bits(b) as i8));
    check(WeightFormat::I16, |b, _| f32::from(bits(b) as i16));
    check(WeightFormat::I32, |b, _| bits(b) as i32 as f32);
    check(WeightFormat::I64, |b, _| bits(b) as i64 as f32);
    check(WeightFormat::F64, |b, _| f64::from_bits(bits(b)) as f32);
}

#[test]
fn packed_scales_of_published_examples() {
    let scales = [10, 20, 30, 40, 50, 60, 17, 63];
    let mins = [1, 2, 3, 4, 33, 48, 5, 63];
    let packed = [
        0xCA, 0xD4, 0x5E, 0xE8, 0x81, 0xC2, 0x03, 0xC4, 0x12, 0x0C, 0x51, 0xFF,
    ];
    assert_eq!(scale_min_pack(&scales, &mins), packed);
    let raw = [0, 1, 2, 3, 31, 32, 33, 63, 5, 6, 7, 8, 20, 40, 50, 60];
    let packed = [
        0x50, 0x61, 0x72, 0x83, 0x4F, 0x80, 0x21, 0xCF, 0x44, 0x88, 0xC8, 0xCC,
    ];
    assert_eq!(q3k_scales_pack(&raw.map(|s: i8| s - 32)), packed);
}

proptest! {
    #[test]
    fn packed_scales_come_back(scales: [u8; 8], mins: [u8; 8], q3k: [u8; 16]) {
        let (scales, mins) = (scales.map(|s| s % 64), mins.map(|m| m % 64));
        let packed = scale_min_pack(&scales, &mins);
        for j in 0..8 {
            prop_assert_eq!(scale_min(&packed, j), (scales[j], mins[j]));
        }
        let q3k = q3k.map(|s| (s % 64) as i8 - 32);
        let packed = q3k_scales_pack(&q3k);
        for j in 0..16 {
            prop_assert_eq!(q3k_scale(&packed, j), q3k[j]);
        }
    }
}

#[test]
fn sign_masks_are_even_and_start_with_the_index() {
    for index in 0..128 {
        let mask = sign_mask(index);
        assert_eq!(mask & 127, index);
        assert_eq!(mask.count_ones() % 2, 0);
    }
}

#[test]
fn lengths_are_checked() {
    for &format in WeightFormat::ALL {
        let block = format.block();
        let bytes = vec![0; 3 * block.bytes];
        let mut out = vec![0.0; 4 * block.elements];
        assert_eq!(
            decode(format, &bytes, &mut out[..3 * block.elements]),
            Ok(())
        );
        assert_eq!(
            decode(format, &bytes, &mut out),
            Err(QuantError::LengthMismatch {
                format,
                bytes: 3 * block.bytes,
                elements: 4 * block.elements
            })
        );
        if block.bytes > 1 {
            assert_eq!(
                decode(format, &bytes[1..], &mut out),
                Err(QuantError::PartialBlock {
                    format,
                    bytes: 3 * block.bytes - 1
                })
            );
        }
        if block.elements > 1 {
            let elements = 3 * block.elements - 1;
            assert_eq!(
                decode(format, &bytes, &mut out[1..3 * block.elements]),
                Err(QuantError::PartialElements { format, elements })
            );
        }
    }
}
