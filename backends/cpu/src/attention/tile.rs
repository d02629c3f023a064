//! One tile of query rows over a range of splits.

use super::partial::Partial;
use super::{Method, SCORE_STRIDE, SPLIT_TOKENS, scores, softmax, values};
use crate::Level;
use crate::kv::{F16Keys, F16Values, KeyTile, ValueTile};
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
            match (self.kv.k_format, self.kv.v_format) {
                (KvFormat::F16, KvFormat::F16) => dispatch(
                    level,
                    Attend::<F16Keys, F16Values> {
                        tile: self,
                        splits,
                        scratch,
                        base,
                        into,
                        formats: PhantomData,
                    },
                ),
                (k, v) => unreachable!(
                    "{} and {} are refused when a program is prepared",
                    k.name(),
                    v.name()
                ),
            }
        }
    }
}

struct Attend<'a, K, T> {
    tile: &'a Tile<'a>,
    splits: Range<usize>,
    scratch: &'a TileScratch,
    base: *mut u8,
    into: Partials,
    formats: PhantomData<(K, T)>,
}

impl<K: KeyTile, T: ValueTile> Kernel for Attend<'_, K, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        let tile = self.tile;
        let n_rows = tile.n_tokens * tile.group;
        // SAFETY: by the caller of `attend`.
        unsafe {
            let score = self.base.add(self.scratch.scores).cast::<f32>();
            let part = Partials {
                max: self.base.add(self.scratch.max).cast(),
                sum: self.base.add(self.scratch.sum).cast(),
                values: self.base.add(self.scratch.values).cast(),
            };
            for split in self.splits {
                let any = tile.seen_by_any();
                let start = any.start.max(split * SPLIT_TOKENS);
                let end = any.end.min((split + 1) * SPLIT_TOKENS);
                if start >= end {
                    continue;
                }
                let first_block = start / KV_BLOCK_TOKENS;
                let n_blocks = end.div_ceil(KV_BLOCK_TOKENS) - first_block;
                // Columns of the scores count from the first block.
                let origin = first_block * KV_BLOCK_TOKENS;
                let block = |b: usize| *tile.table.get_unchecked(first_block + b) as usize;
                let key = |b: usize| {
                    let at = tile.kv.keys.add(block(b) * tile.kv.k_block_bytes);
                    K::new(at, tile.kv_head, tile.head_dim)
                };
                let value = |b: usize| {
                    let at = tile.kv.values.add(block(b) * tile.kv.v_block_bytes);
                    T::new(at, tile.kv_head, tile.v_head_dim)
                };
                scores::scores::<V, K>(tile.queries, n_rows, tile.head_dim, n_blocks, key, score);
                for row in 0..n_rows {
                    let seen = tile.seen(row / tile.group);
                    let (max, sum) = softmax::weights::<V>(
                        score.add(row * SCORE_STRIDE),
                        n_blocks * KV_BLOCK_TOKENS,
                        seen.start.max(start) - origin,
                        seen.end.min(end).saturating_sub(origin),
                        tile.softcap,
                    );
                    *part.max.add(row) = max;
                    *part.sum.add(row) = sum;
                }
                values::values::<V, T>(
                    score,
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
}
