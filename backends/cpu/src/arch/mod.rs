//! Instruction sets: which exist, which one this machine has, and the vector type of each.
//!
//! Algorithms are written once, generic over [`Simd`], as `#[inline(always)]` functions. Each
//! instruction set instantiates them in functions that carry its `#[target_feature]`.

mod level;
pub(crate) mod scalar;
pub(crate) mod simd;

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

pub use level::{Level, LevelError};
pub(crate) use simd::Simd;

/// Asks for the cache line at `address` before it is needed, into the second-level cache: the first
/// level takes too few requests at a time to hide the way to memory. A hint; any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch of any address is harmless.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch of any address is harmless.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Bytes that one [`prefetch`] brings.
pub(crate) const CACHE_LINE_BYTES: usize = 64;
