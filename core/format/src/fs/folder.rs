//! Opening models by path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{MapSource, block_on};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::gguf::Gguf;
use crate::hf::{Folder, HfError, HfFolder};
use crate::source::{Source, SourceError};

/// A folder of the file system; its files are mapped into memory.
struct Directory(PathBuf);

impl Folder for Directory {
    fn file(&self, name: &str) -> Result<Option<Arc<dyn Source>>, SourceError> {
        let path = self.0.join(name);
        if !path.exists() {
            return Ok(None);
        }
        MapSource::open(&path).map(|source| Some(source.shared()))
    }
}

impl HfFolder {
    /// Opens the model folder at `path`.
    ///
    /// # Errors
    /// As [`HfFolder::open`].
    pub fn open_path(path: &Path) -> Result<Self, HfError> {
        block_on(Self::open(&Directory(path.to_owned())))
    }
}

impl Checkpoint {
    /// Opens the model at `path`: a folder, a file in such a folder that ends in `.safetensors`,
    /// or else a GGUF file.
    ///
    /// # Errors
    /// [`CheckpointError`], which names the path.
    pub fn open_path(path: &Path) -> Result<Self, CheckpointError> {
        let shown = || path.display().to_string();
        if !path.exists() {
            return Err(CheckpointError::NotFound { path: shown() });
        }
        let folder = if path.is_dir() {
            Some(path)
        } else if path.extension().is_some_and(|kind| kind == "safetensors") {
            path.parent()
        } else {
            None
        };
        match folder {
            Some(folder) => HfFolder::open_path(folder)
                .map(|folder| Self::HfFolder(Box::new(folder)))
                .map_err(|error| CheckpointError::HfFolder {
                    path: folder.display().to_string(),
                    error: Box::new(error),
                }),
            None => Gguf::open_path(path)
                .map(Self::Gguf)
                .map_err(|error| CheckpointError::Gguf {
                    path: shown(),
                    error: Box::new(error),
                }),
        }
    }
}
