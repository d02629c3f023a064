//! Floats and integers stored as they are.

use half::f16;

use crate::WeightFormat;
use crate::small_float::bf16_decode;

/// Converts element by element; 64-bit values and large `i32` round to nearest `f32`.
pub(super) fn decode(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
    match format {
        WeightFormat::F32 => convert(bytes, out, f32::from_le_bytes),
        WeightFormat::F16 => convert(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
        WeightFormat::BF16 => convert(bytes, out, |b| bf16_decode(u16::from_le_bytes(b))),
        WeightFormat::F64 => convert(bytes, out, |b| f64::from_le_bytes(b) as f32),
        WeightFormat::I8 => convert(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        WeightFormat::I16 => convert(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        WeightFormat::I32 => convert(bytes, out, |b| i32::from_le_bytes(b) as f32),
        WeightFormat::I64 => convert(bytes, out, |b| i64::from_le_bytes(b) as f32),
        _ => unreachable!("{format} has blocks"),
    }
}

fn convert<const BYTES: usize>(bytes: &[u8], out: &mut [f32], to_f32: impl Fn([u8; BYTES]) -> f32) {
    let (values, _) = bytes.as_chunks::<BYTES>();
    for (out, &value) in out.iter_mut().zip(values) {
        *out = to_f32(value);
    }
}
