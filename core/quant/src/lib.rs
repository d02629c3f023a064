//! Weight and KV formats: block layouts, encode, decode. Pure: no input or output.

mod check;
mod encode;
mod endian;
mod error;
mod format;
mod kv_format;
pub mod le;
pub mod small_float;
pub mod testing;
pub mod weights;

pub use check::check_scales;
pub use encode::encode;
pub use endian::swap_block_endianness;
pub use error::QuantError;
pub use format::{BlockLayout, WeightFormat};
pub use kv_format::{KV_BLOCK_TOKENS, KvFormat, KvFormats, UnknownKvFormat};
pub use weights::decode;
