//! How a command fails: one line that says what to do, and an exit status.

use std::io;
use std::path::{Path, PathBuf};

use kvant_engine::EngineError;
use kvant_engine::sampler::SamplerError;
use kvant_format::CheckpointError;
use kvant_model::ModelError;

use crate::pull::PullError;
use crate::signals::Signal;

/// Why a command ended without doing its work.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The model could not be had.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// The model's files cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The model's files do not make a model.
    #[error("{}: {source}", path.display())]
    Model {
        /// File or folder.
        path: PathBuf,
        /// What is wrong.
        source: Box<ModelError>,
    },
    /// The prompt is too long.
    #[error(
        "the prompt has {prompt_tokens} tokens, but the context holds {context_len} with the answer; shorten it or pass --ctx {}", needed(*prompt_tokens)
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context.
        context_len: usize,
    },
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// A file cannot be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Input that has to be text is not.
    #[error("{what} is not UTF-8 (byte {at}); convert it first, for example with `iconv -t UTF-8`")]
    NotUtf8 {
        /// File or standard input.
        what: String,
        /// Index of the first wrong byte.
        at: usize,
    },
    /// Standard input or output failed.
    #[error("{stream}: {source}")]
    Stream {
        /// Which of them.
        stream: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Whoever read standard output has gone.
    #[error("nobody reads the output any more")]
    BrokenPipe,
    /// The command line makes no sense for this model.
    #[error("{0}")]
    Usage(String),
    /// Anything else that is plain to say.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C or SIGTERM; it has been reported.
    #[error("stopped")]
    Stopped(Signal),
}

/// A context that surely holds the prompt and some answer.
fn needed(prompt_tokens: usize) -> usize {
    (prompt_tokens + 256).next_multiple_of(1024)
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::ContextLength {
                prompt_tokens,
                context_len,
            } => Self::PromptTooLong {
                prompt_tokens,
                context_len,
            },
            error => Self::Engine(Box::new(error)),
        }
    }
}

impl From<SamplerError> for CliError {
    fn from(error: SamplerError) -> Self {
        Self::Engine(Box::new(error.into()))
    }
}

impl CliError {
    /// A failed file operation.
    pub fn file(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    /// Names the model's file where the engine found fault with it.
    pub fn of_model(self, path: &Path) -> Self {
        match self {
            Self::Engine(error) => match *error {
                EngineError::Model(source) => Self::Model {
                    path: path.to_owned(),
                    source: Box::new(source),
                },
                error => Self::Engine(Box::new(error)),
            },
            error => error,
        }
    }

    /// A failed write to standard output.
    pub fn output(source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::Stream {
            stream: "standard output",
            source,
        }
    }

    /// Exit status of the program: 0 where the reader of the output has gone, 2 for a command line
    /// that makes no sense, 128 + the signal's number when one ended it, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Pull(error) => error.exit_code(),
            Self::BrokenPipe => 0,
            Self::Usage(_) => 2,
            Self::Stopped(signal) => signal.exit_code() as u8,
            _ => 1,
        }
    }

    /// Whether there is something to say.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::BrokenPipe | Self::Stopped(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let error = CliError::output(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(error.is_silent());
        assert_eq!(error.exit_code(), 0);
        let error = CliError::output(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!error.is_silent());
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn the_context_named_is_large_enough() {
        let error = CliError::from(EngineError::ContextLength {
            prompt_tokens: 5000,
            context_len: 4096,
        });
        assert!(error.to_string().ends_with("--ctx 6144"), "{error}");
    }
}
