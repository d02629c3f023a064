//! What is asked of the engine and what it answers.

use crate::sampler::{SampledToken, SamplerOptions};

/// Names a sequence of an engine. Ids are not used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// A prompt and how to go on from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampler: SamplerOptions,
    /// Tokens that end the sequence; they are reported and not fed back.
    pub stop_tokens: Vec<u32>,
    /// Most tokens to generate, at least one. The context length bounds it too.
    pub max_tokens: usize,
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token was chosen.
    Stop,
    /// `max_tokens` were generated.
    MaxTokens,
    /// The context is full.
    ContextLength,
}

/// Something that happened in a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A token was chosen.
    Token {
        /// The sequence.
        id: SequenceId,
        /// The token, its log-probability and the runners-up.
        token: SampledToken,
    },
    /// The sequence ended; its blocks are free again.
    Finished {
        /// The sequence.
        id: SequenceId,
        /// Why.
        reason: FinishReason,
    },
    /// The sequence cannot go on; its blocks are free again, others are not touched.
    Failed {
        /// The sequence.
        id: SequenceId,
        /// Why.
        error: crate::sampler::SamplerError,
    },
}
