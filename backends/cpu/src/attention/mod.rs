//! Flash attention over paged keys and values (Dao et al. 2022; split over the context as in
//! flash-decoding, Dao et al. 2023).
//!
//! All query heads of one key head form one tile, so that each key and value is read once for them.
//! The context is cut at absolute multiples of [`SPLIT_TOKENS`]. A row's result for one split is a
//! [`Partial`](partial::Partial); partials are folded in order of the splits. Tiles, threads and
//! batches only choose *where* a split of a row is computed, never the order of its operations: with
//! [`Method::Vectors`], results are equal to the bit whatever shares the step.
//!
//! - [`plan`]: which tiles there are in a step, and which threads may take them.
//! - [`tile`]: one tile, split after split.
//! - [`scores`], [`softmax`], [`values`]: the three parts of a split.
//! - [`partial`]: folding partials.
//! - `tiles`: the same on a matrix unit.

pub(crate) mod partial;
pub(crate) mod plan;
mod scores;
mod softmax;
pub(crate) mod tile;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod values;

/// Tokens of a split: a multiple of the block size.
pub(crate) const SPLIT_TOKENS: usize = 512;

/// Floats from one row of scores to the next: a split, and a cache line so that rows do not fall
/// into the same cache sets.
pub(crate) const SCORE_STRIDE: usize = SPLIT_TOKENS + 16;

/// How tiles of query rows are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// In f32 vectors: the order of a row's operations is always the same.
    Vectors,
    /// Tiles of many rows on the matrix unit, the others in vectors.
    #[cfg(target_arch = "x86_64")]
    Matrix,
}

impl Method {
    /// The fastest method, or the one whose results do not depend on the step.
    pub(crate) fn choose(level: crate::Level, deterministic: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if level == crate::Level::Amx && !deterministic {
            return Self::Matrix;
        }
        let _ = (level, deterministic);
        Self::Vectors
    }

    /// Query tokens of a tile for groups of `group` heads: tokens times heads are the rows of a tile.
    pub(crate) const fn tile_tokens(self, group: usize) -> usize {
        let rows = match self {
            Self::Vectors => 48,
            #[cfg(target_arch = "x86_64")]
            Self::Matrix => tiles::TILE_ROWS,
        };
        let tokens = rows / group;
        if tokens == 0 { 1 } else { tokens }
    }
}
