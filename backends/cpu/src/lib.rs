//! SIMD kernels and a thread team for x86-64, AArch64 and plain Rust.
