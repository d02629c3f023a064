//! SIMD kernels and a thread team for x86-64, AArch64 and plain Rust.
//!
//! - `arch`: instruction sets, and the one in use.
//! - [`weights`]: weights repacked for the kernels. [`matmul`]: products with them.
//! - `vector`: f32 vectors of any instruction set. `ops`, `attention`, `kv`: kernels over them.
//! - `exec`: a program as a list of phases, and a step's way through them. `team`: the threads.
//! - `read_probe`: the speed of memory, which bounds decoding.
//! - `backend`: what the engine sees.

// Kernels are written with intrinsics and raw pointers; each block says why it is sound.
#![allow(unsafe_code)]

mod arch;
mod attention;
mod backend;
mod exec;
mod kv;
pub mod matmul;
mod memory;
mod ops;
mod read_probe;
mod team;
mod vector;
pub mod weights;

pub use arch::{Level, LevelError};
pub use backend::{CpuBackend, CpuUpload, CpuWeight};
pub use exec::CpuExec;
pub use memory::CpuBuffer;
pub use read_probe::read_bytes_per_second;
pub use team::default_threads;
