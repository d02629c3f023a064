//! Tests of what crosses crates: whole models on every backend.
pub mod properties;
pub mod tiny;
