//! Byte order of tensors in big-endian GGUF files.

use crate::WeightFormat;
use crate::error::{QuantError, blocks_in_bytes};

/// A run of equal multi-byte fields in a block.
struct Fields {
    /// Bytes from the block's start.
    offset: usize,
    /// Bytes of one field.
    width: usize,
    /// How many there are.
    count: usize,
    /// Bytes from one field to the next.
    stride: usize,
}

const fn one(offset: usize, width: usize) -> Fields {
    many(offset, width, 1)
}

const fn many(offset: usize, width: usize, count: usize) -> Fields {
    Fields {
        offset,
        width,
        count,
        stride: width,
    }
}

/// Every field of more than one byte.
const fn multi_byte_fields(format: WeightFormat) -> &'static [Fields] {
    match format {
        WeightFormat::I8 | WeightFormat::MXFP4 | WeightFormat::NVFP4 => &[],
        WeightFormat::F32 | WeightFormat::I32 => const { &[one(0, 4)] },
        WeightFormat::F64 | WeightFormat::I64 => const { &[one(0, 8)] },
        WeightFormat::F16
        | WeightFormat::BF16
        | WeightFormat::I16
        | WeightFormat::Q4_0
        | WeightFormat::Q8_0
        | WeightFormat::IQ2_S
        | WeightFormat::IQ3_S
        | WeightFormat::IQ4_NL
        | WeightFormat::Q1_0
        | WeightFormat::Q2_0 => const { &[one(0, 2)] },
        WeightFormat::Q4_1 | WeightFormat::Q8_1 | WeightFormat::Q4_K | WeightFormat::Q5_K => {
            const { &[many(0, 2, 2)] }
        }
        WeightFormat::Q5_0 => const { &[one(0, 2), one(2, 4)] },
        WeightFormat::Q5_1 => const { &[many(0, 2, 2), one(4, 4)] },
        WeightFormat::Q2_K => const { &[many(80, 2, 2)] },
        WeightFormat::Q3_K => const { &[one(108, 2)] },
        WeightFormat::Q6_K => const { &[one(208, 2)] },
        WeightFormat::Q8_K => const { &[one(0, 4), many(260, 2, 16)] },
        WeightFormat::IQ2_XXS => {
            const {
                &[
                    one(0, 2),
                    Fields {
                        offset: 6,
                        width: 4,
                        count: 8,
                        stride: 8,
                    },
                ]
            }
        }
        WeightFormat::IQ2_XS => const { &[many(0, 2, 33)] },
        WeightFormat::IQ3_XXS => const { &[one(0, 2), many(66, 4, 8)] },
        WeightFormat::IQ1_S => const { &[one(0, 2), many(34, 2, 8)] },
        WeightFormat::IQ1_M => const { &[many(48, 2, 4)] },
        WeightFormat::IQ4_XS => const { &[many(0, 2, 2)] },
        WeightFormat::TQ1_0 => const { &[one(52, 2)] },
        WeightFormat::TQ2_0 => const { &[one(64, 2)] },
    }
}

/// Turns the blocks of a big-endian tensor into the little-endian ones that everything else here
/// reads, in place (and back again: it is its own inverse). Scales and packed 16- and 32-bit
/// fields are reversed; codes packed in bytes stay.
///
/// # Errors
/// [`QuantError::PartialBlock`] when `bytes` are not whole blocks; nothing is changed then.
pub fn swap_block_endianness(format: WeightFormat, bytes: &mut [u8]) -> Result<(), QuantError> {
    blocks_in_bytes(format, bytes.len())?;
    for block in bytes.chunks_exact_mut(format.block().bytes) {
        for fields in multi_byte_fields(format) {
            for i in 0..fields.count {
                let start = fields.offset + i * fields.stride;
                block[start..start + fields.width].reverse();
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::le::{F16Le, F32Le, I16Le, U16Le, U32Le};
    use crate::testing::random_blocks;
    use crate::weights::*;
    use bytemuck::{bytes_of, pod_read_unaligned};

    #[test]
    fn swapping_twice_changes_nothing() {
        for &format in WeightFormat::ALL {
            let original = random_blocks(format, 3, 5);
            let mut bytes = original.clone();
            swap_block_endianness(format, &mut bytes).expect("whole blocks");
            let single_bytes = multi_byte_fields(format).is_empty();
            assert_eq!(bytes == original, single_bytes, "{format}");
            swap_block_endianness(format, &mut bytes).expect("whole blocks");
            assert_eq!(bytes, original, "{format}");
        }
    }

    #[test]
    fn partial_blocks_are_refused() {
        let format = WeightFormat::Q4_0;
        assert_eq!(
            swap_block_endianness(format, &mut [0; 17]),
            Err(QuantError::PartialBlock { format, bytes: 17 })
        );
    }

    /// Reverses a field through its block struct, where only the field's name is known.
    trait Swapped {
        fn swapped(self) -> Self;
    }

    macro_rules! swapped {
        ($($field:ty),+) => {$(
            impl Swapped for $field {
                fn swapped(self) -> Self {
                    let mut bytes: [u8; size_of::<Self>()] = bytemuck::cast(self);
                    bytes.reverse();
                    bytemuck::cast(bytes)
                }
            }
        )+};
    }
    swapped!(F16Le, F32Le, I16Le, U16Le, U32Le);

    impl<T: Swapped + Copy, const N: usize> Swapped for [T; N] {
        fn swapped(self) -> Self {
            self.map(T::swapped)
        }
    }

    impl Swapped for [GroupIq2Xxs; 8] {
        fn swapped(self) -> Self {
            self.map(|group| GroupIq2Xxs {
                signs_scale: group.signs_scale.swapped(),
                ..group
            })
        }
    }

    macro_rules! check_fields {
        ($($block:ty: $($field:ident),+;)+) => {$({
            let format = <$block as Block>::FORMAT;
            let mut bytes = random_blocks(format, 1, 9);
            let mut block: $block = pod_read_unaligned(&bytes);
            $(block.$field = block.$field.swapped();)+
            swap_block_endianness(format, &mut bytes).expect("one whole block");
            assert_eq!(bytes, bytes_of(&block), "{format}");
        })+};
    }

    #[test]
    fn the_swapped_bytes_are_the_multi_byte_fields() {
        check_fields! {
            BlockQ4_0: d;
            BlockQ4_1: d, m;
            BlockQ5_0: d, qh;
            BlockQ5_1: d, m, qh;
            BlockQ8_0: d;
            BlockQ8_1: d, s;
            BlockQ2K: d, dmin;
            BlockQ3K: d;
            BlockQ4K: d, dmin;
            BlockQ5K: d, dmin;
            BlockQ6K: d;
            BlockQ8K: d, bsums;
            BlockIq2Xxs: d, groups;
            BlockIq2Xs: d, qs;
            BlockIq2S: d;
            BlockIq3Xxs: d, signs_scales;
            BlockIq3S: d;
            BlockIq1S: d, qh;
            BlockIq1M: scales;
            BlockIq4Nl: d;
            BlockIq4Xs: d, scales_h;
            BlockTq1_0: d;
            BlockTq2_0: d;
            BlockQ1_0: d;
            BlockQ2_0: d;
        }
    }
}
