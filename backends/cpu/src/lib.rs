//! SIMD kernels and a thread team for x86-64, AArch64 and plain Rust.

// Kernels are written with intrinsics and raw pointers; each block says why it is sound.
#![allow(unsafe_code)]

mod arch;
pub mod matmul;
pub mod weights;

pub use arch::{Level, LevelError};
