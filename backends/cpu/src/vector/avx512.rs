//! Sixteen lanes of AVX-512F.

use super::{F32s, Kernel};
use std::arch::x86_64::*;

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(pub(crate) __m512);

/// Runs a kernel compiled for AVX-512.
///
/// # Safety
/// The CPU has AVX-512F, BW, VL, DQ and FMA; what the kernel asks for holds.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: by the caller.
    unsafe { kernel.run::<Avx512>() }
}

#[allow(clippy::undocumented_unsafe_blocks)] // every block: enabled and valid by the trait's contract
impl F32s for Avx512 {
    const LANES: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(ptr: *const f32) -> Self {
        Self(unsafe { _mm512_loadu_ps(ptr) })
    }
    #[inline(always)]
    unsafe fn store(self, ptr: *mut f32) {
        unsafe { _mm512_storeu_ps(ptr, self.0) }
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> Self {
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(ptr.cast())) })
    }
    #[inline(always)]
    unsafe fn store_f16(self, ptr: *mut u16) {
        unsafe {
            _mm256_storeu_si256(
                ptr.cast(),
                _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0),
            );
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        Self(unsafe { _mm512_add_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        Self(unsafe { _mm512_sub_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        Self(unsafe { _mm512_mul_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        Self(unsafe { _mm512_div_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Self(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // The instruction returns its second operand when either is NaN.
        Self(unsafe { _mm512_max_ps(b.0, self.0) })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        Self(unsafe { _mm512_min_ps(b.0, self.0) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Self(unsafe { _mm512_abs_ps(self.0) })
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        unsafe {
            let bit = _mm512_set1_ps(-0.0);
            Self(_mm512_or_ps(
                _mm512_andnot_ps(bit, self.0),
                _mm512_and_ps(bit, sign.0),
            ))
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Self(unsafe {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn scale_by_power(self, n: Self) -> Self {
        Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn keep(self, from: usize, to: usize, fill: Self) -> Self {
        let below = |n: usize| (1u32 << n.min(16)) - 1;
        let mask = (below(to) & !below(from)) as __mmask16;
        Self(unsafe { _mm512_mask_blend_ps(mask, fill.0, self.0) })
    }
    #[inline(always)]
    unsafe fn zero_where_less(self, x: Self, limit: Self) -> Self {
        unsafe {
            let kept = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x.0, limit.0);
            Self(_mm512_maskz_mov_ps(kept, self.0))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { _mm512_reduce_add_ps(self.0) }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        unsafe { _mm512_reduce_max_ps(self.0) }
    }
}
