//! Errors of the engine.

use crate::sampler::SamplerError;
use kvant_device::DeviceError;
use kvant_format::{HfError, MetadataError};
use kvant_kv::KvError;
use kvant_model::ModelError;
use kvant_text::TextError;

/// Why the engine refuses or fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A size makes no sense.
    #[error("{field} is {value}; {wanted}")]
    Option {
        /// The field of the options or of the request.
        field: &'static str,
        /// Its value.
        value: usize,
        /// What would do.
        wanted: &'static str,
    },
    /// The prompt has no tokens.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt_tokens} tokens and the context holds {context_len}, of which one is needed for the \
         answer; shorten the prompt or raise the context"
    )]
    ContextLength {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens the context holds.
        context_len: usize,
    },
    /// A token id that the model does not have.
    #[error("token {token} at position {position} is outside the vocabulary of {vocab_size}")]
    Token {
        /// Its place in the prompt.
        position: usize,
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// The engine is busy with as many sequences as it can hold.
    #[error("the engine already holds {max_sequences} sequences")]
    Full {
        /// Most sequences at a time.
        max_sequences: usize,
    },
    /// No such sequence.
    #[error("sequence {id} is not in the engine; it has ended or was aborted")]
    UnknownSequence {
        /// The id.
        id: u64,
    },
    /// Scoring needs the engine for itself.
    #[error("the engine has {running} sequences; scoring needs it idle")]
    Busy {
        /// Sequences in the engine.
        running: usize,
    },
    /// The model cannot be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Blocks ran out or are misused.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The checkpoint has no tokenizer.
    #[error(
        "the model has no tokenizer; use a GGUF file with a vocabulary, or a folder with tokenizer.json"
    )]
    NoTokenizer,
    /// A metadata entry is of another type than the tokenizer needs.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// `tokenizer.json` cannot be read.
    #[error("tokenizer.json: {0}")]
    TokenizerFile(#[source] HfError),
    /// The tokenizer or the chat template is wrong.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The sampler's options are wrong.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}
