//! Plain Rust vectors of eight lanes, which the compiler turns into whatever the target has
//! (simd128 on wasm32).

use super::F32s;
use half::f16;

const LANES: usize = 8;

/// Eight lanes.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Self(self.0.map(f))
    }
    #[inline(always)]
    fn zip(self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = f(self.0[i], b.0[i]);
        }
        Self(out)
    }
}

#[allow(clippy::undocumented_unsafe_blocks)] // every block: pointers valid by the trait's contract
impl F32s for Portable {
    const LANES: usize = LANES;
    const REGISTERS: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(ptr: *const f32) -> Self {
        Self(unsafe { ptr.cast::<[f32; LANES]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, ptr: *mut f32) {
        unsafe { ptr.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> Self {
        let bits = unsafe { ptr.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(f16_to_f32))
    }
    #[inline(always)]
    unsafe fn store_f16(self, ptr: *mut u16) {
        let bits = self.0.map(|x| f16::from_f32(x).to_bits());
        unsafe { ptr.cast::<[u16; LANES]>().write_unaligned(bits) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        self.zip(b, |x, y| x + y)
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        self.zip(b, |x, y| x - y)
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        self.zip(b, |x, y| x * y)
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        self.zip(b, |x, y| x / y)
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // `f32::mul_add` would call a library function where the target has no such instruction.
        self.zip(b, |x, y| x * y).zip(c, |x, y| x + y)
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        self.zip(b, |x, y| if x < y { y } else { x })
    }
    #[inline(always)]
    unsafe fn min(self, b: Self) -> Self {
        self.zip(b, |x, y| if x > y { y } else { x })
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        self.map(f32::abs)
    }
    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        self.zip(sign, f32::copysign)
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // Adding 1.5 * 2^23 leaves no fraction bits; larger numbers are whole already.
        self.map(|x| {
            let magic = 12_582_912.0;
            if x.abs() < 4_194_304.0 {
                (x + magic) - magic
            } else {
                x
            }
        })
    }
    #[inline(always)]
    unsafe fn scale_by_power(self, n: Self) -> Self {
        self.zip(n, |x, n| {
            let n = n as i32;
            // Two steps: 2^n itself may lie outside the normal range.
            let half = n >> 1;
            let power = |e: i32| f32::from_bits(((e + 127) << 23) as u32);
            x * power(half) * power(n - half)
        })
    }
    #[inline(always)]
    unsafe fn keep(self, from: usize, to: usize, fill: Self) -> Self {
        let mut out = fill.0;
        for i in 0..LANES {
            if i >= from && i < to {
                out[i] = self.0[i];
            }
        }
        Self(out)
    }
    #[inline(always)]
    unsafe fn zero_where_less(self, x: Self, limit: Self) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            if x.0[i] < limit.0[i] {
                out[i] = 0.0;
            }
        }
        Self(out)
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let x = self.0;
        ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        self.0
            .iter()
            .fold(f32::NEG_INFINITY, |a, &b| if a < b { b } else { a })
    }
}

/// Without branches, so that loops over it become vector code: shifts exponent and mantissa into
/// place and lets a multiplication by 2^112 fix the bias and the subnormals.
#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let rest = u32::from(bits & 0x7fff);
    let finite = (f32::from_bits(rest << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let special = 0x7f80_0000 | (rest << 13);
    f32::from_bits(sign | if rest >= 0x7c00 { special } else { finite })
}

#[cfg(test)]
mod tests {
    use super::f16_to_f32;
    use half::f16;

    #[test]
    fn every_binary16_converts() {
        for bits in 0..=u16::MAX {
            let (ours, right) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(
                ours.to_bits() == right.to_bits() || (ours.is_nan() && right.is_nan()),
                "{bits:#x}"
            );
        }
    }
}
