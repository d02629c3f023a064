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
