//! The backends by name.

use kvant_cpu::{CpuBackend, Level};
use kvant_device::{Backend, Caps};
use kvant_engine::{Engine, EngineOptions, LoadProgress, MemoryPlan};
use kvant_format::block_on;
use kvant_model::Model;
use kvant_reference::ReferenceBackend;

use super::args::{BackendKind, EngineArgs};
use super::runtime::Runtime;
use crate::error::CliError;

/// Runs `$body` with `$backend` bound to the backend that the arguments name.
macro_rules! with_backend {
    ($args:expr, $backend:ident => $body:expr) => {
        match $args.backend {
            BackendKind::Cpu => {
                let level =
                    Level::from_env().map_err(|error| CliError::Usage(error.to_string()))?;
                let $backend = CpuBackend::with_level($args.threads, level);
                $body
            }
            BackendKind::Reference => {
                let $backend = ReferenceBackend::default();
                $body
            }
        }
    };
}

/// Loads a model on the backend that the arguments name.
pub(super) fn load(
    args: &EngineArgs,
    model: &Model,
    options: EngineOptions,
    on_progress: impl FnMut(LoadProgress),
) -> Result<Box<dyn Runtime>, CliError> {
    with_backend!(args, backend => load_on(backend, model, options, on_progress))
}

fn load_on<B: Backend>(
    backend: B,
    model: &Model,
    options: EngineOptions,
    on_progress: impl FnMut(LoadProgress),
) -> Result<Box<dyn Runtime>, CliError> {
    let engine = block_on(Engine::load(backend, model, options, on_progress))?;
    Ok(Box::new(engine))
}

/// What the backend is.
pub fn caps(args: &EngineArgs) -> Result<Caps, CliError> {
    with_backend!(args, backend => Ok(backend.caps().clone()))
}

/// What a model will take on the backend that the arguments name.
pub fn memory_plan(
    args: &EngineArgs,
    model: &Model,
    options: &EngineOptions,
) -> Result<MemoryPlan, CliError> {
    with_backend!(args, backend => Ok(MemoryPlan::new(&backend, model, options)?))
}
