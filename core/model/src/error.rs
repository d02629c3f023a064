//! Errors of model loading.

use kvant_device::DeviceError;
use kvant_format::{MetadataError, ReadError, UnsupportedFormat};

/// Why a model cannot be described, built or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No architecture of that name.
    #[error("unknown architecture {found:?}; known are {}", known.join(", "))]
    UnknownArchitecture {
        /// The name in the file.
        found: String,
        /// Names that would work.
        known: Vec<&'static str>,
    },
    /// A key that the architecture needs is missing.
    #[error("the model's configuration lacks {key}")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key has a value that makes no sense.
    #[error("{key} is {found}; {wanted}")]
    BadValue {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What would do.
        wanted: String,
    },
    /// The file lacks a tensor.
    #[error(
        "the model lacks tensor {tensor} ({role}); the file is incomplete or of another architecture"
    )]
    MissingTensor {
        /// The tensor.
        tensor: String,
        /// What it is for.
        role: String,
    },
    /// A tensor has another shape than the configuration says.
    #[error("tensor {tensor} has shape {found:?}, the configuration asks for {wanted:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Its shape, outermost first.
        found: Vec<usize>,
        /// The shape wanted.
        wanted: Vec<usize>,
    },
    /// A tensor has an element format that cannot be used.
    #[error("tensor {tensor}: {source}")]
    TensorFormat {
        /// The tensor.
        tensor: String,
        /// What is wrong with its format.
        source: UnsupportedFormat,
    },
    /// A metadata entry is missing or of another type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A tensor cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A tensor's bytes cannot be decoded.
    #[error("tensor {tensor}: {source}")]
    Decode {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        source: kvant_quant::QuantError,
    },
    /// The device refuses.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
