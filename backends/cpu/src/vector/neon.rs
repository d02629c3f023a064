//! Eight lanes in two NEON registers, so that loops are as long as with AVX2.

use super::{F32s, Kernel};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::arch::aarch64::*;

/// Eight lanes.
#[derive(Clone, Copy)]
pub(crate) struct Neon(float32x4_t, float32x4_t);

/// Runs a kernel compiled for NEON.
///
/// # Safety
/// The CPU has NEON; what the kernel asks for holds.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: by the caller.
    unsafe { kernel.run::<Neon>() }
}

#[allow(clippy::undocumented_unsafe_blocks)] // every block: enabled and valid by the trait's contract
impl F32s for Neon {
    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        let v = unsafe { vdupq_n_f32(x) };
        Self(v, v)
    }
    #[inline(always)]
    unsafe fn load(ptr: *const f32) -> Self {
        unsafe { Self(vld1q_f32(ptr), vld1q_f32(ptr.add(4))) }
    }
    #[inline(always)]
    unsafe fn store(self, ptr: *mut f32) {
        unsafe {
            vst1q_f32(ptr, self.0);
            vst1q_f32(ptr.add(4), self.1);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> Self {
        unsafe {
            let convert = |bits: uint16x4_t| {
                // Shift into place, then let a multiplication by 2^112 fix bias and subnormals.
                let wide = vmovl_u16(bits);
                let sign = vshlq_n_u32::<16>(vandq_u32(wide, vdupq_n_u32(0x8000)));
                let rest = vshlq_n_u32::<13>(vandq_u32(wide, vdupq_n_u32(0x7fff)));
                let finite = vmulq_f32(
                    vreinterpretq_f32_u32(rest),
                    vreinterpretq_f32_u32(vdupq_n_u32(0x7780_0000)),
                );
                let special = vorrq_u32(rest, vdupq_n_u32(0x7f80_0000));
                let is_special = vcgeq_u32(rest, vdupq_n_u32(0x7c00 << 13));
                let chosen = vbslq_u32(is_special, special, vreinterpretq_u32_f32(finite));
                vreinterpretq_f32_u32(vorrq_u32(chosen, sign))
            };
            let bits = vld1q_u16(ptr);
            Self(convert(vget_low_u16(bits)), convert(vget_high_u16(bits)))
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, ptr: *mut u16) {
        let mut wide = [0f32; 8];
        let mut narrow = [f16::ZERO; 8];
        unsafe {
            self.store(wide.as_mut_ptr());
            narrow.convert_from_f32_slice(&wide);
            ptr.cast::<[f16; 8]>().write_unaligned(narrow);
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        unsafe { Self(vaddq_f32(self.0, b.0), vaddq_f32(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        unsafe { Self(vsubq_f32(self.0, b.0), vsubq_f32(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        unsafe { Self(vmulq_f32(self.0, b.0), vmulq_f32(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        unsafe { Self(vdivq_f32(self.0, b.0), vdivq_f32(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        unsafe { Self(vfmaq_f32(c.0, self.0, b.0), vfmaq_f32(c.1, self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        unsafe { Self(vmaxq_f32(self.0, b.0), vmaxq_f32(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        unsafe { Self(vminq_f32(self.0, b.0), vminq_f32(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        unsafe { Self(vabsq_f32(self.0), vabsq_f32(self.1)) }
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        unsafe {
            let bit = vdupq_n_u32(0x8000_0000);
            Self(
                vbslq_f32(bit, sign.0, self.0),
                vbslq_f32(bit, sign.1, self.1),
            )
        }
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        unsafe { Self(vrndnq_f32(self.0), vrndnq_f32(self.1)) }
    }
    #[inline(always)]
    unsafe fn scale_by_power(self, n: Self) -> Self {
        unsafe {
            let scale = |x: float32x4_t, n: float32x4_t| {
                let n = vcvtnq_s32_f32(n);
                // Two steps: 2^n itself may lie outside the normal range.
                let half = vshrq_n_s32::<1>(n);
                let bias = vdupq_n_s32(127);
                let power = |e| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(e, bias)));
                vmulq_f32(vmulq_f32(x, power(half)), power(vsubq_s32(n, half)))
            };
            Self(scale(self.0, n.0), scale(self.1, n.1))
        }
    }
    #[inline(always)]
    unsafe fn keep(self, from: usize, to: usize, fill: Self) -> Self {
        unsafe {
            const IOTA: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
            let (from, to) = (
                vdupq_n_u32(from.min(8) as u32),
                vdupq_n_u32(to.min(8) as u32),
            );
            let pick = |lane, x, fill| {
                let inside = vandq_u32(vcgeq_u32(lane, from), vcltq_u32(lane, to));
                vbslq_f32(inside, x, fill)
            };
            Self(
                pick(vld1q_u32(IOTA.as_ptr()), self.0, fill.0),
                pick(vld1q_u32(IOTA.as_ptr().add(4)), self.1, fill.1),
            )
        }
    }
    #[inline(always)]
    unsafe fn zero_where_less(self, x: Self, limit: Self) -> Self {
        unsafe {
            let pick = |v: float32x4_t, x, limit| {
                vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(x, limit)))
            };
            Self(pick(self.0, x.0, limit.0), pick(self.1, x.1, limit.1))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { vaddvq_f32(vaddq_f32(self.0, self.1)) }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        unsafe { vmaxvq_f32(vmaxq_f32(self.0, self.1)) }
    }
}
