//! Sequences, scheduler, sampler and the engine that drives a backend.
mod engine;
mod error;
pub mod eval;
mod memory;
mod options;
mod request;
pub mod sampler;
pub mod scheduler;
mod text_stream;
pub mod vocabulary;

pub use engine::Engine;
pub use error::EngineError;
pub use kvant_model::LoadProgress;
pub use memory::MemoryPlan;
pub use options::EngineOptions;
pub use request::{Event, FinishReason, Request, SequenceId};
pub use text_stream::TextStream;
