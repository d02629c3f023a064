//! The 4-, 8- and 16-bit floats: decode to `f32` and encode from it.
//!
//! Encoders round to nearest, ties to the even mantissa, and saturate: a value beyond the largest
//! finite one (infinity too) becomes that one, since an overflow to NaN would poison a whole
//! attention row. NaN stays NaN where the format has one. E4M3, E5M2, E2M1 and E8M0 are those of
//! the OCP formats (OFP8 and MX 1.0).

/// Largest finite E4M3FN value.
pub const E4M3_MAX: f32 = 448.0;
/// Largest finite E5M2 value.
pub const E5M2_MAX: f32 = 57344.0;
/// Largest E2M1 value.
pub const E2M1_MAX: f32 = 6.0;

/// The sixteen E2M1 values by code.
pub const E2M1_VALUES: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// FP8 E4M3FN: sign, 4 exponent bits of bias 7, 3 mantissa bits; no infinity, NaN is `0x7F`/`0xFF`.
pub fn e4m3_decode(code: u8) -> f32 {
    let magnitude = minifloat_decode::<3, 7>(code & 0x7F);
    let magnitude = if code & 0x7F == 0x7F {
        f32::NAN
    } else {
        magnitude
    };
    if code & 0x80 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// FP8 E4M3FN code of a value.
pub fn e4m3_encode(value: f32) -> u8 {
    let sign = sign_bit(value);
    if value.is_nan() {
        return sign | 0x7F;
    }
    sign | minifloat_encode::<3, 7>(value.abs().min(E4M3_MAX))
}

/// FP8 E5M2: sign, 5 exponent bits of bias 15, 2 mantissa bits; infinity and NaN as IEEE.
pub fn e5m2_decode(code: u8) -> f32 {
    half::f16::from_bits(u16::from(code) << 8).to_f32()
}

/// FP8 E5M2 code of a value.
pub fn e5m2_encode(value: f32) -> u8 {
    let sign = sign_bit(value);
    if value.is_nan() {
        return sign | 0x7E;
    }
    sign | minifloat_encode::<2, 15>(value.abs().min(E5M2_MAX))
}

/// E4M3 without a sign, the block scale of NVFP4: NaN is `0x7F`; the top bit is not looked at.
pub fn ue4m3_decode(code: u8) -> f32 {
    e4m3_decode(code & 0x7F)
}

/// UE4M3 code of a scale; a negative one becomes 0.
pub fn ue4m3_encode(value: f32) -> u8 {
    if value.is_nan() {
        return 0x7F;
    }
    e4m3_encode(value.max(0.0)) & 0x7F
}

/// FP4 E2M1: the value of the low four bits.
pub fn e2m1_decode(code: u8) -> f32 {
    E2M1_VALUES[usize::from(code & 15)]
}

/// FP4 E2M1 code of a value; NaN, which the format lacks, becomes the largest value of its sign.
pub fn e2m1_encode(value: f32) -> u8 {
    let sign = sign_bit(value) >> 4;
    let magnitude = if value.is_nan() {
        E2M1_MAX
    } else {
        value.abs()
    };
    sign | minifloat_encode::<1, 1>(magnitude.min(E2M1_MAX))
}

/// E8M0: `2^(code - 127)`; `0xFF` is NaN.
pub fn e8m0_decode(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(0x0040_0000),
        0xFF => f32::NAN,
        code => f32::from_bits(u32::from(code) << 23),
    }
}

/// E8M0 code of the power of two nearest to a positive scale by value, a tie going to the even
/// code; zero and negative values give the least scale.
pub fn e8m0_encode(value: f32) -> u8 {
    if value.is_nan() {
        return 0xFF;
    }
    if value <= 0.0 {
        return 0;
    }
    let bits = value.to_bits().min(f32::MAX.to_bits());
    let (exponent, mantissa) = (bits >> 23, bits & 0x007F_FFFF);
    if exponent == 0 {
        // Subnormals: codes 0 and 1 are 2^-127 and 2^-126, halfway is 3 * 2^-128.
        return u8::from(mantissa >= 0x0060_0000);
    }
    let half = 0x0040_0000;
    let up = mantissa > half || (mantissa == half && exponent & 1 == 1);
    (exponent + u32::from(up)).min(0xFE) as u8
}

/// The upper half of an `f32`.
pub fn bf16_decode(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// BF16 code of a value. Overflow gives infinity, as IEEE conversion does: only values within half
/// a unit of `f32::MAX` reach it.
pub fn bf16_encode(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 64;
    }
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

fn sign_bit(value: f32) -> u8 {
    ((value.to_bits() >> 24) & 0x80) as u8
}

/// Value of a non-negative float of `MANTISSA` mantissa bits and exponent bias `BIAS`, reading the
/// largest exponent as an ordinary one.
fn minifloat_decode<const MANTISSA: u32, const BIAS: i32>(code: u8) -> f32 {
    let exponent = i32::from(code >> MANTISSA);
    let mantissa = u32::from(code) & ((1 << MANTISSA) - 1);
    if exponent == 0 {
        mantissa as f32 * power_of_two(1 - BIAS - MANTISSA as i32)
    } else {
        ((1 << MANTISSA) + mantissa) as f32 * power_of_two(exponent - BIAS - MANTISSA as i32)
    }
}

/// Code of a non-negative value not above the format's largest.
fn minifloat_encode<const MANTISSA: u32, const BIAS: i32>(value: f32) -> u8 {
    // Both the spacing and its reciprocal are normal powers of two, so the division is exact and
    // the only rounding is the one asked for. A mantissa rounded up to the next power of two
    // carries into the exponent by itself.
    let exponent = ((value.to_bits() >> 23) as i32 - 127).max(1 - BIAS);
    let units = (value * power_of_two(MANTISSA as i32 - exponent)).round_ties_even() as i32;
    (((exponent + BIAS - 1) << MANTISSA) + units) as u8
}

/// `2^exponent` for exponents of normal `f32` numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
