//! A model's files, of whichever kind.

use crate::gguf::{Gguf, GgufError};
use crate::hf::{HfError, HfFolder};
use crate::store::TensorStore;
use crate::tensor::TensorInfo;

/// A model as a loader sees it: GGUF or a Hugging Face folder.
#[derive(Debug)]
pub enum Checkpoint {
    /// A GGUF model, whole or split.
    Gguf(Gguf),
    /// A Hugging Face folder.
    HfFolder(Box<HfFolder>),
}

/// A model that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A GGUF file is damaged or missing.
    #[error("{path}: {error}")]
    Gguf {
        /// The file.
        path: String,
        /// What is wrong.
        error: Box<GgufError>,
    },
    /// A folder is damaged or missing.
    #[error("{path}: {error}")]
    HfFolder {
        /// The folder.
        path: String,
        /// What is wrong.
        error: Box<HfError>,
    },
    /// Nothing is there.
    #[error("{path}: no such file or folder")]
    NotFound {
        /// The path asked for.
        path: String,
    },
}

impl Checkpoint {
    /// The tensors and how to read them.
    pub fn store(&self) -> &TensorStore {
        match self {
            Self::Gguf(gguf) => &gguf.tensors,
            Self::HfFolder(folder) => &folder.tensors,
        }
    }

    /// Every tensor, in the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        self.store().tensors()
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.store().tensor(name)
    }
}
