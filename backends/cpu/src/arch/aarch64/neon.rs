//! NEON with the dot product instructions: 4 lanes.

// Safety is the contract of the trait, stated once there.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::arch::Simd;
use std::arch::aarch64::*;
use std::arch::asm;

/// 128-bit vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon;

/// Adds four signed products a lane: chunk `LANE` of the 16 activations in `x`. The intrinsic for this
/// is not stable yet.
#[inline(always)]
unsafe fn sdot<const LANE: i32>(acc: int32x4_t, codes: int8x16_t, x: int8x16_t) -> int32x4_t {
    let mut acc = acc;
    asm!(
        "sdot {acc:v}.4s, {codes:v}.16b, {x:v}.4b[{lane}]",
        acc = inout(vreg) acc,
        codes = in(vreg) codes,
        x = in(vreg) x,
        lane = const LANE,
        options(pure, nomem, nostack, preserves_flags),
    );
    acc
}

impl Simd for Neon {
    const ROWS: usize = 4;
    const WIDE_KEEPS_BIAS: bool = false;
    const MANY_GROUPS: usize = 1;
    const MANY_ROWS: usize = 4;

    type I = uint32x4_t;
    type F = float32x4_t;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> uint32x4_t {
        vreinterpretq_u32_u8(vld1q_u8(p))
    }
    #[inline(always)]
    unsafe fn splat_u8(v: u8) -> uint32x4_t {
        vreinterpretq_u32_u8(vdupq_n_u8(v))
    }
    #[inline(always)]
    unsafe fn splat_i32(v: i32) -> uint32x4_t {
        vdupq_n_u32(v.cast_unsigned())
    }
    #[inline(always)]
    unsafe fn and(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        vandq_u32(a, b)
    }
    #[inline(always)]
    unsafe fn or_masked(a: uint32x4_t, b: uint32x4_t, mask: uint32x4_t) -> uint32x4_t {
        vorrq_u32(a, vandq_u32(b, mask))
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: uint32x4_t) -> uint32x4_t {
        vshlq_u32(a, vdupq_n_s32(N))
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: uint32x4_t) -> uint32x4_t {
        vshlq_u32(a, vdupq_n_s32(-N))
    }
    #[inline(always)]
    unsafe fn sra<const N: i32>(a: uint32x4_t) -> uint32x4_t {
        vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(a), vdupq_n_s32(-N)))
    }
    #[inline(always)]
    unsafe fn add_i32(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        vaddq_u32(a, b)
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: uint32x4_t) -> uint32x4_t {
        let table = vld1q_u8(table.as_ptr());
        vreinterpretq_u32_u8(vqtbl1q_u8(table, vreinterpretq_u8_u32(index)))
    }
    #[inline(always)]
    unsafe fn dot<const N: usize>(
        acc: uint32x4_t,
        codes: [uint32x4_t; N],
        x: *const i8,
        max: u32,
    ) -> uint32x4_t {
        let mut acc = vreinterpretq_s32_u32(acc);
        for quarter in 0..N / 4 {
            let x = vld1q_s8(x.add(16 * quarter));
            let mut signed = [x; 4];
            for c in 0..4 {
                let code = vreinterpretq_u8_u32(codes[4 * quarter + c]);
                // Codes up to 127 are the same signed; larger ones count from 128.
                let code = if max > 127 {
                    veorq_u8(code, vdupq_n_u8(0x80))
                } else {
                    code
                };
                signed[c] = vreinterpretq_s8_u8(code);
            }
            acc = sdot::<0>(acc, signed[0], x);
            acc = sdot::<1>(acc, signed[1], x);
            acc = sdot::<2>(acc, signed[2], x);
            acc = sdot::<3>(acc, signed[3], x);
        }
        vreinterpretq_u32_s32(acc)
    }
    #[inline(always)]
    unsafe fn to_f32(a: uint32x4_t) -> float32x4_t {
        vcvtq_f32_s32(vreinterpretq_s32_u32(a))
    }
    #[inline(always)]
    unsafe fn round_i32(a: float32x4_t) -> uint32x4_t {
        vreinterpretq_u32_s32(vcvtnq_s32_f32(a))
    }
    #[inline(always)]
    unsafe fn as_f32(a: uint32x4_t) -> float32x4_t {
        vreinterpretq_f32_u32(a)
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> float32x4_t {
        vld1q_f32(p)
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, a: float32x4_t) {
        vst1q_f32(p, a)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> float32x4_t {
        let bits: uint16x4_t = vreinterpret_u16_u8(vld1_u8(p));
        vcvt_f32_f16(vreinterpret_f16_u16(bits))
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> float32x4_t {
        let bits: uint16x4_t = vreinterpret_u16_u8(vld1_u8(p));
        vreinterpretq_f32_u32(vshll_n_u16::<16>(bits))
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> uint32x4_t {
        let bytes = p.cast::<[u8; 4]>().read();
        let wide = vcreate_u8(u64::from(u32::from_le_bytes(bytes)));
        vmovl_u16(vget_low_u16(vmovl_u8(wide)))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> uint32x4_t {
        let bytes = p.cast::<[u8; 4]>().read();
        let wide = vcreate_s8(u64::from(u32::from_le_bytes(bytes)));
        vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(vmovl_s8(wide))))
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> float32x4_t {
        vdupq_n_f32(v)
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vaddq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vsubq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vmulq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vdivq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        vfmaq_f32(c, a, b)
    }
    #[inline(always)]
    unsafe fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vmaxnmq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        vminnmq_f32(a, b)
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(nostack, readonly, preserves_flags));
    }
    #[inline(always)]
    unsafe fn prefetch_far(p: *const u8) {
        asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(nostack, readonly, preserves_flags));
    }
}
