//! The tensors of one checkpoint, whichever files hold them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use kvant_quant::{QuantError, WeightFormat, swap_block_endianness};

use crate::source::{Source, SourceError, read_exact};
use crate::tensor::{TensorFormat, TensorInfo, UnsupportedFormat};

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first: almost every file.
    Little,
    /// Most significant byte first: GGUF files made for s390x and the like.
    Big,
}

/// One file of a checkpoint.
#[derive(Clone)]
pub(crate) struct Shard {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) order: ByteOrder,
}

/// A tensor could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The tensor's element format cannot be decoded.
    #[error("tensor {tensor}: {reason}")]
    Unsupported {
        /// The tensor.
        tensor: String,
        /// What its format is.
        reason: UnsupportedFormat,
    },
    /// Rows outside the tensor were asked for.
    #[error("tensor {tensor} has {n_rows} rows; rows {start}..{end} were asked for")]
    Rows {
        /// The tensor.
        tensor: String,
        /// First row asked for.
        start: usize,
        /// One past the last row asked for.
        end: usize,
        /// Rows there are.
        n_rows: usize,
    },
    /// The tensor belongs to another checkpoint.
    #[error("tensor {tensor} is not of this checkpoint")]
    Foreign {
        /// The tensor.
        tensor: String,
    },
    /// The bytes are not whole blocks.
    #[error("tensor {tensor}: {error}")]
    Blocks {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        error: QuantError,
    },
    /// The bytes could not be had.
    #[error("tensor {tensor}: {error}")]
    Source {
        /// The tensor.
        tensor: String,
        /// Why not.
        error: SourceError,
    },
}

/// Two tensors of one checkpoint have the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DuplicateName(pub(crate) String);

/// The tensors of one checkpoint and the files that hold them.
#[derive(Clone)]
pub struct TensorStore {
    shards: Vec<Shard>,
    infos: Vec<TensorInfo>,
    /// Indices into `infos`, sorted by name.
    by_name: Vec<u32>,
}

impl std::fmt::Debug for TensorStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorStore")
            .field("files", &self.shards.len())
            .field("tensors", &self.infos)
            .finish()
    }
}

impl TensorStore {
    /// A store of tensors whose locations were checked against `shards`.
    pub(crate) fn new(shards: Vec<Shard>, infos: Vec<TensorInfo>) -> Result<Self, DuplicateName> {
        let mut by_name: Vec<u32> = (0..infos.len() as u32).collect();
        by_name.sort_unstable_by(|&a, &b| infos[a as usize].name.cmp(&infos[b as usize].name));
        for pair in by_name.windows(2) {
            if infos[pair[0] as usize].name == infos[pair[1] as usize].name {
                return Err(DuplicateName(infos[pair[0] as usize].name.clone()));
            }
        }
        Ok(Self {
            shards,
            infos,
            by_name,
        })
    }

    /// Every tensor, in the order of the files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name
            .binary_search_by(|&i| self.infos[i as usize].name.as_str().cmp(name))
            .ok()
            .map(|at| &self.infos[self.by_name[at] as usize])
    }

    /// The byte order of the first file.
    pub(crate) fn byte_order(&self) -> ByteOrder {
        self.shards
            .first()
            .map_or(ByteOrder::Little, |shard| shard.order)
    }

    /// Length of all files together, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.source.len()).sum()
    }

    /// The bytes of whole rows of a tensor, little-endian, in [`TensorInfo::format`]: borrowed
    /// where the source allows it. They are aligned to nothing in particular.
    ///
    /// # Errors
    /// [`ReadError`] when the format is not supported, the rows are not there, or the source fails.
    pub async fn read_rows(
        &self,
        info: &TensorInfo,
        rows: Range<usize>,
    ) -> Result<Cow<'_, [u8]>, ReadError> {
        let (format, shard, range) = self.locate(info, &rows)?;
        let bytes = read_exact(&*shard.source, range)
            .await
            .map_err(|error| ReadError::Source {
                tensor: info.name.clone(),
                error,
            })?;
        Ok(match shard.order {
            ByteOrder::Little => bytes,
            ByteOrder::Big => {
                let mut bytes = bytes.into_owned();
                swap_block_endianness(format, &mut bytes).map_err(|error| ReadError::Blocks {
                    tensor: info.name.clone(),
                    error,
                })?;
                Cow::Owned(bytes)
            }
        })
    }

    /// Every byte of a tensor; see [`TensorStore::read_rows`]. Meant for small tensors: go by
    /// [`TensorInfo::pieces`] for the others.
    ///
    /// # Errors
    /// As [`TensorStore::read_rows`].
    pub async fn read(&self, info: &TensorInfo) -> Result<Cow<'_, [u8]>, ReadError> {
        self.read_rows(info, 0..info.n_rows()).await
    }

    /// Hints that these rows will not be read again soon; their memory may be given back. Rows
    /// that do not exist are ignored.
    pub fn release_rows(&self, info: &TensorInfo, rows: Range<usize>) {
        if let Ok((_, shard, range)) = self.locate(info, &rows) {
            shard.source.release(range);
        }
    }

    fn locate(
        &self,
        info: &TensorInfo,
        rows: &Range<usize>,
    ) -> Result<(WeightFormat, &Shard, Range<u64>), ReadError> {
        let tensor = || info.name.clone();
        let foreign = || ReadError::Foreign { tensor: tensor() };
        let format = match &info.format {
            TensorFormat::Known(format) => *format,
            TensorFormat::Unsupported(reason) => {
                return Err(ReadError::Unsupported {
                    tensor: tensor(),
                    reason: reason.clone(),
                });
            }
        };
        if rows.start > rows.end || rows.end > info.n_rows() {
            return Err(ReadError::Rows {
                tensor: tensor(),
                start: rows.start,
                end: rows.end,
                n_rows: info.n_rows(),
            });
        }
        let shard = self
            .shards
            .get(info.location.shard as usize)
            .ok_or_else(foreign)?;
        let row_bytes = info.row_bytes().ok_or_else(foreign)? as u64;
        let within = |row: usize| {
            (row as u64)
                .checked_mul(row_bytes)
                .filter(|&at| at <= info.location.bytes)
                .and_then(|at| at.checked_add(info.location.offset))
                .ok_or_else(foreign)
        };
        Ok((format, shard, within(rows.start)?..within(rows.end)?))
    }
}
