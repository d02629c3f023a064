//! Plain deterministic encoders: they look at nothing but the values (no importance data).
//!
//! Each one gives the bytes of the reference quantiser of the GGML formats when that is compiled
//! without fused multiply-adds, so a file made here is the file others would make.

use half::f16;

use crate::WeightFormat;
use crate::check::check_scales;
use crate::error::{QuantError, whole_blocks};
use crate::small_float::bf16_encode;
use crate::weights::Block;

mod fp4;
mod iq4;
mod k_quants;
mod legacy;
mod search;
mod ternary;

/// Groups with no magnitude above this are taken as zeros.
const EPSILON: f32 = 1e-15;

/// Encodes a run of blocks: `values` and `out` hold the same whole number of them.
///
/// # Errors
/// - [`QuantError::PartialBlock`], [`QuantError::PartialElements`], [`QuantError::LengthMismatch`];
/// - [`QuantError::NonFiniteValue`] for a NaN or infinity among the values;
/// - [`QuantError::Overflow`] when the format has no scale for values that large;
/// - [`QuantError::NoEncoder`] for formats that are only read.
///
/// After an error the content of `out` means nothing.
pub fn encode(format: WeightFormat, values: &[f32], out: &mut [u8]) -> Result<(), QuantError> {
    whole_blocks(format, out.len(), values.len())?;
    if let Some(index) = values.iter().position(|v| !v.is_finite()) {
        return Err(QuantError::NonFiniteValue { format, index });
    }
    match format {
        WeightFormat::F32 => plain(values, out, f32::to_le_bytes),
        WeightFormat::F16 => plain(values, out, |v| f16::from_f32(v).to_le_bytes()),
        WeightFormat::BF16 => plain(values, out, |v| bf16_encode(v).to_le_bytes()),
        WeightFormat::Q4_0 => blocks(values, out, legacy::q4_0),
        WeightFormat::Q4_1 => blocks(values, out, legacy::q4_1),
        WeightFormat::Q5_0 => blocks(values, out, legacy::q5_0),
        WeightFormat::Q5_1 => blocks(values, out, legacy::q5_1),
        WeightFormat::Q8_0 => blocks(values, out, legacy::q8_0),
        WeightFormat::Q2_K => searched(values, out, k_quants::q2_k)?,
        WeightFormat::Q3_K => searched(values, out, k_quants::q3_k)?,
        WeightFormat::Q4_K => searched(values, out, k_quants::q4_k)?,
        WeightFormat::Q5_K => searched(values, out, k_quants::q5_k)?,
        WeightFormat::Q6_K => searched(values, out, k_quants::q6_k)?,
        WeightFormat::IQ4_NL => searched(values, out, iq4::iq4_nl)?,
        WeightFormat::IQ4_XS => searched(values, out, iq4::iq4_xs)?,
        WeightFormat::MXFP4 => blocks(values, out, fp4::mxfp4),
        WeightFormat::TQ1_0 => blocks(values, out, ternary::tq1_0),
        WeightFormat::TQ2_0 => blocks(values, out, ternary::tq2_0),
        WeightFormat::Q8_1
        | WeightFormat::Q8_K
        | WeightFormat::IQ2_XXS
        | WeightFormat::IQ2_XS
        | WeightFormat::IQ2_S
        | WeightFormat::IQ3_XXS
        | WeightFormat::IQ3_S
        | WeightFormat::IQ1_S
        | WeightFormat::IQ1_M
        | WeightFormat::I8
        | WeightFormat::I16
        | WeightFormat::I32
        | WeightFormat::I64
        | WeightFormat::F64
        | WeightFormat::NVFP4
        | WeightFormat::Q1_0
        | WeightFormat::Q2_0 => return Err(QuantError::NoEncoder { format }),
    }
    check_scales(format, out).map_err(|error| match error {
        QuantError::InvalidScale { format, block }
        | QuantError::NonFiniteValue {
            format,
            index: block,
        } => QuantError::Overflow { format, block },
        other => other,
    })
}

fn plain<const BYTES: usize>(values: &[f32], out: &mut [u8], encode: impl Fn(f32) -> [u8; BYTES]) {
    let (fields, _) = out.as_chunks_mut::<BYTES>();
    for (field, &value) in fields.iter_mut().zip(values) {
        *field = encode(value);
    }
}

fn blocks<B: Block, const ELEMENTS: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; ELEMENTS]) -> B,
) {
    const { assert!(ELEMENTS == B::FORMAT.block().elements) };
    let (values, _) = values.as_chunks::<ELEMENTS>();
    for (block, values) in bytemuck::cast_slice_mut(out).iter_mut().zip(values) {
        *block = encode(values);
    }
}

/// As [`blocks`], for encoders that choose scales by least squares: the sixth power of a value
/// must be far from overflowing there, which the range of the scales does not see to.
fn searched<B: Block, const ELEMENTS: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; ELEMENTS]) -> B,
) -> Result<(), QuantError> {
    let largest = f16::MAX.to_f32();
    if let Some(index) = values.iter().position(|v| v.abs() > largest) {
        return Err(QuantError::Overflow {
            format: B::FORMAT,
            block: index / ELEMENTS,
        });
    }
    blocks(values, out, encode);
    Ok(())
}

/// The value of largest magnitude with its sign; the first of equals.
fn signed_extreme(values: &[f32]) -> f32 {
    values.iter().fold(
        0.0,
        |best: f32, &v| if v.abs() > best.abs() { v } else { best },
    )
}

/// `1 / x`, and 0 for 0.
fn reciprocal(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The nearest integer, ties to even; magnitudes beyond `2^22` give `2^22`.
///
/// Adding `1.5 * 2^23` leaves the rounded number in the low mantissa bits. Without SSE4.1 in the
/// target `round_ties_even` is a call of a function, which would take most of a search's time.
fn nearest(x: f32) -> i32 {
    const LIMIT: f32 = 4_194_304.0;
    const SHIFT: f32 = 12_582_912.0;
    (x.clamp(-LIMIT, LIMIT) + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}

/// Packs 32 four-bit codes with elements 0..16 in the low nibbles, 16..32 in the high ones.
fn split_nibbles(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|i| (codes[i] & 15) | (codes[i + 16] << 4))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn nearest_rounds_ties_to_even() {
        for i in -4000i32..4000 {
            let x = i as f32 / 8.0;
            assert_eq!(nearest(x), x.round_ties_even() as i32);
        }
        for x in [4_194_303.4f32, -4_194_303.4, 4_194_304.0, -4_194_304.0] {
            assert_eq!(nearest(x), x.round_ties_even() as i32);
        }
        assert_eq!(nearest(f32::MAX), 4_194_304);
        assert_eq!(nearest(f32::NEG_INFINITY), -4_194_304);
    }
}
