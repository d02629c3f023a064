//! AVX-512 with VNNI: 16 lanes.

// Safety is the contract of the trait, stated once there.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::arch::Simd;
use std::arch::x86_64::*;

/// 512-bit vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512;

impl Simd for Avx512 {
    const ROWS: usize = 16;
    const WIDE_KEEPS_BIAS: bool = true;
    const MANY_GROUPS: usize = 2;
    const MANY_ROWS: usize = 4;

    type I = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> __m512i {
        _mm512_loadu_si512(p.cast())
    }
    #[inline(always)]
    unsafe fn splat_u8(v: u8) -> __m512i {
        _mm512_set1_epi8(v.cast_signed())
    }
    #[inline(always)]
    unsafe fn splat_i32(v: i32) -> __m512i {
        _mm512_set1_epi32(v)
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        _mm512_and_si512(a, b)
    }
    #[inline(always)]
    unsafe fn or_masked(a: __m512i, b: __m512i, mask: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<{ 0xF0 | (0xCC & 0xAA) }>(a, b, mask)
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: __m512i) -> __m512i {
        _mm512_sll_epi32(a, _mm_cvtsi32_si128(N))
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: __m512i) -> __m512i {
        _mm512_srl_epi32(a, _mm_cvtsi32_si128(N))
    }
    #[inline(always)]
    unsafe fn sra<const N: i32>(a: __m512i) -> __m512i {
        _mm512_sra_epi32(a, _mm_cvtsi32_si128(N))
    }
    #[inline(always)]
    unsafe fn add_i32(a: __m512i, b: __m512i) -> __m512i {
        _mm512_add_epi32(a, b)
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: __m512i) -> __m512i {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        _mm512_shuffle_epi8(table, index)
    }
    #[inline(always)]
    unsafe fn dot<const N: usize>(
        acc: __m512i,
        codes: [__m512i; N],
        x: *const i8,
        _max: u32,
    ) -> __m512i {
        let x = x.cast::<i32>();
        let mut acc = acc;
        for c in 0..N {
            let x = _mm512_set1_epi32(x.add(c).read_unaligned());
            acc = _mm512_dpbusd_epi32(acc, codes[c], x);
        }
        acc
    }
    /// Chunk by chunk, so that the rows' chains of additions run side by side.
    #[inline(always)]
    unsafe fn dots<const R: usize, const G: usize, const N: usize>(
        acc: [[__m512i; G]; R],
        codes: [[__m512i; N]; G],
        x: *const i8,
        stride: usize,
        _max: u32,
    ) -> [[__m512i; G]; R] {
        let mut acc = acc;
        for c in 0..N {
            for r in 0..R {
                let x = x.add(r * stride + 4 * c).cast::<i32>().read_unaligned();
                for g in 0..G {
                    acc[r][g] = _mm512_dpbusd_epi32(acc[r][g], codes[g][c], _mm512_set1_epi32(x));
                }
            }
        }
        acc
    }
    #[inline(always)]
    unsafe fn to_f32(a: __m512i) -> __m512 {
        _mm512_cvtepi32_ps(a)
    }
    #[inline(always)]
    unsafe fn round_i32(a: __m512) -> __m512i {
        _mm512_cvtps_epi32(a)
    }
    #[inline(always)]
    unsafe fn as_f32(a: __m512i) -> __m512 {
        _mm512_castsi512_ps(a)
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> __m512 {
        _mm512_loadu_ps(p)
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, a: __m512) {
        _mm512_storeu_ps(p, a)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> __m512 {
        _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> __m512 {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> __m512i {
        _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> __m512i {
        _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> __m512 {
        _mm512_set1_ps(v)
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        _mm512_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        _mm512_min_ps(a, b)
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
