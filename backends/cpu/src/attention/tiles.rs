//! Attention of many query rows on matrix tiles (AMX BF16).
//!
//! Every f32 is split into two bfloat16, `x = high + low` (keys and values in binary16 exactly so),
//! and a product of two such sums is three tile products, without `low * low`: about 16 bits of each
//! factor count, and sums are f32. Softmax is online (Milakov and Gimelshein 2018), one step for
//! [`CHUNK_TOKENS`] tokens.
//!
//! Operand A of a tile product is 16 rows of 32 elements; operand B is 32 elements of 16 columns as
//! `[16 pairs][16 columns][2]`; the result is `[16 rows][16 columns]` of f32.

use super::tile::{Partials, Tile};
use crate::arch::x86_64::amx::{self, TILE_BYTES};
use crate::memory::Carver;
use crate::vector::{Avx512, F32s, exp, tanh};
use kvant_quant::{KV_BLOCK_TOKENS, KvFormat};
use std::arch::x86_64::*;

/// Query rows of a tile: six rows of matrix tiles.
pub(crate) const TILE_ROWS: usize = 96;
/// Tokens between two steps of the softmax.
const CHUNK_TOKENS: usize = 256;
const CHUNK_BLOCKS: usize = CHUNK_TOKENS / KV_BLOCK_TOKENS;
/// Rows or columns of a matrix tile, and its elements along the sum.
const SIDE: usize = 16;
const DEPTH: usize = 32;

/// Whether tiles serve these heads.
pub(crate) fn serves(tile: &Tile<'_>) -> bool {
    tile.n_tokens * tile.group >= SIDE
        && tile.head_dim.is_multiple_of(2)
        && tile.v_head_dim.is_multiple_of(SIDE)
        && tile.kv.k_format == KvFormat::F16
        && tile.kv.v_format == KvFormat::F16
}

/// Memory for one tile at a time, private to a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TilesScratch {
    queries: usize,
    keys: usize,
    scores: usize,
    weights_high: usize,
    weights_low: usize,
    values: usize,
    sums: usize,
    /// By how much each row's earlier sums shrink.
    factors: usize,
}

impl TilesScratch {
    /// Carves room for tiles of `rows` rows; `None` on overflow.
    pub(crate) fn carve(carver: &mut Carver, rows: usize, head_dim: usize) -> Option<Self> {
        let rows = rows.checked_next_multiple_of(SIDE)?;
        let row_tiles = rows / SIDE;
        let depth = head_dim.div_ceil(DEPTH).checked_mul(3 * TILE_BYTES)?;
        Some(Self {
            queries: carver.part::<u8>(row_tiles.checked_mul(depth)?)?,
            keys: carver.part::<u8>(depth.checked_mul(2)?)?,
            scores: carver.part::<f32>(rows.checked_mul(CHUNK_TOKENS)?)?,
            weights_high: carver.part::<u16>(rows.checked_mul(CHUNK_TOKENS)?)?,
            weights_low: carver.part::<u16>(rows.checked_mul(CHUNK_TOKENS)?)?,
            values: carver.part::<u8>(2 * 2 * CHUNK_BLOCKS * TILE_BYTES)?,
            sums: carver.part::<f32>(rows.checked_mul(2 * SIDE)?)?,
            factors: carver.part::<f32>(rows)?,
        })
    }
}

/// Folds the tokens of `splits` into `into`, as [`Tile::attend`] does.
///
/// # Safety
/// As [`Tile::attend`]; the machine has tiles; [`serves`] holds; `scratch` was carved from `base`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
pub(crate) unsafe fn attend(
    tile: &Tile<'_>,
    splits: std::ops::Range<usize>,
    scratch: &TilesScratch,
    base: *mut u8,
    into: Partials,
) {
    let rows = tile.n_tokens * tile.group;
    // SAFETY: by the caller.
    unsafe {
        let run = Run {
            tile,
            rows,
            row_tiles: rows.div_ceil(SIDE),
            depth_tiles: tile.head_dim.div_ceil(DEPTH),
            queries: base.add(scratch.queries),
            keys: base.add(scratch.keys),
            scores: base.add(scratch.scores).cast(),
            weights: [
                base.add(scratch.weights_high),
                base.add(scratch.weights_low),
            ],
            values: base.add(scratch.values),
            sums: base.add(scratch.sums).cast(),
            factors: base.add(scratch.factors).cast(),
            into,
        };
        let seen = tile.seen_by_any();
        let first = seen.start.max(splits.start * super::SPLIT_TOKENS);
        let end = seen.end.min(splits.end * super::SPLIT_TOKENS);
        amx::configure();
        run.load_queries();
        let mut from = first;
        while from < end {
            let to = end.min((from / CHUNK_TOKENS + 1) * CHUNK_TOKENS);
            run.chunk(from, to);
            from = to;
        }
        amx::release();
    }
}

struct Run<'a> {
    tile: &'a Tile<'a>,
    rows: usize,
    row_tiles: usize,
    /// Matrix tiles along a head.
    depth_tiles: usize,
    /// `[row_tiles][high, high, low][depth_tiles]` tiles.
    queries: *mut u8,
    /// `[2 halves of a block][high, low, high][depth_tiles]` tiles.
    keys: *mut u8,
    /// `[columns / 16][row_tiles * 16][16]`.
    scores: *mut f32,
    /// High and low parts, `[row_tiles][blocks]` tiles.
    weights: [*mut u8; 2],
    /// `[2 columns of tiles][high, low][blocks]` tiles.
    values: *mut u8,
    /// `[2 columns of tiles][row_tiles * 16][16]`.
    sums: *mut f32,
    factors: *mut f32,
    into: Partials,
}

/// The upper 16 bits of each lane as a bfloat16, and what is left, `x - high`.
#[inline(always)]
unsafe fn split(x: __m512) -> (__m512i, __m512) {
    // SAFETY: the caller has AVX-512.
    unsafe {
        let high = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(-0x1_0000));
        (high, _mm512_sub_ps(x, _mm512_castsi512_ps(high)))
    }
}

/// Pairs the upper 16 bits of each lane: those of `first` below those of `second`.
#[inline(always)]
unsafe fn pair(first: __m512i, second: __m512i) -> __m512i {
    // SAFETY: the caller has AVX-512.
    unsafe {
        let upper = _mm512_set1_epi32(-0x1_0000);
        // first >> 16 | second & upper
        _mm512_ternarylogic_epi32::<0xF8>(_mm512_srli_epi32::<16>(first), second, upper)
    }
}

/// 32 consecutive elements as bfloat16: rounded to nearest.
#[inline(always)]
unsafe fn row_of(first: __m512, second: __m512) -> __m512i {
    // SAFETY: the caller has AVX-512 BF16; both types are 64 bytes.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(second, first)) }
}

#[inline(always)]
unsafe fn store(at: *mut u8, x: __m512i) {
    // SAFETY: by the caller.
    unsafe { _mm512_storeu_si512(at.cast(), x) }
}

impl Run<'_> {
    /// Splits the queries into operand A.
    #[inline(always)]
    unsafe fn load_queries(&self) {
        let dim = self.tile.head_dim;
        // SAFETY: queries are `[rows][head_dim]`; the operand has room for all row tiles.
        unsafe {
            for row in 0..self.row_tiles * SIDE {
                for k in 0..self.depth_tiles {
                    let load = |at: usize| {
                        if row >= self.rows || at >= dim {
                            return _mm512_setzero_ps();
                        }
                        let mask = (1u32 << (dim - at).min(SIDE)) - 1;
                        let from = self.tile.queries.add(row * dim + at);
                        _mm512_maskz_loadu_ps(mask as __mmask16, from)
                    };
                    let (a, b) = (load(k * DEPTH), load(k * DEPTH + SIDE));
                    let ((high_a, low_a), (high_b, low_b)) = (split(a), split(b));
                    let high = row_of(_mm512_castsi512_ps(high_a), _mm512_castsi512_ps(high_b));
                    let low = row_of(low_a, low_b);
                    let plane = self.depth_tiles * TILE_BYTES;
                    let at = self
                        .queries
                        .add(row / SIDE * 3 * plane + k * TILE_BYTES + row % SIDE * 64);
                    store(at, high);
                    store(at.add(plane), high);
                    store(at.add(2 * plane), low);
                }
            }
        }
    }

    /// Tokens `from..to`, which end in one chunk.
    #[inline(always)]
    unsafe fn chunk(&self, from: usize, to: usize) {
        let first_block = from / KV_BLOCK_TOKENS;
        let n_blocks = to.div_ceil(KV_BLOCK_TOKENS) - first_block;
        // SAFETY: by the caller of `attend`.
        unsafe {
            for block in 0..n_blocks {
                self.load_keys(first_block + block);
                self.multiply_keys(block);
            }
            self.softmax(from, to, n_blocks);
            for d in (0..self.tile.v_head_dim).step_by(2 * SIDE) {
                self.load_values(first_block, n_blocks, to, d);
                self.multiply_values(n_blocks);
                self.fold(d);
            }
        }
    }

    /// Splits the keys of a block into operand B.
    #[inline(always)]
    unsafe fn load_keys(&self, block: usize) {
        let (tile, plane) = (self.tile, self.depth_tiles * TILE_BYTES);
        // SAFETY: the block is in the pool; rows of 32 tokens are `[head_dim]`.
        unsafe {
            let id = *tile.table.get_unchecked(block) as usize;
            let keys = tile.kv.keys.add(id * tile.kv.k_block_bytes).cast::<u16>();
            let keys = keys.add(tile.kv_head * tile.head_dim * KV_BLOCK_TOKENS);
            for d in (0..self.depth_tiles * DEPTH).step_by(2) {
                for half in 0..2 {
                    let at = self
                        .keys
                        .add(half * 3 * plane + d / DEPTH * TILE_BYTES + d % DEPTH / 2 * 64);
                    if d >= tile.head_dim {
                        let zero = _mm512_setzero_si512();
                        (0..3).for_each(|p| store(at.add(p * plane), zero));
                        continue;
                    }
                    let load = |d: usize| {
                        let from = keys.add(d * KV_BLOCK_TOKENS + half * SIDE);
                        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
                    };
                    let (high_a, low_a) = split(load(d));
                    let (high_b, low_b) = split(load(d + 1));
                    let high = pair(high_a, high_b);
                    store(at, high);
                    store(
                        at.add(plane),
                        pair(_mm512_castps_si512(low_a), _mm512_castps_si512(low_b)),
                    );
                    store(at.add(2 * plane), high);
                }
            }
        }
    }

    /// Scores of all rows with a block of keys.
    #[inline(always)]
    unsafe fn multiply_keys(&self, block: usize) {
        let k_tiles = 3 * self.depth_tiles;
        let column = self.row_tiles * SIDE * SIDE;
        // SAFETY: operands and results lie in the scratch; tiles are configured.
        unsafe {
            let c = self.scores.add(2 * block * column);
            self.multiply(self.queries, k_tiles, self.keys, k_tiles, c, k_tiles, false);
        }
    }

    /// All row tiles times two columns of tiles; strides of the operands in tiles.
    #[inline(always)]
    unsafe fn multiply(
        &self,
        a: *const u8,
        a_stride: usize,
        b: *const u8,
        b_stride: usize,
        c: *mut f32,
        k_tiles: usize,
        add: bool,
    ) {
        let (a_stride, b_stride) = (a_stride * TILE_BYTES, b_stride * TILE_BYTES);
        let c_stride = self.row_tiles * SIDE * SIDE * size_of::<f32>();
        let mut row = 0;
        // SAFETY: by the caller.
        unsafe {
            while row < self.row_tiles {
                let (a, c) = (a.add(row * a_stride), c.add(row * SIDE * SIDE));
                if row + 2 <= self.row_tiles {
                    amx::multiply_two(a, a_stride, b, b_stride, c, c_stride, k_tiles, add);
                } else {
                    amx::multiply_one(a, b, b_stride, c, c_stride, k_tiles, add);
                }
                row += 2;
            }
        }
    }

    /// Turns scores into weights, split into operand A, and brings maxima and sums up to date.
    #[inline(always)]
    unsafe fn softmax(&self, from: usize, to: usize, n_blocks: usize) {
        let tile = self.tile;
        let origin = from / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
        // SAFETY: scores, weights and partials hold every row.
        unsafe {
            for row in 0..self.rows {
                let seen = tile.seen(row / tile.group);
                let first = seen.start.max(from) - origin;
                let last = seen.end.min(to).saturating_sub(origin);
                let at = |column: usize| {
                    let column = column * self.row_tiles * SIDE;
                    self.scores.add((column + row) * SIDE)
                };
                let hidden = Avx512::splat(f32::NEG_INFINITY);
                let mut largest = hidden;
                for column in 0..2 * n_blocks {
                    let mut score = Avx512::load(at(column));
                    if let Some(cap) = tile.softcap {
                        let cap_all = Avx512::splat(cap);
                        score = tanh(score.mul(Avx512::splat(1.0 / cap))).mul(cap_all);
                    }
                    let c = column * SIDE;
                    if c < first || c + SIDE > last {
                        score = score.keep(first.saturating_sub(c), last.saturating_sub(c), hidden);
                    }
                    score.store(at(column));
                    largest = largest.max(score);
                }
                let before = *self.into.max.add(row);
                let now = largest.largest();
                let max = if before > now { before } else { now };
                // A row that has seen nothing yet keeps it so.
                let shift = if max == f32::NEG_INFINITY { 0.0 } else { max };
                let shift = Avx512::splat(shift);
                let mut sum = Avx512::splat(0.0);
                let plane_at = row / SIDE * n_blocks * TILE_BYTES + row % SIDE * 64;
                for block in 0..n_blocks {
                    let a = exp(Avx512::load(at(2 * block)).sub(shift));
                    let b = exp(Avx512::load(at(2 * block + 1)).sub(shift));
                    sum = sum.add(a).add(b);
                    let ((high_a, low_a), (high_b, low_b)) = (split(a.0), split(b.0));
                    let high = row_of(_mm512_castsi512_ps(high_a), _mm512_castsi512_ps(high_b));
                    let to = plane_at + block * TILE_BYTES;
                    store(self.weights[0].add(to), high);
                    store(self.weights[1].add(to), row_of(low_a, low_b));
                }
                let mut factor = [0f32; SIDE];
                exp(Avx512::splat(before).sub(shift)).store(factor.as_mut_ptr());
                *self.factors.add(row) = factor[0];
                *self.into.max.add(row) = max;
                let total = self.into.sum.add(row);
                *total = *total * factor[0] + sum.sum();
            }
        }
    }

    /// Splits two columns of tiles of the values, elements `d..d + 32`, into operand B. Tokens from
    /// `end` on count as 0, whatever lies there.
    #[inline(always)]
    unsafe fn load_values(&self, first_block: usize, n_blocks: usize, end: usize, d: usize) {
        let tile = self.tile;
        // SAFETY: the blocks are in the pool; rows are `[v_head_dim]`, a multiple of 16.
        unsafe {
            for block in 0..n_blocks {
                let id = *tile.table.get_unchecked(first_block + block) as usize;
                let values = tile.kv.values.add(id * tile.kv.v_block_bytes).cast::<u16>();
                let values = values.add(tile.kv_head * tile.v_head_dim * KV_BLOCK_TOKENS);
                let live = end - (first_block + block) * KV_BLOCK_TOKENS;
                for column in 0..2 {
                    let d = d + column * SIDE;
                    for token in (0..KV_BLOCK_TOKENS).step_by(2) {
                        let load = |token: usize| {
                            if token >= live || d >= tile.v_head_dim {
                                return _mm512_setzero_ps();
                            }
                            let from = values.add(token * tile.v_head_dim + d);
                            _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
                        };
                        let (high_a, low_a) = split(load(token));
                        let (high_b, low_b) = split(load(token + 1));
                        let at = self
                            .values
                            .add((2 * column * n_blocks + block) * TILE_BYTES + token / 2 * 64);
                        store(at, pair(high_a, high_b));
                        let low = pair(_mm512_castps_si512(low_a), _mm512_castps_si512(low_b));
                        store(at.add(n_blocks * TILE_BYTES), low);
                    }
                }
            }
        }
    }

    /// Weighted sums of the values that are loaded.
    #[inline(always)]
    unsafe fn multiply_values(&self, n: usize) {
        let [high, low] = self.weights;
        // SAFETY: operands and results lie in the scratch; tiles are configured.
        unsafe {
            let values_low = self.values.add(n * TILE_BYTES);
            self.multiply(high, n, self.values, 2 * n, self.sums, n, false);
            self.multiply(high, n, values_low, 2 * n, self.sums, n, true);
            self.multiply(low, n, self.values, 2 * n, self.sums, n, true);
        }
    }

    /// Adds the sums to elements `d..d + 32` of the partials.
    #[inline(always)]
    unsafe fn fold(&self, d: usize) {
        let v_head_dim = self.tile.v_head_dim;
        // SAFETY: partials are `[rows][v_head_dim]`, a multiple of 16.
        unsafe {
            for column in 0..2 {
                let d = d + column * SIDE;
                if d >= v_head_dim {
                    break;
                }
                for row in 0..self.rows {
                    let at = (column * self.row_tiles * SIDE + row) * SIDE;
                    let sums = Avx512::load(self.sums.add(at));
                    let factor = Avx512::splat(*self.factors.add(row));
                    let out = self.into.values.add(row * v_head_dim + d);
                    Avx512::load(out).mul_add(factor, sums).store(out);
                }
            }
        }
    }
}
