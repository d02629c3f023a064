//! The weight formats, one file a family: block structs and their reference decoders.
//!
//! The decoders are what every kernel is measured against. They are written from the layouts, one
//! formula a format, in the operation order of the public `gguf` package, so that results are equal
//! to the bit; they are not meant to be fast. Any bytes decode: whether scales are sane is asked
//! once, by [`check_scales`](crate::check_scales).

use bytemuck::Pod;

use crate::WeightFormat;
use crate::error::{QuantError, whole_blocks};

mod codebook;
mod fp4;
pub mod grids;
mod k_quants;
mod legacy;
mod low_bit;
mod plain;
mod ternary;

pub use codebook::{
    BlockIq1M, BlockIq1S, BlockIq2S, BlockIq2Xs, BlockIq2Xxs, BlockIq3S, BlockIq3Xxs, BlockIq4Nl,
    BlockIq4Xs, GroupIq2Xxs, IQ4_VALUES, sign_mask,
};
pub use fp4::{BlockMxfp4, BlockNvfp4, E2M1_DOUBLED, e8m0_half, ue4m3_half};
pub use k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K, q3k_scale, q3k_scales_pack,
    scale_min, scale_min_pack,
};
pub use legacy::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_1};
pub use low_bit::{BlockQ1_0, BlockQ2_0};
pub use ternary::{BlockTq1_0, BlockTq2_0};

/// One block of a block format, laid out as in a file.
///
/// Blocks have alignment 1: `bytemuck::cast_slice` views any bytes of the right length as blocks.
pub trait Block: Pod {
    /// The format whose block this is.
    const FORMAT: WeightFormat;

    /// Writes the block's values.
    ///
    /// # Panics
    /// When `out` does not hold exactly the block's elements.
    fn decode(&self, out: &mut [f32]);
}

/// Decodes a run of blocks: `bytes` and `out` hold the same whole number of them.
///
/// # Errors
/// [`QuantError::PartialBlock`], [`QuantError::PartialElements`] or [`QuantError::LengthMismatch`]
/// when they do not; nothing is written then.
pub fn decode(format: WeightFormat, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    whole_blocks(format, bytes.len(), out.len())?;
    match format {
        WeightFormat::F32
        | WeightFormat::F16
        | WeightFormat::BF16
        | WeightFormat::F64
        | WeightFormat::I8
        | WeightFormat::I16
        | WeightFormat::I32
        | WeightFormat::I64 => plain::decode(format, bytes, out),
        WeightFormat::Q4_0 => decode_blocks::<BlockQ4_0>(bytes, out),
        WeightFormat::Q4_1 => decode_blocks::<BlockQ4_1>(bytes, out),
        WeightFormat::Q5_0 => decode_blocks::<BlockQ5_0>(bytes, out),
        WeightFormat::Q5_1 => decode_blocks::<BlockQ5_1>(bytes, out),
        WeightFormat::Q8_0 => decode_blocks::<BlockQ8_0>(bytes, out),
        WeightFormat::Q8_1 => decode_blocks::<BlockQ8_1>(bytes, out),
        WeightFormat::Q2_K => decode_blocks::<BlockQ2K>(bytes, out),
        WeightFormat::Q3_K => decode_blocks::<BlockQ3K>(bytes, out),
        WeightFormat::Q4_K => decode_blocks::<BlockQ4K>(bytes, out),
        WeightFormat::Q5_K => decode_blocks::<BlockQ5K>(bytes, out),
        WeightFormat::Q6_K => decode_blocks::<BlockQ6K>(bytes, out),
        WeightFormat::Q8_K => decode_blocks::<BlockQ8K>(bytes, out),
        WeightFormat::IQ2_XXS => decode_blocks::<BlockIq2Xxs>(bytes, out),
        WeightFormat::IQ2_XS => decode_blocks::<BlockIq2Xs>(bytes, out),
        WeightFormat::IQ2_S => decode_blocks::<BlockIq2S>(bytes, out),
        WeightFormat::IQ3_XXS => decode_blocks::<BlockIq3Xxs>(bytes, out),
        WeightFormat::IQ3_S => decode_blocks::<BlockIq3S>(bytes, out),
        WeightFormat::IQ1_S => decode_blocks::<BlockIq1S>(bytes, out),
        WeightFormat::IQ1_M => decode_blocks::<BlockIq1M>(bytes, out),
        WeightFormat::IQ4_NL => decode_blocks::<BlockIq4Nl>(bytes, out),
        WeightFormat::IQ4_XS => decode_blocks::<BlockIq4Xs>(bytes, out),
        WeightFormat::TQ1_0 => decode_blocks::<BlockTq1_0>(bytes, out),
        WeightFormat::TQ2_0 => decode_blocks::<BlockTq2_0>(bytes, out),
        WeightFormat::MXFP4 => decode_blocks::<BlockMxfp4>(bytes, out),
        WeightFormat::NVFP4 => decode_blocks::<BlockNvfp4>(bytes, out),
        WeightFormat::Q1_0 => decode_blocks::<BlockQ1_0>(bytes, out),
        WeightFormat::Q2_0 => decode_blocks::<BlockQ2_0>(bytes, out),
    }
    Ok(())
}

/// Lengths have been checked by the caller.
fn decode_blocks<B: Block>(bytes: &[u8], out: &mut [f32]) {
    const {
        assert!(size_of::<B>() == B::FORMAT.block().bytes);
        assert!(align_of::<B>() == 1);
    };
    let blocks: &[B] = bytemuck::cast_slice(bytes);
    for (block, out) in blocks
        .iter()
        .zip(out.chunks_exact_mut(B::FORMAT.block().elements))
    {
        block.decode(out);
    }
}

/// Code of element `i` of 32 in the split-halves nibble order: elements 0..16 are the low nibbles,
/// 16..32 the high ones.
pub(crate) fn split_nibble(qs: &[u8; 16], i: usize) -> u8 {
    (qs[i % 16] >> (4 * (i / 16))) & 15
}
