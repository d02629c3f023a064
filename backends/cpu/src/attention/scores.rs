//! `q · k` of a tile's rows with the tokens of a split.

use crate::attention::SCORE_STRIDE;
use crate::kv::KeyTile;
use crate::vector::F32s;
use kvant_quant::KV_BLOCK_TOKENS;

/// Vectors of tokens that are in registers at once.
const COLUMNS: usize = 4;
/// How many blocks before their turn keys are asked for.
const BLOCKS_AHEAD: usize = 2;

/// Writes `scores[row][token - first]` for all rows and the tokens of `blocks`, whose tiles are
/// `key(0), key(1), …`. Queries are `[rows][head_dim]`.
///
/// # Safety
/// As [`F32s`]; queries, tiles and scores (`[rows][SCORE_STRIDE]`) are valid.
#[inline(always)]
pub(super) unsafe fn scores<V: F32s, K: KeyTile>(
    queries: *const f32,
    n_rows: usize,
    head_dim: usize,
    n_blocks: usize,
    key: impl Fn(usize) -> K,
    scores: *mut f32,
) {
    let vectors = KV_BLOCK_TOKENS / V::LANES;
    let total = n_blocks * vectors;
    let mut at = 0;
    // SAFETY: by the caller; every column lies in one of the tiles.
    unsafe {
        while at + COLUMNS <= total {
            let columns = std::array::from_fn::<_, COLUMNS, _>(|c| {
                let column = at + c;
                (key(column / vectors), column % vectors * V::LANES)
            });
            let coming = at / vectors + BLOCKS_AHEAD;
            let whole = COLUMNS.div_ceil(vectors);
            // Blocks begin at a multiple of `vectors`, and the last ones have nothing behind them.
            let ahead = (at.is_multiple_of(vectors) && coming + whole <= n_blocks)
                .then(|| std::array::from_fn(|b| key(coming + b.min(whole - 1))));
            rows::<V, K, COLUMNS>(
                queries,
                n_rows,
                head_dim,
                &columns,
                ahead,
                scores.add(at * V::LANES),
            );
            at += COLUMNS;
        }
        while at < total {
            let columns = std::array::from_fn::<_, 2, _>(|c| {
                let column = at + c;
                (key(column / vectors), column % vectors * V::LANES)
            });
            rows::<V, K, 2>(
                queries,
                n_rows,
                head_dim,
                &columns,
                None,
                scores.add(at * V::LANES),
            );
            at += 2;
        }
    }
}

/// All rows against `C` columns. The first rows ask for the keys `ahead`.
#[inline(always)]
unsafe fn rows<V: F32s, K: KeyTile, const C: usize>(
    queries: *const f32,
    n_rows: usize,
    head_dim: usize,
    columns: &[(K, usize); C],
    ahead: Option<[K; C]>,
    scores: *mut f32,
) {
    let most = if V::REGISTERS >= 32 { 6 } else { 3 };
    let mut row = 0;
    // SAFETY: by the caller.
    unsafe {
        while row < n_rows {
            let n = most.min(n_rows - row);
            let ahead = ahead.filter(|_| row == 0);
            let q = queries.add(row * head_dim);
            let s = scores.add(row * SCORE_STRIDE);
            match n {
                1 => micro::<V, K, 1, C>(q, head_dim, columns, ahead, s),
                2 => micro::<V, K, 2, C>(q, head_dim, columns, ahead, s),
                3 => micro::<V, K, 3, C>(q, head_dim, columns, ahead, s),
                4 => micro::<V, K, 4, C>(q, head_dim, columns, ahead, s),
                5 => micro::<V, K, 5, C>(q, head_dim, columns, ahead, s),
                _ => micro::<V, K, 6, C>(q, head_dim, columns, ahead, s),
            }
            row += n;
        }
    }
}

/// `R` rows against `C` vectors of tokens: sums over `d` in order, one lane a token.
#[inline(always)]
unsafe fn micro<V: F32s, K: KeyTile, const R: usize, const C: usize>(
    queries: *const f32,
    head_dim: usize,
    columns: &[(K, usize); C],
    ahead: Option<[K; C]>,
    scores: *mut f32,
) {
    let blocks_ahead = (C * V::LANES).div_ceil(KV_BLOCK_TOKENS);
    // SAFETY: by the caller.
    unsafe {
        let mut sums = [[V::splat(0.0); C]; R];
        for d in 0..head_dim {
            if let Some(ahead) = ahead {
                for tile in &ahead[..blocks_ahead] {
                    tile.prefetch(d);
                }
            }
            let keys = columns.map(|(tile, token)| tile.tokens::<V>(d, token));
            for r in 0..R {
                let q = V::splat(*queries.add(r * head_dim + d));
                for c in 0..C {
                    sums[r][c] = keys[c].mul_add(q, sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                sums[r][c].store(scores.add(r * SCORE_STRIDE + c * V::LANES));
            }
        }
    }
}
