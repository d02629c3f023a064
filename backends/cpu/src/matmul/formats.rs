//! How each block format is read: codes of one k block as bytes, scales as floats.

// Safety is the contract of the trait, stated once there.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::arch::Simd;
use crate::weights::geometry::{BlockGeometry, Layout, layout};
use kvant_quant::WeightFormat;
use kvant_quant::weights::{E2M1_DOUBLED, IQ4_VALUES};

/// Scales of a super-block.
#[derive(Clone, Copy)]
pub(crate) struct Header<S: Simd> {
    d: S::F,
    dmin: S::F,
}

/// One k block of `S::ROWS` rows: a weight is `scale * (code - bias) + min`.
#[derive(Clone, Copy)]
pub(crate) struct Block<S: Simd> {
    /// Unsigned codes, chunk by chunk.
    pub(crate) codes: [S::I; 8],
    /// Scale of columns 0..16 and 16..32 (the same unless the format has halves).
    pub(crate) scale: [S::F; 2],
    /// Minimum of columns 0..16 and 16..32 (unused where the format has none).
    pub(crate) min: [S::F; 2],
}

/// A format kept as codes and scales.
///
/// # Safety
/// Pointers are to the vectors of a group in this format; `lane` is a multiple of `S::ROWS` below 16.
/// For the rest see [`Simd`].
pub(crate) trait BlockFormat {
    /// The file's format.
    const FORMAT: WeightFormat;
    /// Largest code.
    const MAX: u32;
    /// Weights are `code - 2^n`.
    const BIAS_LOG2: Option<i32>;
    /// Columns 0..16 and 16..32 have their own scales.
    const HALVES: bool = false;
    /// Weights have a minimum.
    const HAS_MIN: bool = false;
    /// Where things lie.
    const GEOMETRY: BlockGeometry = match layout(Self::FORMAT) {
        Layout::Blocks(geometry) => geometry,
        _ => panic!("not a block format"),
    };

    /// Reads what the k blocks of a super-block share.
    unsafe fn header<S: Simd>(scales: *const u8, lane: usize) -> Header<S>;

    /// Reads k block `index` of a super-block.
    unsafe fn block<S: Simd>(
        codes: *const u8,
        scales: *const u8,
        index: usize,
        lane: usize,
        header: &Header<S>,
    ) -> Block<S>;
}

/// Four-bit codes.
#[inline(always)]
unsafe fn nibbles<S: Simd>(codes: *const u8, lane: usize) -> [S::I; 8] {
    let mask = S::splat_u8(15);
    let mut out = [mask; 8];
    for c in 0..4 {
        let both = S::load(codes.add(c * 64 + lane * 4));
        out[c] = S::and(both, mask);
        out[c + 4] = S::and(S::shr::<4>(both), mask);
    }
    out
}

/// Four-bit codes through a table.
#[inline(always)]
unsafe fn looked_up<S: Simd>(codes: *const u8, lane: usize, table: &[u8; 16]) -> [S::I; 8] {
    let mut out = nibbles::<S>(codes, lane);
    for code in &mut out {
        *code = S::lookup(table, *code);
    }
    out
}

/// Adds the bit plane at `plane` as bit `BIT` (2 or 4) of the codes.
#[inline(always)]
unsafe fn or_bit_plane<S: Simd, const BIT: u32>(codes: &mut [S::I; 8], plane: *const u8) {
    let bits = S::load(plane);
    let mask = S::splat_u8(1 << BIT);
    // Chunk c is bit c: it moves by BIT - c.
    let shifted = if BIT == 4 {
        [
            S::shl::<4>(bits),
            S::shl::<3>(bits),
            S::shl::<2>(bits),
            S::shl::<1>(bits),
            bits,
            S::shr::<1>(bits),
            S::shr::<2>(bits),
            S::shr::<3>(bits),
        ]
    } else {
        [
            S::shl::<2>(bits),
            S::shl::<1>(bits),
            bits,
            S::shr::<1>(bits),
            S::shr::<2>(bits),
            S::shr::<3>(bits),
            S::shr::<4>(bits),
            S::shr::<5>(bits),
        ]
    };
    for c in 0..8 {
        codes[c] = S::or_masked(codes[c], shifted[c], mask);
    }
}

/// Two-bit codes from two planes.
#[inline(always)]
unsafe fn two_bits<S: Simd>(planes: *const u8, lane: usize) -> [S::I; 8] {
    let mask = S::splat_u8(3);
    let mut out = [mask; 8];
    for v in 0..2 {
        let fields = S::load(planes.add(v * 64 + lane * 4));
        out[4 * v] = S::and(fields, mask);
        out[4 * v + 1] = S::and(S::shr::<2>(fields), mask);
        out[4 * v + 2] = S::and(S::shr::<4>(fields), mask);
        out[4 * v + 3] = S::and(S::shr::<6>(fields), mask);
    }
    out
}

/// Adds two-bit planes as bits 4 and 5 of the codes.
#[inline(always)]
unsafe fn or_two_bit_planes<S: Simd>(codes: &mut [S::I; 8], planes: *const u8, lane: usize) {
    let mask = S::splat_u8(0x30);
    for v in 0..2 {
        let fields = S::load(planes.add(v * 64 + lane * 4));
        codes[4 * v] = S::or_masked(codes[4 * v], S::shl::<4>(fields), mask);
        codes[4 * v + 1] = S::or_masked(codes[4 * v + 1], S::shl::<2>(fields), mask);
        codes[4 * v + 2] = S::or_masked(codes[4 * v + 2], fields, mask);
        codes[4 * v + 3] = S::or_masked(codes[4 * v + 3], S::shr::<2>(fields), mask);
    }
}

/// No shared scales.
#[inline(always)]
unsafe fn no_header<S: Simd>() -> Header<S> {
    let zero = S::splat(0.0);
    Header {
        d: zero,
        dmin: zero,
    }
}

/// `d` alone.
#[inline(always)]
unsafe fn d_header<S: Simd>(scales: *const u8, lane: usize) -> Header<S> {
    Header {
        d: S::load_f16(scales.add(lane * 2)),
        dmin: S::splat(0.0),
    }
}

/// `d` and `-dmin`.
#[inline(always)]
unsafe fn d_dmin_header<S: Simd>(scales: *const u8, lane: usize) -> Header<S> {
    Header {
        d: S::load_f16(scales.add(lane * 2)),
        dmin: S::sub(S::splat(0.0), S::load_f16(scales.add(32 + lane * 2))),
    }
}

#[inline(always)]
unsafe fn scaled<S: Simd>(codes: [S::I; 8], scale: S::F, min: S::F) -> Block<S> {
    Block {
        codes,
        scale: [scale; 2],
        min: [min; 2],
    }
}

macro_rules! legacy_format {
    ($name:ident, $max:expr, $bias:expr, $has_min:expr, $codes:expr, $load:ident) => {
        #[doc = concat!("[`WeightFormat::", stringify!($name), "`].")]
        #[allow(non_camel_case_types)]
        pub(crate) struct $name;

        impl BlockFormat for $name {
            const FORMAT: WeightFormat = WeightFormat::$name;
            const MAX: u32 = $max;
            const BIAS_LOG2: Option<i32> = $bias;
            const HAS_MIN: bool = $has_min;

            #[inline(always)]
            unsafe fn header<S: Simd>(_scales: *const u8, _lane: usize) -> Header<S> {
                no_header()
            }

            #[inline(always)]
            unsafe fn block<S: Simd>(
                codes: *const u8,
                scales: *const u8,
                _index: usize,
                lane: usize,
                _header: &Header<S>,
            ) -> Block<S> {
                let scale = S::$load(scales.add(lane * 2));
                let min = if $has_min {
                    S::$load(scales.add(32 + lane * 2))
                } else {
                    S::splat(0.0)
                };
                scaled($codes(codes, lane), scale, min)
            }
        }
    };
}

legacy_format!(Q4_0, 15, Some(3), false, nibbles::<S>, load_f16);
legacy_format!(Q4_1, 15, None, true, nibbles::<S>, load_f16);
legacy_format!(Q5_0, 31, Some(4), false, five_bits::<S>, load_f16);
legacy_format!(Q5_1, 31, None, true, five_bits::<S>, load_f16);
legacy_format!(Q8_0, 255, Some(7), false, bytes::<S>, load_f16);
legacy_format!(IQ4_NL, 255, Some(7), false, iq4::<S>, load_f16);
legacy_format!(MXFP4, 28, Some(4), false, e2m1::<S>, load_bf16);

#[inline(always)]
unsafe fn five_bits<S: Simd>(codes: *const u8, lane: usize) -> [S::I; 8] {
    let mut out = nibbles::<S>(codes, lane);
    or_bit_plane::<S, 4>(&mut out, codes.add(256 + lane * 4));
    out
}

#[inline(always)]
unsafe fn bytes<S: Simd>(codes: *const u8, lane: usize) -> [S::I; 8] {
    let mut out = [S::splat_u8(0); 8];
    for c in 0..8 {
        out[c] = S::load(codes.add(c * 64 + lane * 4));
    }
    out
}

const IQ4_CODES: [u8; 16] = biased(&IQ4_VALUES, 128);
const E2M1_CODES: [u8; 16] = biased(&E2M1_DOUBLED, 16);

const fn biased(values: &[i8; 16], bias: i16) -> [u8; 16] {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = (values[i] as i16 + bias) as u8;
        i += 1;
    }
    codes
}

#[inline(always)]
unsafe fn iq4<S: Simd>(codes: *const u8, lane: usize) -> [S::I; 8] {
    looked_up::<S>(codes, lane, &IQ4_CODES)
}

#[inline(always)]
unsafe fn e2m1<S: Simd>(codes: *const u8, lane: usize) -> [S::I; 8] {
    looked_up::<S>(codes, lane, &E2M1_CODES)
}

/// Formats with one scale and one minimum a k block.
macro_rules! scale_min_format {
    ($name:ident, $max:expr, $codes:expr) => {
        #[doc = concat!("[`WeightFormat::", stringify!($name), "`].")]
        #[allow(non_camel_case_types)]
        pub(crate) struct $name;

        impl BlockFormat for $name {
            const FORMAT: WeightFormat = WeightFormat::$name;
            const MAX: u32 = $max;
            const BIAS_LOG2: Option<i32> = None;
            const HAS_MIN: bool = true;

            #[inline(always)]
            unsafe fn header<S: Simd>(scales: *const u8, lane: usize) -> Header<S> {
                d_dmin_header(scales, lane)
            }

            #[inline(always)]
            unsafe fn block<S: Simd>(
                codes: *const u8,
                scales: *const u8,
                index: usize,
                lane: usize,
                header: &Header<S>,
            ) -> Block<S> {
                let sub = scales.add(64 + 16 * index + lane);
                let scale = S::mul(header.d, S::to_f32(S::load_u8(sub)));
                let min = S::mul(header.dmin, S::to_f32(S::load_u8(sub.add(128))));
                scaled($codes(codes, lane), scale, min)
            }
        }
    };
}

scale_min_format!(Q4_K, 15, nibbles::<S>);
scale_min_format!(Q5_K, 31, five_bits::<S>);

/// Formats with a signed scale for each 16 columns.
macro_rules! signed_halves_format {
    ($name:ident, $max:expr, $bias:expr, $codes:expr) => {
        #[doc = concat!("[`WeightFormat::", stringify!($name), "`].")]
        #[allow(non_camel_case_types)]
        pub(crate) struct $name;

        impl BlockFormat for $name {
            const FORMAT: WeightFormat = WeightFormat::$name;
            const MAX: u32 = $max;
            const BIAS_LOG2: Option<i32> = Some($bias);
            const HALVES: bool = true;

            #[inline(always)]
            unsafe fn header<S: Simd>(scales: *const u8, lane: usize) -> Header<S> {
                d_header(scales, lane)
            }

            #[inline(always)]
            unsafe fn block<S: Simd>(
                codes: *const u8,
                scales: *const u8,
                index: usize,
                lane: usize,
                header: &Header<S>,
            ) -> Block<S> {
                let sub = scales.add(32 + 32 * index + lane);
                Block {
                    codes: $codes(codes, lane),
                    scale: [
                        S::mul(header.d, S::to_f32(S::load_i8(sub))),
                        S::mul(header.d, S::to_f32(S::load_i8(sub.add(16)))),
                    ],
                    min: [S::splat(0.0); 2],
                }
            }
        }
    };
}

signed_halves_format!(Q6_K, 63, 5, six_bits::<S>);
signed_halves_format!(Q3_K, 7, 2, three_bits::<S>);

#[inline(always)]
unsafe fn six_bits<S: Simd>(codes: *const u8, lane: usize) -> [S::I; 8] {
    let mut out = nibbles::<S>(codes, lane);
    or_two_bit_planes::<S>(&mut out, codes.add(256), lane);
    out
}

#[inline(always)]
unsafe fn three_bits<S: Simd>(codes: *const u8, lane: usize) -> [S::I; 8] {
    let mut out = two_bits::<S>(codes, lane);
    or_bit_plane::<S, 2>(&mut out, codes.add(128 + lane * 4));
    out
}

/// [`WeightFormat::Q2_K`].
#[allow(non_camel_case_types)]
pub(crate) struct Q2_K;

impl BlockFormat for Q2_K {
    const FORMAT: WeightFormat = WeightFormat::Q2_K;
    const MAX: u32 = 3;
    const BIAS_LOG2: Option<i32> = None;
    const HALVES: bool = true;
    const HAS_MIN: bool = true;

    #[inline(always)]
    unsafe fn header<S: Simd>(scales: *const u8, lane: usize) -> Header<S> {
        d_dmin_header(scales, lane)
    }

    #[inline(always)]
    unsafe fn block<S: Simd>(
        codes: *const u8,
        scales: *const u8,
        index: usize,
        lane: usize,
        header: &Header<S>,
    ) -> Block<S> {
        let mut block = scaled(two_bits::<S>(codes, lane), header.d, header.dmin);
        for half in 0..2 {
            let both = S::load_u8(scales.add(64 + 32 * index + 16 * half + lane));
            let scale = S::and(both, S::splat_i32(15));
            block.scale[half] = S::mul(header.d, S::to_f32(scale));
            block.min[half] = S::mul(header.dmin, S::to_f32(S::shr::<4>(both)));
        }
        block
    }
}

/// [`WeightFormat::IQ4_XS`].
#[allow(non_camel_case_types)]
pub(crate) struct IQ4_XS;

impl BlockFormat for IQ4_XS {
    const FORMAT: WeightFormat = WeightFormat::IQ4_XS;
    const MAX: u32 = 255;
    const BIAS_LOG2: Option<i32> = Some(7);

    #[inline(always)]
    unsafe fn header<S: Simd>(scales: *const u8, lane: usize) -> Header<S> {
        d_header(scales, lane)
    }

    #[inline(always)]
    unsafe fn block<S: Simd>(
        codes: *const u8,
        scales: *const u8,
        index: usize,
        lane: usize,
        header: &Header<S>,
    ) -> Block<S> {
        let sub = S::load_i8(scales.add(32 + 16 * index + lane));
        let scale = S::mul(header.d, S::to_f32(sub));
        scaled(iq4::<S>(codes, lane), scale, S::splat(0.0))
    }
}
