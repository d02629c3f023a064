//! Eight lanes of AVX2 with FMA and F16C.

use super::{F32s, Kernel};
use std::arch::x86_64::*;

/// Eight lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

/// Runs a kernel compiled for AVX2.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C; what the kernel asks for holds.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: by the caller.
    unsafe { kernel.run::<Avx2>() }
}

#[allow(clippy::undocumented_unsafe_blocks)] // every block: enabled and valid by the trait's contract
impl F32s for Avx2 {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self(unsafe { _mm256_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(ptr: *const f32) -> Self {
        Self(unsafe { _mm256_loadu_ps(ptr) })
    }
    #[inline(always)]
    unsafe fn store(self, ptr: *mut f32) {
        unsafe { _mm256_storeu_ps(ptr, self.0) }
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> Self {
        Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(ptr.cast())) })
    }
    #[inline(always)]
    unsafe fn store_f16(self, ptr: *mut u16) {
        unsafe {
            _mm_storeu_si128(
                ptr.cast(),
                _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0),
            );
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        Self(unsafe { _mm256_add_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        Self(unsafe { _mm256_sub_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        Self(unsafe { _mm256_mul_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        Self(unsafe { _mm256_div_ps(self.0, b.0) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Self(unsafe { _mm256_fmadd_ps(self.0, b.0, c.0) })
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // The instruction returns its second operand when either is NaN.
        Self(unsafe { _mm256_max_ps(b.0, self.0) })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        Self(unsafe { _mm256_min_ps(b.0, self.0) })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Self(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        unsafe {
            let bit = _mm256_set1_ps(-0.0);
            Self(_mm256_or_ps(
                _mm256_andnot_ps(bit, self.0),
                _mm256_and_ps(bit, sign.0),
            ))
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        Self(unsafe {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }
    #[inline(always)]
    unsafe fn scale_by_power(self, n: Self) -> Self {
        unsafe {
            let n = _mm256_cvtps_epi32(n.0);
            // Two steps: 2^n itself may lie outside the normal range.
            let half = _mm256_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi32(127);
            let power = |e| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(e, bias)));
            let x = _mm256_mul_ps(self.0, power(half));
            Self(_mm256_mul_ps(x, power(_mm256_sub_epi32(n, half))))
        }
    }
    #[inline(always)]
    unsafe fn keep(self, from: usize, to: usize, fill: Self) -> Self {
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let above = _mm256_cmpgt_epi32(_mm256_set1_epi32(from.min(8) as i32), lane);
            let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(to.min(8) as i32), lane);
            let mask = _mm256_castsi256_ps(_mm256_andnot_si256(above, below));
            Self(_mm256_blendv_ps(fill.0, self.0, mask))
        }
    }
    #[inline(always)]
    unsafe fn zero_where_less(self, x: Self, limit: Self) -> Self {
        unsafe {
            let less = _mm256_cmp_ps::<_CMP_LT_OQ>(x.0, limit.0);
            Self(_mm256_andnot_ps(less, self.0))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe {
            let x = _mm_add_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        unsafe {
            let x = _mm_max_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
}
