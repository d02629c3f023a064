//! GGUF files, versions 2 and 3, whole or split, in both byte orders.

mod error;
mod header;
mod metadata;
mod parse;
mod value;
pub mod write;

use std::sync::Arc;

pub use error::{Field, GgufError, Problem};
pub use metadata::{DuplicateKey, FromElement, FromValue, Metadata, MetadataError};
pub use value::{Array, StringArray, Value};

use crate::source::Source;
use crate::store::{ByteOrder, DuplicateName, Shard, TensorStore};

/// The alignment of tensor data when the file does not say.
pub const DEFAULT_ALIGNMENT: u32 = 32;
/// The most metadata entries one file may have. Real files have fewer than a hundred.
pub const MAX_METADATA_ENTRIES: u64 = 1 << 16;
/// The longest key or tensor name accepted, in bytes.
pub const MAX_NAME_BYTES: u64 = 65_535;
/// The most files one model may be split into.
pub const MAX_PARTS: u64 = 99_999;

/// A GGUF model: metadata and tensors, from one file or several.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// The metadata; of the first file when there are several.
    pub metadata: Metadata,
    /// The tensors of all files.
    pub tensors: TensorStore,
    /// The format version, 2 or 3.
    pub version: u32,
    /// The alignment of tensor data in bytes, of the first file.
    pub alignment: u64,
    /// Where tensor data starts in the first file, in bytes.
    pub data_start: u64,
}

impl Gguf {
    /// Reads the header of a model in one file.
    ///
    /// # Errors
    /// [`GgufError`] when the file is not GGUF, is damaged, cut short, or part of a split model.
    pub async fn open(source: Arc<dyn Source>) -> Result<Self, GgufError> {
        Self::open_parts(vec![source]).await
    }

    /// Reads the headers of a model split into `parts`, all of them and in order.
    ///
    /// # Errors
    /// [`GgufError`] when a file is not GGUF, is damaged, cut short, or not the part it should be.
    pub async fn open_parts(parts: Vec<Arc<dyn Source>>) -> Result<Self, GgufError> {
        let mut first = None;
        let mut shards = Vec::new();
        let mut tensors = Vec::new();
        let n_parts = parts.len();
        for (index, source) in parts.into_iter().enumerate() {
            let mut header = parse::parse(&*source, index as u32).await?;
            check_part(&header.metadata, index, n_parts)?;
            tensors.append(&mut header.tensors);
            shards.push(Shard {
                source,
                order: header.order,
            });
            first.get_or_insert(header);
        }
        // No parts at all: as a file without bytes.
        let first = first.ok_or(GgufError::NotGguf { found: Vec::new() })?;
        if n_parts > 1
            && let Some(total) = first.metadata.find::<u64>(SPLIT_TENSORS)?
            && total != tensors.len() as u64
        {
            return Err(GgufError::Split {
                index: 1,
                key: SPLIT_TENSORS,
                found: total.to_string(),
                expected: tensors.len() as u64,
            });
        }
        let tensors = TensorStore::new(shards, tensors)
            .map_err(|DuplicateName(name)| GgufError::DuplicateTensor { name })?;
        Ok(Self {
            metadata: first.metadata,
            tensors,
            version: first.version,
            alignment: first.alignment,
            data_start: first.data_start,
        })
    }

    /// The byte order of the first file.
    pub fn byte_order(&self) -> ByteOrder {
        self.tensors.byte_order()
    }
}

const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// Checks that a file is part `index` of `n_parts`.
fn check_part(metadata: &Metadata, index: usize, n_parts: usize) -> Result<(), GgufError> {
    let count = metadata.find::<u64>(SPLIT_COUNT)?.unwrap_or(1);
    let number = metadata.find::<u64>(SPLIT_NO)?.unwrap_or(0);
    if n_parts == 1 {
        if count > 1 {
            return Err(GgufError::PartOfSplit {
                part: number.saturating_add(1),
                count,
            });
        }
        return Ok(());
    }
    for (key, found, expected) in [
        (SPLIT_COUNT, count, n_parts as u64),
        (SPLIT_NO, number, index as u64),
    ] {
        if found != expected {
            return Err(GgufError::Split {
                index: index + 1,
                key,
                found: found.to_string(),
                expected,
            });
        }
    }
    Ok(())
}
