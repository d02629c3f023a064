//! AVX2 with FMA and F16C: 8 lanes.

// Safety is the contract of the trait, stated once there.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::arch::Simd;
use std::arch::x86_64::*;

/// 256-bit vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2;

/// Sums pairs of 16-bit products into 32-bit lanes.
#[inline(always)]
unsafe fn widen_add(acc: __m256i, pairs: __m256i) -> __m256i {
    _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

impl Simd for Avx2 {
    const ROWS: usize = 8;
    const WIDE_KEEPS_BIAS: bool = false;
    const MANY_GROUPS: usize = 1;
    const MANY_ROWS: usize = 1;

    type I = __m256i;
    type F = __m256;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m256i {
        _mm256_loadu_si256(p.cast())
    }
    #[inline(always)]
    unsafe fn splat_u8(v: u8) -> __m256i {
        _mm256_set1_epi8(v.cast_signed())
    }
    #[inline(always)]
    unsafe fn splat_i32(v: i32) -> __m256i {
        _mm256_set1_epi32(v)
    }
    #[inline(always)]
    unsafe fn and(a: __m256i, b: __m256i) -> __m256i {
        _mm256_and_si256(a, b)
    }
    #[inline(always)]
    unsafe fn or_masked(a: __m256i, b: __m256i, mask: __m256i) -> __m256i {
        _mm256_or_si256(a, _mm256_and_si256(b, mask))
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: __m256i) -> __m256i {
        _mm256_slli_epi32::<N>(a)
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: __m256i) -> __m256i {
        _mm256_srli_epi32::<N>(a)
    }
    #[inline(always)]
    unsafe fn sra<const N: i32>(a: __m256i) -> __m256i {
        _mm256_srai_epi32::<N>(a)
    }
    #[inline(always)]
    unsafe fn add_i32(a: __m256i, b: __m256i) -> __m256i {
        _mm256_add_epi32(a, b)
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: __m256i) -> __m256i {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        _mm256_shuffle_epi8(table, index)
    }
    /// `vpmaddubsw` saturates at 16 bits. Codes up to 127 cannot reach that in one pair of products,
    /// and small ones not even in the sum of several; larger ones go through their distance from 128.
    #[inline(always)]
    unsafe fn dot<const N: usize>(
        acc: __m256i,
        codes: [__m256i; N],
        x: *const i8,
        max: u32,
    ) -> __m256i {
        let x = x.cast::<i32>();
        let mut acc = acc;
        if max > 127 {
            for c in 0..N {
                let x = _mm256_set1_epi32(x.add(c).read_unaligned());
                let signed = _mm256_xor_si256(codes[c], _mm256_set1_epi8(-128));
                let pairs =
                    _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed));
                acc = widen_add(acc, pairs);
            }
            return acc;
        }
        // How many chunks can be summed in 16 bits.
        let run = (i16::MAX as usize / (2 * 127 * max as usize)).min(N);
        let mut c = 0;
        while c < N {
            let end = (c + run).min(N);
            let mut pairs = _mm256_setzero_si256();
            while c < end {
                let x = _mm256_set1_epi32(x.add(c).read_unaligned());
                pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes[c], x));
                c += 1;
            }
            acc = widen_add(acc, pairs);
        }
        acc
    }
    #[inline(always)]
    unsafe fn to_f32(a: __m256i) -> __m256 {
        _mm256_cvtepi32_ps(a)
    }
    #[inline(always)]
    unsafe fn round_i32(a: __m256) -> __m256i {
        _mm256_cvtps_epi32(a)
    }
    #[inline(always)]
    unsafe fn as_f32(a: __m256i) -> __m256 {
        _mm256_castsi256_ps(a)
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> __m256 {
        _mm256_loadu_ps(p)
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, a: __m256) {
        _mm256_storeu_ps(p, a)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> __m256 {
        _mm256_cvtph_ps(_mm_loadu_si128(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> __m256 {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> __m256i {
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> __m256i {
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> __m256 {
        _mm256_set1_ps(v)
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        _mm256_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        _mm256_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        _mm256_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        _mm256_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        _mm256_min_ps(a, b)
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        _mm_prefetch::<_MM_HINT_T0>(p.cast())
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        _mm_prefetch::<_MM_HINT_T1>(p.cast())
    }
}
