//! GGUF and safetensors files over ranged asynchronous reads, with limits for hostile input.
//!
//! A [`Source`] is bytes at offsets: a memory map, a file, a byte vector, later a URL. [`Gguf`] and
//! [`HfFolder`] read the header of such sources, check every count, length, offset and type in it
//! against the bytes that are really there, and describe the tensors as a [`TensorStore`].
//! [`Checkpoint`] is either of the two, for a loader that does not care which.
//!
//! Limits: opening a GGUF or safetensors file allocates at most twice its length plus 16 MiB,
//! whatever it says. Configuration files, which become trees, may be 8 MiB long.

pub mod checkpoint;
#[cfg(all(feature = "fs", not(target_arch = "wasm32")))]
pub mod fs;
pub mod gguf;
pub mod hf;
pub mod safetensors;
pub mod source;
pub mod store;
pub mod tensor;

pub use checkpoint::{Checkpoint, CheckpointError};
#[cfg(all(feature = "fs", not(target_arch = "wasm32")))]
pub use fs::{FileSource, MapSource, block_on};
pub use gguf::{Gguf, GgufError, Metadata, MetadataError};
pub use hf::{Folder, HfError, HfFolder};
pub use safetensors::SafeTensorsError;
pub use source::{BytesSource, ReadFuture, Source, SourceError};
pub use store::{ByteOrder, ReadError, TensorStore};
pub use tensor::{Location, TensorFormat, TensorInfo, UnsupportedFormat};

/// The most tensors one file may describe. The largest public mixture-of-experts checkpoints keep
/// fewer than 100,000 in all their shards together.
pub const MAX_TENSORS_PER_FILE: u64 = 1 << 17;
