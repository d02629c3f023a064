//! An engine whose backend is not known by type, so that commands are compiled once.

use kvant_device::{Backend, Caps};
use kvant_engine::eval::{EvalOptions, EvalRow, evaluate};
use kvant_engine::{Engine, EngineOptions, Event, MemoryPlan, Request, SequenceId};
use kvant_format::block_on;

use crate::error::CliError;

/// What commands ask of an engine; see [`Engine`] for each.
pub trait Runtime {
    /// What the device is.
    fn caps(&self) -> &Caps;
    /// What was allocated.
    fn memory(&self) -> &MemoryPlan;
    /// The sizes in use.
    fn options(&self) -> &EngineOptions;
    /// Size of the vocabulary.
    fn vocab_size(&self) -> usize;
    /// Admits a sequence.
    fn add(&mut self, request: Request) -> Result<SequenceId, CliError>;
    /// Ends a sequence.
    fn abort(&mut self, id: SequenceId) -> Result<(), CliError>;
    /// Ends every sequence.
    fn cleanup(&mut self);
    /// Runs one step.
    fn step(&mut self) -> Result<Vec<Event>, CliError>;
    /// Runs a text and hands on the logits of the measured rows.
    fn evaluate(
        &mut self,
        tokens: &[u32],
        options: &EvalOptions,
        sink: &mut dyn FnMut(EvalRow<'_>),
    ) -> Result<(), CliError>;
}

impl<B: Backend> Runtime for Engine<B> {
    fn caps(&self) -> &Caps {
        self.backend().caps()
    }

    fn memory(&self) -> &MemoryPlan {
        self.memory()
    }

    fn options(&self) -> &EngineOptions {
        self.options()
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size()
    }

    fn add(&mut self, request: Request) -> Result<SequenceId, CliError> {
        Ok(self.add(request)?)
    }

    fn abort(&mut self, id: SequenceId) -> Result<(), CliError> {
        Ok(self.abort(id)?)
    }

    fn cleanup(&mut self) {
        self.cleanup();
    }

    fn step(&mut self) -> Result<Vec<Event>, CliError> {
        Ok(block_on(self.step())?)
    }

    fn evaluate(
        &mut self,
        tokens: &[u32],
        options: &EvalOptions,
        sink: &mut dyn FnMut(EvalRow<'_>),
    ) -> Result<(), CliError> {
        Ok(block_on(evaluate(self, tokens, options, sink))?)
    }
}
