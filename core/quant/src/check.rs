//! The check that every weight passes once, before anything is computed with it.

use crate::WeightFormat;
use crate::error::{QuantError, blocks_in_bytes};

/// Finds the first block with a scale, or the first float, that is not a finite number.
///
/// A scale is also refused when its bits are no valid scale although some decoders give them a
/// value: MXFP4 exponents from 253 on, whose codes may overflow `f32`, and NVFP4 scales with the
/// sign bit set. Integer formats hold nothing to refuse. Only the scales are read, never the codes.
///
/// # Errors
/// [`QuantError::InvalidScale`] or [`QuantError::NonFiniteValue`] with the place,
/// [`QuantError::PartialBlock`] when `bytes` are not whole blocks.
pub fn check_scales(format: WeightFormat, bytes: &[u8]) -> Result<(), QuantError> {
    blocks_in_bytes(format, bytes.len())?;
    let found = match format {
        WeightFormat::I8 | WeightFormat::I16 | WeightFormat::I32 | WeightFormat::I64 => None,
        WeightFormat::F32 => find(bytes, |b: &[u8; 4]| !finite32(b)),
        WeightFormat::F64 => find(bytes, |b: &[u8; 8]| !f64::from_le_bytes(*b).is_finite()),
        WeightFormat::F16 => find(bytes, |b: &[u8; 2]| !finite16(b, 0)),
        WeightFormat::BF16 => find(bytes, |b: &[u8; 2]| {
            u16::from_le_bytes(*b) & 0x7F80 == 0x7F80
        }),
        WeightFormat::Q4_0 | WeightFormat::IQ4_NL | WeightFormat::Q1_0 | WeightFormat::Q2_0 => {
            find(bytes, |b: &[u8; 18]| !finite16(b, 0))
        }
        WeightFormat::Q4_1 => find(bytes, |b: &[u8; 20]| !finite16(b, 0) | !finite16(b, 2)),
        WeightFormat::Q5_0 => find(bytes, |b: &[u8; 22]| !finite16(b, 0)),
        WeightFormat::Q5_1 => find(bytes, |b: &[u8; 24]| !finite16(b, 0) | !finite16(b, 2)),
        WeightFormat::Q8_0 => find(bytes, |b: &[u8; 34]| !finite16(b, 0)),
        WeightFormat::Q8_1 => find(bytes, |b: &[u8; 36]| !finite16(b, 0) | !finite16(b, 2)),
        WeightFormat::Q2_K => find(bytes, |b: &[u8; 84]| !finite16(b, 80) | !finite16(b, 82)),
        WeightFormat::Q3_K => find(bytes, |b: &[u8; 110]| !finite16(b, 108)),
        WeightFormat::Q4_K => find(bytes, |b: &[u8; 144]| !finite16(b, 0) | !finite16(b, 2)),
        WeightFormat::Q5_K => find(bytes, |b: &[u8; 176]| !finite16(b, 0) | !finite16(b, 2)),
        WeightFormat::Q6_K => find(bytes, |b: &[u8; 210]| !finite16(b, 208)),
        WeightFormat::Q8_K => find(bytes, |b: &[u8; 292]| !finite32(b)),
        WeightFormat::IQ2_XXS => find(bytes, |b: &[u8; 66]| !finite16(b, 0)),
        WeightFormat::IQ2_XS => find(bytes, |b: &[u8; 74]| !finite16(b, 0)),
        WeightFormat::IQ2_S => find(bytes, |b: &[u8; 82]| !finite16(b, 0)),
        WeightFormat::IQ3_XXS => find(bytes, |b: &[u8; 98]| !finite16(b, 0)),
        WeightFormat::IQ3_S => find(bytes, |b: &[u8; 110]| !finite16(b, 0)),
        WeightFormat::IQ1_S => find(bytes, |b: &[u8; 50]| !finite16(b, 0)),
        // Bits 10..15 of the scale are the top two of the third field and the next to the top
        // three of the fourth.
        WeightFormat::IQ1_M => find(bytes, |b: &[u8; 56]| {
            (b[53] & 0xC0 == 0xC0) & (b[55] & 0x70 == 0x70)
        }),
        WeightFormat::IQ4_XS => find(bytes, |b: &[u8; 136]| !finite16(b, 0)),
        WeightFormat::TQ1_0 => find(bytes, |b: &[u8; 54]| !finite16(b, 52)),
        WeightFormat::TQ2_0 => find(bytes, |b: &[u8; 66]| !finite16(b, 64)),
        WeightFormat::MXFP4 => find(bytes, |b: &[u8; 17]| b[0] >= 253),
        WeightFormat::NVFP4 => find(bytes, |b: &[u8; 36]| {
            (b[0] >= 0x7F) | (b[1] >= 0x7F) | (b[2] >= 0x7F) | (b[3] >= 0x7F)
        }),
    };
    match found {
        None => Ok(()),
        Some(index) if format.block().elements == 1 => {
            Err(QuantError::NonFiniteValue { format, index })
        }
        Some(block) => Err(QuantError::InvalidScale { format, block }),
    }
}

/// Index of the first block that is bad. Whole batches are folded without a branch inside, which
/// the compiler turns into vector code for the float formats.
fn find<const BYTES: usize>(bytes: &[u8], bad: impl Fn(&[u8; BYTES]) -> bool) -> Option<usize> {
    const BATCH: usize = 256;
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    for (batch, blocks) in blocks.chunks(BATCH).enumerate() {
        if blocks.iter().fold(false, |any, block| any | bad(block)) {
            return blocks.iter().position(&bad).map(|i| batch * BATCH + i);
        }
    }
    None
}

/// Whether the binary16 at `offset` is finite: its exponent is not all ones.
fn finite16<const BYTES: usize>(block: &[u8; BYTES], offset: usize) -> bool {
    block[offset + 1] & 0x7C != 0x7C
}

/// Whether the `f32` at the start is finite.
fn finite32<const BYTES: usize>(block: &[u8; BYTES]) -> bool {
    let bits = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    bits & 0x7F80_0000 != 0x7F80_0000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random_blocks;

    /// Where a format keeps binary16 scales, from the layouts.
    fn f16_offsets(format: WeightFormat) -> &'static [usize] {
        match format {
            WeightFormat::Q4_1 | WeightFormat::Q5_1 | WeightFormat::Q8_1 => &[0, 2],
            WeightFormat::Q4_K | WeightFormat::Q5_K => &[0, 2],
            WeightFormat::Q2_K => &[80, 82],
            WeightFormat::Q3_K => &[108],
            WeightFormat::Q6_K => &[208],
            WeightFormat::TQ1_0 => &[52],
            WeightFormat::TQ2_0 => &[64],
            WeightFormat::F16
            | WeightFormat::Q4_0
            | WeightFormat::Q5_0
            | WeightFormat::Q8_0
            | WeightFormat::IQ2_XXS
            | WeightFormat::IQ2_XS
            | WeightFormat::IQ2_S
            | WeightFormat::IQ3_XXS
            | WeightFormat::IQ3_S
            | WeightFormat::IQ1_S
            | WeightFormat::IQ4_NL
            | WeightFormat::IQ4_XS
            | WeightFormat::Q1_0
            | WeightFormat::Q2_0 => &[0],
            _ => &[],
        }
    }

    /// Sets bytes of block `block` and gives what the check then says of 700 blocks.
    fn spoiled(
        format: WeightFormat,
        block: usize,
        offset: usize,
        value: &[u8],
    ) -> Result<(), QuantError> {
        let mut bytes = random_blocks(format, 700, 3);
        let start = block * format.block().bytes + offset;
        bytes[start..start + value.len()].copy_from_slice(value);
        check_scales(format, &bytes)
    }

    fn expected(format: WeightFormat, block: usize) -> Result<(), QuantError> {
        Err(if format.block().elements == 1 {
            QuantError::NonFiniteValue {
                format,
                index: block,
            }
        } else {
            QuantError::InvalidScale { format, block }
        })
    }

    #[test]
    fn good_tensors_pass() {
        for &format in WeightFormat::ALL {
            let bytes = random_blocks(format, 700, 3);
            assert_eq!(check_scales(format, &bytes), Ok(()));
            assert_eq!(check_scales(format, &[]), Ok(()));
        }
    }

    #[test]
    fn bad_binary16_scales_are_named() {
        for &format in WeightFormat::ALL {
            for &offset in f16_offsets(format) {
                for bits in [0x7C00u16, 0xFC00, 0x7C01, 0x7E00, 0xFFFF] {
                    for block in [0, 255, 256, 699] {
                        let found = spoiled(format, block, offset, &bits.to_le_bytes());
                        assert_eq!(found, expected(format, block));
                    }
                }
                let largest = 0x7BFFu16.to_le_bytes();
                assert_eq!(spoiled(format, 5, offset, &largest), Ok(()));
            }
        }
    }

    #[test]
    fn other_bad_scales_are_named() {
        let bad32 = f32::NEG_INFINITY.to_le_bytes();
        let bad_bf16 = 0x7FC0u16.to_le_bytes();
        // The fields of IQ1_M whose high nibbles, the first one lowest, make up 0x7C00.
        let iq1_m = [0x00, 0x00, 0x00, 0x00, 0x00, 0xC0, 0x00, 0x70];
        let cases: [(WeightFormat, usize, &[u8]); 8] = [
            (WeightFormat::F32, 0, &bad32),
            (WeightFormat::F64, 0, &f64::NAN.to_le_bytes()),
            (WeightFormat::BF16, 0, &bad_bf16),
            (WeightFormat::Q8_K, 0, &bad32),
            (WeightFormat::IQ1_M, 48, &iq1_m),
            (WeightFormat::MXFP4, 0, &[0xFF]),
            (WeightFormat::NVFP4, 3, &[0x7F]),
            (WeightFormat::NVFP4, 1, &[0x80]),
        ];
        for (format, offset, value) in cases {
            assert_eq!(spoiled(format, 511, offset, value), expected(format, 511));
        }
        assert_eq!(spoiled(WeightFormat::MXFP4, 2, 0, &[252]), Ok(()));
        assert_eq!(
            spoiled(
                WeightFormat::IQ1_M,
                2,
                48,
                &[0, 0, 0, 0xF0, 0, 0xB0, 0, 0xF0]
            ),
            Ok(())
        );
    }

    #[test]
    fn partial_blocks_are_refused() {
        let format = WeightFormat::Q6_K;
        assert_eq!(
            check_scales(format, &[0; 211]),
            Err(QuantError::PartialBlock { format, bytes: 211 })
        );
    }

    /// What passes the check never decodes to NaN or infinity, whatever the other bytes are.
    #[test]
    fn accepted_blocks_decode_to_finite_values() {
        let mut random = crate::testing::Random::new(11);
        let mut refused = 0;
        for &format in WeightFormat::ALL {
            // The range of an f32 or f64 field alone does not bound the products made with it.
            if matches!(format, WeightFormat::Q8_K | WeightFormat::F64) {
                continue;
            }
            let mut values = vec![0.0; format.block().elements];
            for _ in 0..500 {
                let bytes: Vec<u8> = (0..format.block().bytes)
                    .map(|_| random.bits() as u8)
                    .collect();
                if check_scales(format, &bytes).is_ok() {
                    crate::decode(format, &bytes, &mut values).expect("one whole block");
                    assert!(values.iter().all(|v| v.is_finite()), "{format} {bytes:?}");
                } else {
                    refused += 1;
                }
            }
        }
        assert!(refused > 100);
    }
}
