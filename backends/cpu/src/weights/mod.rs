//! Weights repacked for the kernels, about as large as in the file.

mod cells;
pub(crate) mod geometry;
mod k_quants;
mod legacy;
mod memory;
mod packed;
mod rows;

pub use geometry::{BLOCK_COLS, GROUP_ROWS};
pub use memory::{OutOfMemory, WeightArena};
pub use packed::{PackedWeight, ParallelFor, WeightBuilder, WeightError, sequential};
