//! One tile of query rows over a range of splits.

use super::partial::Partial;
use super::{Method, SCORE_STRIDE, SPLIT_TOKENS, scores, softmax, values};
use crate::Level;
use crate::kv::{F16Keys, F16Values, F32Keys, F32Values, KeyTile, ValueTile};
use crate::memory::Carver;
use crate::vector::{F32s, Kernel, dispatch};
use kvant_quant::{KV_BLOCK_TOKENS, KvFormat};
use std::marker::PhantomData;
use std::ops::Range;

/// Keys and values of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerKv {
    pub(crate) k_format: KvFormat,
    pub(crate) v_format: KvFormat,
    /// Block 0 of the keys.
    pub(crate) keys: *mut u8,
    /// Block 0 of the values.
    pub(crate) values: *mut u8,
    pub(crate) k_block_bytes: usize,
    pub(crate) v_block_bytes: usize,
}

/// The rows of a tile and what they attend to.
pub(crate) struct Tile<'a> {
    /// Scaled queries, `[n_tokens * group][head_dim]`, token by token.
    pub(crate) queries: *const f32,
    /// Query tokens.
    pub(crate) n_tokens: usize,
    /// Query heads of the key head.
    pub(crate) group: usize,
    /// Position of the first token.
    pub(crate) first_position: usize,
    pub(crate) head_dim: usize,
    pub(crate) v_head_dim: usize,
    pub(crate) kv_head: usize,
    pub(crate) kv: LayerKv,
    /// Block ids of the sequence.
    pub(crate) table: &'a [u32],
    pub(crate) window: Option<usize>,
    pub(crate) softcap: Option<f32>,
}

/// Memory for one tile at a time, private to a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileScratch {
    /// Queries, `[rows][head_dim]`.
    pub(crate) queries: usize,
    scores: usize,
    max: usize,
    sum: usize,
    values: usize,
    /// A second set of partials, for the caller to fold into.
    folded_max: usize,
    folded_sum: usize,
    folded_values: usize,
    #[cfg(target_arch = "x86_64")]
    tiles: Option<super::tiles::TilesScratch>,
}

impl TileScratch {
    /// Carves room for tiles of `rows` rows; `None` on overflow.
    pub(crate) fn carve(
        carver: &mut Carver,
        method: Method,
        rows: usize,
        head_dim: usize,
        v_head_dim: usize,
    ) -> Option<Self> {
        #[cfg(not(target_arch = "x86_64"))]
        let Method::Vectors = method;
        Some(Self {
            queries: carver.part::<f32>(rows.checked_mul(head_dim)?)?,
            scores: carver.part::<f32>(rows.checked_mul(SCORE_STRIDE)?)?,
            max: carver.part::<f32>(rows)?,
            sum: carver.part::<f32>(rows)?,
            values: carver.part::<f32>(rows.checked_mul(v_head_dim)?)?,
            folded_max: carver.part::<f32>(rows)?,
            folded_sum: carver.part::<f32>(rows)?,
            folded_values: carver.part::<f32>(rows.checked_mul(v_head_dim)?)?,
            #[cfg(target_arch = "x86_64")]
            tiles: match method {
                Method::Vectors => None,
                Method::Matrix => Some(super::tiles::TilesScratch::carve(carver, rows, head_dim)?),
            },
        })
    }

    /// The caller's partials.
    ///
    /// # Safety
    /// `base` is the memory that was carved.
    pub(crate) unsafe fn folded(&self, base: *mut u8) -> Partials {
        // SAFETY: by the caller.
        unsafe {
            Partials {
                max: base.add(self.folded_max).cast(),
                sum: base.add(self.folded_sum).cast(),
                values: base.add(self.folded_values).cast(),
            }
        }
    }
}

/// Partials of several rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partials {
    pub(crate) max: *mut f32,
    pub(crate) sum: *mut f32,
    pub(crate) values: *mut f32,
}

impl Partials {
    /// That of one row.
    ///
    /// # Safety
    /// `row` lies in the memory.
    #[inline(always)]
    pub(crate) unsafe fn row(self, row: usize, v_head_dim: usize) -> Partial {
        // SAFETY: by the caller.
        unsafe {
            Partial {
                max: self.max.add(row),
                sum: self.sum.add(row),
                values: self.values.add(row * v_head_dim),
            }
        }
    }
}

impl Tile<'_> {
    /// The tokens that token `t` of the tile sees.
    pub(super) fn seen(&self, t: usize) -> Range<usize> {
        let end = self.first_position + t + 1;
        self.window.map_or(0, |w| end.saturating_sub(w))..end
    }

    /// The tokens that any token of the tile sees.
    pub(super) fn seen_by_any(&self) -> Range<usize> {
        self.seen(0).start..self.seen(self.n_tokens - 1).end
    }

    /// Computes the splits and folds them into `into`.
    ///
    /// # Safety
    /// Every block the tile sees is in the pool, nobody writes it meanwhile, and `scratch` was carved
    /// from `base` for this many rows.
    pub(crate) unsafe fn attend(
        &self,
        level: Level,
        splits: Range<usize>,
        scratch: &TileScratch,
        base: *mut u8,
        into: Partials,
    ) {
        // SAFETY: by the caller; there is scratch for tiles only on machines that have them.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if let Some(tiles) = scratch
                .tiles
                .as_ref()
                .filter(|_| super::tiles::serves(self))
            {
                return super::tiles::attend(self, splits, tiles, base, into);
            }
            for split in splits {
                if let Some(part) = self.split(split) {
                    self.attend_split(level, part, scratch, base, into);
                }
            }
        }
    }

    /// What the tile sees of a split; `None` when it sees nothing.
    fn split(&self, split: usize) -> Option<Split> {
        let any = self.seen_by_any();
        let start = any.start.max(split * SPLIT_TOKENS);
        let end = any.end.min((split + 1) * SPLIT_TOKENS);
        let first_block = start / KV_BLOCK_TOKENS;
        (start < end).then(|| Split {
            start,
            end,
            first_block,
            n_blocks: end.div_ceil(KV_BLOCK_TOKENS) - first_block,
        })
    }

    /// Scores by the format of keys, then weights and sums by the format of values: a format of one
    /// side never meets one of the other in a kernel.
    ///
    /// # Safety
    /// As [`Tile::attend`].
    unsafe fn attend_split(
        &self,
        level: Level,
        split: Split,
        scratch: &TileScratch,
        base: *mut u8,
        into: Partials,
    ) {
        let scores = base.wrapping_add(scratch.scores).cast();
        // SAFETY: by the caller.
        unsafe {
            macro_rules! score {
                ($keys:ty) => {{
                    let keys = PhantomData::<$keys>;
                    let kernel = Score {
                        tile: self,
                        split,
                        scores,
                        keys,
                    };
                    dispatch(level, kernel)
                }};
            }
            match self.kv.k_format {
                KvFormat::F16 => score!(F16Keys),
                KvFormat::F32 => score!(F32Keys),
            }
            let part = Partials {
                max: base.add(scratch.max).cast(),
                sum: base.add(scratch.sum).cast(),
                values: base.add(scratch.values).cast(),
            };
            macro_rules! mix {
                ($values:ty) => {{
                    let values = PhantomData::<$values>;
                    let kernel = Mix {
                        tile: self,
                        split,
                        scores,
                        part,
                        into,
                        values,
                    };
                    dispatch(level, kernel)
                }};
            }
            match self.kv.v_format {
                KvFormat::F16 => mix!(F16Values),
                KvFormat::F32 => mix!(F32Values),
            }
        }
    }
}

/// Tokens `start..end` of a split, which lie in `n_blocks` blocks. Columns of the scores count from
/// the first token of the first block.
#[derive(Debug, Clone, Copy)]
struct Split {
    start: usize,
    end: usize,
    first_block: usize,
    n_blocks: usize,
}

impl Split {
    /// The token of column 0.
    fn origin(&self) -> usize {
        self.first_block * KV_BLOCK_TOKENS
    }

    /// Block `b` of the split among the blocks of `base`.
    ///
    /// # Safety
    /// `b < n_blocks`, and the tile sees the block.
    #[inline(always)]
    unsafe fn block(
        &self,
        tile: &Tile<'_>,
        b: usize,
        base: *mut u8,
        block_bytes: usize,
    ) -> *mut u8 {
        // SAFETY: by the caller; tables hold every block of the context.
        unsafe {
            let id = *tile.table.get_unchecked(self.first_block + b) as usize;
            base.add(id * block_bytes)
        }
    }
}

/// Scores of a split: `[rows][SCORE_STRIDE]`.
struct Score<'a, K> {
    tile: &'a Tile<'a>,
    split: Split,
    scores: *mut f32,
    keys: PhantomData<K>,
}

impl<K: KeyTile> Kernel for Score<'_, K> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        let (tile, split) = (self.tile, self.split);
        let n_rows = tile.n_tokens * tile.group;
        // SAFETY: by the caller of `attend`.
        unsafe {
            let key = |b: usize| {
                let at = split.block(tile, b, tile.kv.keys, tile.kv.k_block_bytes);
                K::new(at, tile.kv_head, tile.head_dim)
            };
            scores::scores::<V, K>(
                tile.queries,
                n_rows,
                tile.head_dim,
                split.n_blocks,
                key,
                self.scores,
            );
        }
    }
}

/// Turns scores into weights, sums values by them, and folds the result into `into`.
struct Mix<'a, T> {
    tile: &'a Tile<'a>,
    split: Split,
    scores: *mut f32,
    /// The split's own partials.
    part: Partials,
    into: Partials,
    values: PhantomData<T>,
}

impl<T: ValueTile> Kernel for Mix<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        let (tile, split, part) = (self.tile, self.split, self.part);
        let Split { start, end, .. } = split;
        let origin = split.origin();
        let n_rows = tile.n_tokens * tile.group;
        // SAFETY: by the caller of `attend`.
        unsafe {
            let value = |b: usize| {
                let at = split.block(tile, b, tile.kv.values, tile.kv.v_block_bytes);
                T::new(at, tile.kv_head, tile.v_head_dim)
            };
            values::prefetch(split.n_blocks, tile.v_head_dim, value);
            for row in 0..n_rows {
                let seen = tile.seen(row / tile.group);
                let (max, sum) = softmax::weights::<V>(
                    self.scores.add(row * SCORE_STRIDE),
                    split.n_blocks * KV_BLOCK_TOKENS,
                    seen.start.max(start) - origin,
                    seen.end.min(end).saturating_sub(origin),
                    tile.softcap,
                );
                *part.max.add(row) = max;
                *part.sum.add(row) = sum;
            }
            values::values::<V, T>(
                self.scores,
                n_rows,
                tile.v_head_dim,
                start - origin,
                end - origin,
                value,
                part.values,
            );
            for row in 0..n_rows {
                let into = self.into.row(row, tile.v_head_dim);
                into.fold::<V>(part.row(row, tile.v_head_dim), tile.v_head_dim);
            }
        }
    }
}
