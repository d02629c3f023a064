//! The table of op cases that every backend is tested, benched and queried with.
//!
//! A [`Case`] is a small program with its weights, its steps and its tolerance. [`run`] runs it on any
//! backend; [`check`] compares two results. Activations enter a program by an `Embed` from an f32
//! table, so a case needs nothing beyond the op list.
mod build;
mod case;
mod cases;
mod kv_cases;
mod run;

pub use case::{Case, CaseSequence, CaseStep, CaseWeight, Tolerance};
pub use cases::{cases, matmul_cases, row_cases};
pub use kv_cases::attention_cases;
pub use run::{Mismatch, RunError, check, run};
