//! Safetensors files: a JSON header of tensor descriptions, then the tensors.

mod header;

use std::sync::Arc;

use crate::MAX_TENSORS_PER_FILE;
use crate::source::{Source, SourceError, read_exact};
use crate::store::{ByteOrder, DuplicateName, Shard, TensorStore};
use crate::tensor::TensorInfo;

/// The longest header the format allows, in bytes.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// A safetensors file that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SafeTensorsError {
    /// The file ends before its header or its tensors do.
    #[error(
        "the file is {missing} bytes short: {what} ends at byte {end} of {len}; it is cut short \
         or damaged: download it again"
    )]
    Truncated {
        /// What reaches past the end.
        what: String,
        /// Where it ends.
        end: u64,
        /// Length of the file.
        len: u64,
        /// Bytes missing.
        missing: u64,
    },
    /// A header longer than the format allows, or another kind of file.
    #[error(
        "byte 0: the header length is {bytes}, more than {MAX_HEADER_BYTES}: not a safetensors file"
    )]
    HeaderTooLong {
        /// Length in the file.
        bytes: u64,
    },
    /// The header is not the JSON it should be.
    #[error("header, byte {offset} of the file: {error}")]
    Json {
        /// About where, from the start of the file.
        offset: u64,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// A string or a nesting that no real header has.
    #[error(
        "header, byte {offset} of the file: a string or a nesting longer than any header needs"
    )]
    TooComplex {
        /// Where, from the start of the file.
        offset: u64,
    },
    /// More tensors than the limit.
    #[error("the file describes more than {MAX_TENSORS_PER_FILE} tensors")]
    TooManyTensors,
    /// Two tensors have the same name.
    #[error("tensor {name} occurs twice")]
    DuplicateTensor {
        /// The name.
        name: String,
    },
    /// A shape whose elements cannot be counted.
    #[error("tensor {name} has shape {shape:?}, more elements than can be addressed")]
    Overflow {
        /// The tensor.
        name: String,
        /// The shape, outermost first.
        shape: Vec<u64>,
    },
    /// Offsets that do not fit the shape and dtype.
    #[error(
        "tensor {name} of shape {shape:?} and dtype {dtype} takes {expected} bytes; its offsets \
         {begin}..{end} do not"
    )]
    Length {
        /// The tensor.
        name: String,
        /// The shape, outermost first.
        shape: Vec<u64>,
        /// The dtype in the file.
        dtype: String,
        /// Bytes the shape takes.
        expected: u64,
        /// First byte, from the start of the data.
        begin: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Tensors that leave holes or overlap.
    #[error("tensor {name} starts at byte {begin} of the data; {expected} is expected")]
    NotContiguous {
        /// The tensor.
        name: String,
        /// Where it starts.
        begin: u64,
        /// Where the one before it ends.
        expected: u64,
    },
    /// Bytes after the last tensor.
    #[error("{extra} bytes follow the last tensor: the file is damaged or of another kind")]
    ExtraData {
        /// How many.
        extra: u64,
    },
    /// The bytes could not be had.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// The tensors of one safetensors file, which is file number `shard` of its checkpoint.
pub(crate) async fn read_tensors(
    source: &dyn Source,
    shard: u32,
) -> Result<Vec<TensorInfo>, SafeTensorsError> {
    let len = source.len();
    let cut_short = |what: &str, end: u64| SafeTensorsError::Truncated {
        what: what.to_owned(),
        end,
        len,
        missing: end - len,
    };
    if len < 8 {
        return Err(cut_short("the header length", 8));
    }
    let mut raw = [0; 8];
    raw.copy_from_slice(&read_exact(source, 0..8).await?);
    let header_bytes = u64::from_le_bytes(raw);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(SafeTensorsError::HeaderTooLong {
            bytes: header_bytes,
        });
    }
    let data_start = 8 + header_bytes;
    if data_start > len {
        return Err(cut_short("the header", data_start));
    }
    let json = read_exact(source, 8..data_start).await?;
    header::parse(&json, shard, data_start, len)
}

/// Opens one safetensors file.
///
/// # Errors
/// [`SafeTensorsError`] when the file is damaged or cut short.
pub async fn open(source: Arc<dyn Source>) -> Result<TensorStore, SafeTensorsError> {
    let tensors = read_tensors(&*source, 0).await?;
    let shard = Shard {
        source,
        order: ByteOrder::Little,
    };
    TensorStore::new(vec![shard], tensors)
        .map_err(|DuplicateName(name)| SafeTensorsError::DuplicateTensor { name })
}
