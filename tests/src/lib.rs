//! Tests of what crosses crates: whole models on every backend.
pub mod architectures;
pub mod golden;
pub mod properties;
pub mod tiny;
