//! Weight and KV formats: block layouts, encode, decode. Pure: no input or output.

mod error;
mod format;
mod kv_format;
pub mod le;
pub mod small_float;
pub mod testing;
pub mod weights;

pub use error::QuantError;
pub use format::{BlockLayout, WeightFormat};
pub use kv_format::{KV_BLOCK_TOKENS, KvFormat};
pub use weights::decode;
