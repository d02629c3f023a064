//! f32 vectors of every instruction set behind one trait, so that each algorithm is written once.
//!
//! A kernel is a value that implements [`Kernel`]: its `run` is generic over the vector type and
//! inlined into a function compiled for the chosen instruction set by [`dispatch`].

mod math;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use math::{erf, exp, sigmoid, tanh};

/// A vector of `LANES` f32.
///
/// # Safety
/// Every method may be called only where the type's instruction set is enabled; pointers must be
/// valid for `LANES` elements, of any alignment.
pub(crate) trait F32s: Copy {
    /// Elements.
    const LANES: usize;
    /// Vector registers that an inner loop may count on.
    const REGISTERS: usize;

    /// All lanes `x`.
    unsafe fn splat(x: f32) -> Self;
    /// Loads `LANES` elements.
    unsafe fn load(ptr: *const f32) -> Self;
    /// Stores `LANES` elements.
    unsafe fn store(self, ptr: *mut f32);
    /// Loads `LANES` binary16 elements.
    unsafe fn load_f16(ptr: *const u16) -> Self;
    /// Stores `LANES` elements as binary16, to nearest even.
    unsafe fn store_f16(self, ptr: *mut u16);
    /// `self + b`.
    unsafe fn add(self, b: Self) -> Self;
    /// `self - b`.
    unsafe fn sub(self, b: Self) -> Self;
    /// `self * b`.
    unsafe fn mul(self, b: Self) -> Self;
    /// `self / b`.
    unsafe fn div(self, b: Self) -> Self;
    /// `self * b + c`, rounded once where the hardware can.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// The larger; `self` where it is NaN.
    unsafe fn max(self, b: Self) -> Self;
    /// The smaller; `self` where it is NaN.
    unsafe fn min(self, b: Self) -> Self;
    /// Without the sign.
    unsafe fn abs(self) -> Self;
    /// With the sign bit of `sign`.
    unsafe fn copysign(self, sign: Self) -> Self;
    /// To the nearest integer, ties to even.
    unsafe fn round(self) -> Self;
    /// `self * 2^n` for whole `n` with `-126 <= n <= 128`.
    unsafe fn scale_by_power(self, n: Self) -> Self;
    /// Lane `i` where `from <= i < to`, else `fill`.
    unsafe fn keep(self, from: usize, to: usize, fill: Self) -> Self;
    /// 0 in the lanes where `x < limit`, `self` elsewhere.
    unsafe fn zero_where_less(self, x: Self, limit: Self) -> Self;
    /// Sum of the lanes.
    unsafe fn sum(self) -> f32;
    /// The largest lane.
    unsafe fn largest(self) -> f32;
}

/// Loads the first `n <= LANES` elements, the rest 0.
///
/// # Safety
/// As [`F32s`]; `ptr` valid for `n` elements.
#[inline(always)]
pub(crate) unsafe fn load_first<V: F32s>(ptr: *const f32, n: usize) -> V {
    // SAFETY: by the caller; the copy is as long as the vector at most.
    unsafe {
        if n == V::LANES {
            return V::load(ptr);
        }
        let mut part = [0f32; MAX_LANES];
        std::ptr::copy_nonoverlapping(ptr, part.as_mut_ptr(), n);
        V::load(part.as_ptr())
    }
}

/// Stores the first `n <= LANES` elements.
///
/// # Safety
/// As [`F32s`]; `ptr` valid for `n` elements.
#[inline(always)]
pub(crate) unsafe fn store_first<V: F32s>(v: V, ptr: *mut f32, n: usize) {
    // SAFETY: by the caller; the copy is as long as the vector at most.
    unsafe {
        if n == V::LANES {
            return v.store(ptr);
        }
        let mut part = [0f32; MAX_LANES];
        v.store(part.as_mut_ptr());
        std::ptr::copy_nonoverlapping(part.as_ptr(), ptr, n);
    }
}

/// Lanes of the widest vector.
pub(crate) const MAX_LANES: usize = 16;

/// An algorithm over any vector type.
pub(crate) trait Kernel {
    /// What it gives.
    type Out;
    /// Runs it. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The instruction set of `V` is enabled, and what the kernel itself asks for holds.
    unsafe fn run<V: F32s>(self) -> Self::Out;
}

/// Runs a kernel with the widest vectors of an instruction set level.
///
/// # Safety
/// What the kernel asks for holds. That the level is available is checked when one is made.
pub(crate) unsafe fn dispatch<K: Kernel>(level: crate::Level, kernel: K) -> K::Out {
    // SAFETY: a level exists only where its instruction sets do; the rest by the caller.
    unsafe {
        match Vectors::of(level) {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => avx512::run(kernel),
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => avx2::run(kernel),
            #[cfg(target_arch = "aarch64")]
            Vectors::Neon => neon::run(kernel),
            Vectors::Portable => kernel.run::<portable::Portable>(),
        }
    }
}

/// Which vector type a level uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vectors {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Portable,
}

impl Vectors {
    fn of(level: crate::Level) -> Self {
        match level {
            #[cfg(target_arch = "x86_64")]
            crate::Level::Amx | crate::Level::Avx512Vnni => Self::Avx512,
            #[cfg(target_arch = "x86_64")]
            crate::Level::Avx2 => Self::Avx2,
            #[cfg(target_arch = "aarch64")]
            crate::Level::NeonDot => Self::Neon,
            _ => Self::Portable,
        }
    }
}

#[cfg(test)]
mod tests;
