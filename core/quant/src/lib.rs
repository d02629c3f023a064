//! Weight and KV formats: block layouts, encode, decode. Pure: no input or output.
mod format;
mod kv_format;
pub use format::{BlockLayout, WeightFormat};
pub use kv_format::{KV_BLOCK_TOKENS, KvFormat};
