//! KV blocks: which formats a model's keys and values take ([`KvPlan`]), where their bytes lie
//! ([`KvLayout`]), and which block belongs to whom ([`KvPools`], [`SequenceKv`]).
//!
//! Two ideas carry the crate:
//!
//! - **Precision is a stride.** All layers of a group share one space of block ids; each
//!   (layer, keys or values) has its own region with its own bytes a block. A format changes a
//!   stride, never a table.
//! - **Lifetime is a table.** Only layers that forget at another pace (a sliding window) form
//!   another [`KvGroup`], with its own pool and its own [`BlockTable`] a sequence.
//!
//! A block of [`KV_BLOCK_TOKENS`] tokens is *open* while it fills and *sealed* once it is full.
//! A block is written only while it is open and has one owner; any other write goes to a copy.
//!
//! Nothing here touches a device: the crate decides, and hands out block ids, copies and offsets.

mod error;
mod geometry;
mod integrity;
mod layout;
mod plan;
mod pool;
mod pools;
mod sequence;
pub mod solve;
mod table;

pub use error::KvError;
pub use geometry::{KvGeometry, KvGroup, LayerGeometry};
pub use integrity::{IntegrityError, check_integrity};
pub use kvant_quant::{KV_BLOCK_TOKENS, KvFormat, KvFormats};
pub use layout::{KvArena, KvLayout, KvRegion, KvSide, REGION_ALIGN_BYTES};
pub use plan::{KvPlan, LayerPlan};
pub use pool::{BlockId, BlockPool, BlockState, PoolCounters};
pub use pools::KvPools;
pub use sequence::{Appended, BlockCopy, GroupBlock, SequenceKv};
pub use table::{BlockTable, NO_BLOCK};
