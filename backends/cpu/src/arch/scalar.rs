//! Plain Rust: four lanes, which compilers turn into what the target has.

// Safety is the contract of the trait, stated once there.
#![allow(unsafe_op_in_unsafe_fn)]

use super::Simd;
use std::array::from_fn;

/// Arrays of four.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar;

impl Simd for Scalar {
    const ROWS: usize = 4;
    const WIDE_KEEPS_BIAS: bool = true;
    const MANY_GROUPS: usize = 1;
    const MANY_ROWS: usize = 1;

    type I = [u32; 4];
    type F = [f32; 4];

    #[inline(always)]
    unsafe fn load(p: *const u8) -> [u32; 4] {
        p.cast::<[[u8; 4]; 4]>().read().map(u32::from_le_bytes)
    }
    #[inline(always)]
    unsafe fn splat_u8(v: u8) -> [u32; 4] {
        [u32::from_le_bytes([v; 4]); 4]
    }
    #[inline(always)]
    unsafe fn splat_i32(v: i32) -> [u32; 4] {
        [v.cast_unsigned(); 4]
    }
    #[inline(always)]
    unsafe fn and(a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    unsafe fn or_masked(a: [u32; 4], b: [u32; 4], mask: [u32; 4]) -> [u32; 4] {
        from_fn(|i| a[i] | (b[i] & mask[i]))
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: [u32; 4]) -> [u32; 4] {
        a.map(|v| v << N)
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: [u32; 4]) -> [u32; 4] {
        a.map(|v| v >> N)
    }
    #[inline(always)]
    unsafe fn sra<const N: i32>(a: [u32; 4]) -> [u32; 4] {
        a.map(|v| (v.cast_signed() >> N).cast_unsigned())
    }
    #[inline(always)]
    unsafe fn add_i32(a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], index: [u32; 4]) -> [u32; 4] {
        index.map(|v| u32::from_le_bytes(v.to_le_bytes().map(|i| table[usize::from(i & 15)])))
    }
    #[inline(always)]
    unsafe fn dot<const N: usize>(
        acc: [u32; 4],
        codes: [[u32; 4]; N],
        x: *const i8,
        _max: u32,
    ) -> [u32; 4] {
        let mut acc = acc;
        for c in 0..N {
            let x: [i8; 4] = x.add(4 * c).cast::<[i8; 4]>().read();
            for lane in 0..4 {
                let codes = codes[c][lane].to_le_bytes();
                let sum: i32 = (0..4).map(|j| i32::from(codes[j]) * i32::from(x[j])).sum();
                acc[lane] = acc[lane].wrapping_add_signed(sum);
            }
        }
        acc
    }
    #[inline(always)]
    unsafe fn to_f32(a: [u32; 4]) -> [f32; 4] {
        a.map(|v| v.cast_signed() as f32)
    }
    #[inline(always)]
    unsafe fn round_i32(a: [f32; 4]) -> [u32; 4] {
        a.map(|v| (v.round_ties_even() as i32).cast_unsigned())
    }
    #[inline(always)]
    unsafe fn as_f32(a: [u32; 4]) -> [f32; 4] {
        a.map(f32::from_bits)
    }
    #[inline(always)]
    unsafe fn load_f32(p: *const f32) -> [f32; 4] {
        p.cast::<[f32; 4]>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn store_f32(p: *mut f32, a: [f32; 4]) {
        p.cast::<[f32; 4]>().write_unaligned(a)
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u8) -> [f32; 4] {
        let bits = p.cast::<[[u8; 2]; 4]>().read();
        bits.map(|b| half::f16::from_le_bytes(b).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u8) -> [f32; 4] {
        let bits = p.cast::<[[u8; 2]; 4]>().read();
        bits.map(|b| half::bf16::from_le_bytes(b).to_f32())
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> [u32; 4] {
        p.cast::<[u8; 4]>().read().map(u32::from)
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const u8) -> [u32; 4] {
        let bytes = p.cast::<[i8; 4]>().read();
        bytes.map(|b| i32::from(b).cast_unsigned())
    }
    #[inline(always)]
    unsafe fn splat(v: f32) -> [f32; 4] {
        [v; 4]
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn div(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|i| a[i] / b[i])
    }
    /// Two roundings: one would be a call into the mathematics library where there is no FMA.
    #[inline(always)]
    unsafe fn fma(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn min(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn prefetch(_p: *const u8) {}
    #[inline(always)]
    unsafe fn prefetch_far(_p: *const u8) {}
}
