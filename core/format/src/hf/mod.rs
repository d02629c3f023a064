//! Hugging Face model folders: `config.json`, tokenizer files, and weights in safetensors files.

mod index;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::safetensors::{self, SafeTensorsError};
use crate::source::{Source, SourceError, read_exact};
use crate::store::{ByteOrder, DuplicateName, Shard, TensorStore};
use index::Index;

/// The longest configuration or template file accepted, in bytes: as a tree in memory, JSON can
/// take a dozen times its length. `tokenizer.json` is not read here.
pub const MAX_TEXT_FILE_BYTES: u64 = 8 << 20;
/// The longest index of weight files accepted, in bytes.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;
/// The most weight files one model may have.
pub const MAX_WEIGHT_FILES: usize = 4096;

/// A model folder that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum HfError {
    /// A file that every model has is missing.
    #[error("{file} is missing{}", .hint)]
    Missing {
        /// The file.
        file: String,
        /// What to do; may be empty.
        hint: &'static str,
    },
    /// A text file that is too long.
    #[error("{file} is {bytes} bytes long; at most {limit} are accepted")]
    TooLong {
        /// The file.
        file: &'static str,
        /// Its length.
        bytes: u64,
        /// Length accepted.
        limit: u64,
    },
    /// A file that is not JSON.
    #[error("{file}: {error}")]
    Json {
        /// The file.
        file: &'static str,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// A file that is not UTF-8.
    #[error("{file} is not UTF-8 after {valid} bytes")]
    NotUtf8 {
        /// The file.
        file: &'static str,
        /// Bytes before the first that is wrong.
        valid: usize,
    },
    /// The index names a file outside the folder.
    #[error("{INDEX_FILE}: {file:?} is not the name of a file in the folder")]
    BadFileName {
        /// The name in the index.
        file: String,
    },
    /// A tensor is not in the file that the index names.
    #[error("{INDEX_FILE}: tensor {tensor} should be in {file}, but is not")]
    NotInFile {
        /// The tensor.
        tensor: String,
        /// The file the index names.
        file: String,
    },
    /// Two files hold a tensor of the same name.
    #[error("tensor {name} is in two files")]
    DuplicateTensor {
        /// The tensor.
        name: String,
    },
    /// A weight file is damaged.
    #[error("{file}: {error}")]
    SafeTensors {
        /// The file.
        file: String,
        /// What is wrong.
        error: SafeTensorsError,
    },
    /// The bytes of a file could not be had.
    #[error("{file}: {error}")]
    Source {
        /// The file.
        file: String,
        /// Why not.
        error: SourceError,
    },
}

/// The model's configuration.
pub const CONFIG_FILE: &str = "config.json";
/// Where a model in several files says which tensor is in which.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// The weights of a model in one file.
pub const SINGLE_FILE: &str = "model.safetensors";
/// The tokenizer.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// Special tokens and the chat template of older models.
pub const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";
/// End-of-sequence tokens and sampling defaults.
pub const GENERATION_CONFIG_FILE: &str = "generation_config.json";
/// The chat template of newer models.
pub const CHAT_TEMPLATE_FILE: &str = "chat_template.jinja";

/// Looks up the files of a model folder by name.
pub trait Folder {
    /// The file of this name, `None` when there is none.
    ///
    /// # Errors
    /// [`SourceError`] when there is one that cannot be opened.
    fn file(&self, name: &str) -> Result<Option<Arc<dyn Source>>, SourceError>;
}

impl Folder for BTreeMap<String, Arc<dyn Source>> {
    fn file(&self, name: &str) -> Result<Option<Arc<dyn Source>>, SourceError> {
        Ok(self.get(name).cloned())
    }
}

/// A model in the form the `transformers` package saves it.
pub struct HfFolder {
    /// `config.json`.
    pub config: Value,
    /// `generation_config.json`, if there is one.
    pub generation_config: Option<Value>,
    /// `tokenizer_config.json`, if there is one.
    pub tokenizer_config: Option<Value>,
    /// `chat_template.jinja`, if there is one.
    pub chat_template: Option<String>,
    /// The tensors of all weight files.
    pub tensors: TensorStore,
    tokenizer: Option<Arc<dyn Source>>,
}

impl std::fmt::Debug for HfFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HfFolder")
            .field("config", &self.config)
            .field("tensors", &self.tensors)
            .finish_non_exhaustive()
    }
}

impl HfFolder {
    /// Reads the configuration and the headers of the weight files of `folder`.
    ///
    /// # Errors
    /// [`HfError`] when a file is missing or damaged.
    pub async fn open(folder: &dyn Folder) -> Result<Self, HfError> {
        let missing = |hint| {
            move |file: &str| HfError::Missing {
                file: file.to_owned(),
                hint,
            }
        };
        let config = read_json(folder, CONFIG_FILE)
            .await?
            .ok_or_else(|| missing("; a model folder has one")(CONFIG_FILE))?;
        let index = read_index(folder).await?;
        let files: Vec<&str> = match &index {
            Some(index) => index.files.iter().map(String::as_str).collect(),
            None => vec![SINGLE_FILE],
        };
        let mut shards = Vec::with_capacity(files.len());
        let mut tensors = Vec::new();
        for (number, name) in files.iter().enumerate() {
            let hint = match index {
                Some(_) => ", although model.safetensors.index.json names it: download it again",
                None => "; weights are read from safetensors files only",
            };
            let source = find(folder, name)?.ok_or_else(|| missing(hint)(name))?;
            let mut of_file = safetensors::read_tensors(&*source, number as u32)
                .await
                .map_err(|error| HfError::SafeTensors {
                    file: (*name).to_owned(),
                    error,
                })?;
            tensors.append(&mut of_file);
            shards.push(Shard {
                source,
                order: ByteOrder::Little,
            });
        }
        let tensors = TensorStore::new(shards, tensors)
            .map_err(|DuplicateName(name)| HfError::DuplicateTensor { name })?;
        if let Some(index) = &index {
            index.check(&tensors)?;
        }
        Ok(Self {
            config,
            generation_config: read_json(folder, GENERATION_CONFIG_FILE).await?,
            tokenizer_config: read_json(folder, TOKENIZER_CONFIG_FILE).await?,
            chat_template: read_text(folder, CHAT_TEMPLATE_FILE, MAX_TEXT_FILE_BYTES).await?,
            tensors,
            tokenizer: find(folder, TOKENIZER_FILE)?,
        })
    }

    /// The bytes of `tokenizer.json`; `None` when there is none.
    ///
    /// # Errors
    /// [`HfError::Source`].
    pub async fn tokenizer_json(&self) -> Result<Option<Cow<'_, [u8]>>, HfError> {
        let Some(source) = &self.tokenizer else {
            return Ok(None);
        };
        match read_exact(&**source, 0..source.len()).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(in_file(TOKENIZER_FILE)(error)),
        }
    }
}

fn in_file(file: &str) -> impl FnOnce(SourceError) -> HfError + use<> {
    let file = file.to_owned();
    move |error| HfError::Source { file, error }
}

fn find(folder: &dyn Folder, name: &str) -> Result<Option<Arc<dyn Source>>, HfError> {
    folder.file(name).map_err(in_file(name))
}

async fn read_text(
    folder: &dyn Folder,
    file: &'static str,
    limit: u64,
) -> Result<Option<String>, HfError> {
    let Some(source) = find(folder, file)? else {
        return Ok(None);
    };
    let bytes = source.len();
    if bytes > limit {
        return Err(HfError::TooLong { file, bytes, limit });
    }
    let bytes = read_exact(&*source, 0..bytes)
        .await
        .map_err(in_file(file))?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(error) => Err(HfError::NotUtf8 {
            file,
            valid: error.valid_up_to(),
        }),
    }
}

async fn read_json(folder: &dyn Folder, file: &'static str) -> Result<Option<Value>, HfError> {
    match read_text(folder, file, MAX_TEXT_FILE_BYTES).await? {
        None => Ok(None),
        Some(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| HfError::Json { file, error }),
    }
}

async fn read_index(folder: &dyn Folder) -> Result<Option<Index>, HfError> {
    match read_text(folder, INDEX_FILE, MAX_INDEX_BYTES).await? {
        None => Ok(None),
        Some(text) => Index::parse(&text).map(Some),
    }
}
