//! The oracle: a plain interpreter of programs, never optimised.
//!
//! Weights are decoded to f32 as they arrive, sums run in f64, keys and values are kept as the KV
//! format keeps them. Whatever another backend computes is compared with this.
mod attention;
mod backend;
mod exec;
mod ops;

pub use backend::{RefBuffer, RefUpload, RefWeight, ReferenceBackend};
pub use exec::RefExec;
