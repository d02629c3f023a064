//! Flash attention over paged keys and values (Dao et al. 2022; split over the context as in
//! flash-decoding, Dao et al. 2023).
//!
//! All query heads of one key head form one tile, so that each key and value is read once for them.
//! The context is cut at absolute multiples of [`SPLIT_TOKENS`]. A row's result for one split is a
//! [`Partial`]; partials are folded in order of the splits. Tiles, threads and batches only choose
//! *where* a split of a row is computed, never the order of its operations: results are equal to the
//! bit whatever shares the step.
//!
//! - [`plan`]: which tiles there are in a step, and which threads may take them.
//! - [`tile`]: one tile, split after split.
//! - [`scores`], [`softmax`], [`values`]: the three parts of a split.
//! - [`partial`]: folding partials.

pub(crate) mod partial;
pub(crate) mod plan;
mod scores;
mod softmax;
pub(crate) mod tile;
mod values;

/// Tokens of a split: a multiple of the block size.
pub(crate) const SPLIT_TOKENS: usize = 512;

/// Floats from one row of scores to the next: a split, and a cache line so that rows do not fall
/// into the same cache sets.
pub(crate) const SCORE_STRIDE: usize = SPLIT_TOKENS + 16;

/// Query rows (tokens times heads of a group) that a tile aims at.
pub(crate) const TILE_ROWS: usize = 48;

/// Query tokens of a tile for groups of `group` heads.
pub(crate) const fn tile_tokens(group: usize) -> usize {
    let tokens = TILE_ROWS / group;
    if tokens == 0 { 1 } else { tokens }
}
