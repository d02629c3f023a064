//! Weighted sums of the values of a split.

use crate::attention::SCORE_STRIDE;
use crate::kv::ValueTile;
use crate::vector::{F32s, store_first};
use kvant_quant::KV_BLOCK_TOKENS;

/// Vectors of elements that are in registers at once.
const COLUMNS: usize = 4;
/// How many blocks before their turn values are asked for.
const BLOCKS_AHEAD: usize = 2;

/// Asks for the values of the first blocks of a split before their turn.
#[inline(always)]
pub(super) fn prefetch<T: ValueTile>(
    n_blocks: usize,
    v_head_dim: usize,
    value: impl Fn(usize) -> T,
) {
    for block in 0..n_blocks.min(BLOCKS_AHEAD) {
        let tile = value(block);
        for token in 0..KV_BLOCK_TOKENS {
            tile.prefetch(token, 0, v_head_dim, v_head_dim);
        }
    }
}

/// Writes `out[row][d] = sum over tokens of weights[row][token] * value[token][d]` for tokens
/// `0..n_tokens` of the tiles `value(0), value(1), …`.
///
/// # Safety
/// As [`F32s`]; weights (`[rows][SCORE_STRIDE]`), tiles and `out` (`[rows][v_head_dim]`) are valid.
#[inline(always)]
pub(super) unsafe fn values<V: F32s, T: ValueTile>(
    weights: *const f32,
    n_rows: usize,
    v_head_dim: usize,
    first_token: usize,
    n_tokens: usize,
    value: impl Fn(usize) -> T + Copy,
    out: *mut f32,
) {
    let job = Job {
        weights,
        n_rows,
        v_head_dim,
        first_token,
        n_tokens,
        out,
    };
    let mut d = 0;
    // SAFETY: by the caller.
    unsafe {
        while d + COLUMNS * V::LANES <= v_head_dim {
            rows::<V, T, COLUMNS>(job, d, value);
            d += COLUMNS * V::LANES;
        }
        if d + 2 * V::LANES <= v_head_dim {
            rows::<V, T, 2>(job, d, value);
            d += 2 * V::LANES;
        }
        while d < v_head_dim {
            rows::<V, T, 1>(job, d, value);
            d += V::LANES;
        }
    }
}

#[derive(Clone, Copy)]
struct Job {
    weights: *const f32,
    n_rows: usize,
    v_head_dim: usize,
    first_token: usize,
    n_tokens: usize,
    out: *mut f32,
}

/// All rows, `C` vectors of elements from `d`.
#[inline(always)]
unsafe fn rows<V: F32s, T: ValueTile, const C: usize>(
    job: Job,
    d: usize,
    value: impl Fn(usize) -> T + Copy,
) {
    let most = if V::REGISTERS >= 32 { 6 } else { 3 };
    let mut row = 0;
    // SAFETY: by the caller.
    unsafe {
        while row < job.n_rows {
            let n = most.min(job.n_rows - row);
            match n {
                1 => micro::<V, T, 1, C>(job, row, d, value),
                2 => micro::<V, T, 2, C>(job, row, d, value),
                3 => micro::<V, T, 3, C>(job, row, d, value),
                4 => micro::<V, T, 4, C>(job, row, d, value),
                5 => micro::<V, T, 5, C>(job, row, d, value),
                _ => micro::<V, T, 6, C>(job, row, d, value),
            }
            row += n;
        }
    }
}

/// `R` rows, `C` vectors of elements: sums over tokens in order.
#[inline(always)]
unsafe fn micro<V: F32s, T: ValueTile, const R: usize, const C: usize>(
    job: Job,
    row: usize,
    d: usize,
    value: impl Fn(usize) -> T,
) {
    // SAFETY: by the caller.
    unsafe {
        let weights = job.weights.add(row * SCORE_STRIDE);
        let whole = d + C * V::LANES <= job.v_head_dim;
        let mut sums = [[V::splat(0.0); C]; R];
        let mut token = job.first_token;
        while token < job.n_tokens {
            let tile = value(token / KV_BLOCK_TOKENS);
            let end = job
                .n_tokens
                .min((token / KV_BLOCK_TOKENS + 1) * KV_BLOCK_TOKENS);
            // The first rows ask for what all of them will read.
            let coming = token / KV_BLOCK_TOKENS + BLOCKS_AHEAD;
            let ahead =
                (row == 0 && coming * KV_BLOCK_TOKENS < job.n_tokens).then(|| value(coming));
            while token < end {
                let slot = token % KV_BLOCK_TOKENS;
                if let Some(ahead) = ahead {
                    ahead.prefetch(slot, d, C * V::LANES, job.v_head_dim);
                }
                let v: [V; C] = std::array::from_fn(|c| {
                    if whole {
                        tile.elements(slot, d + c * V::LANES, job.v_head_dim)
                    } else {
                        tile.last_elements(slot, d, job.v_head_dim - d, job.v_head_dim)
                    }
                });
                for r in 0..R {
                    let weight = V::splat(*weights.add(r * SCORE_STRIDE + token));
                    for c in 0..C {
                        sums[r][c] = v[c].mul_add(weight, sums[r][c]);
                    }
                }
                token += 1;
            }
        }
        for r in 0..R {
            let out = job.out.add((row + r) * job.v_head_dim + d);
            for c in 0..C {
                let n = V::LANES.min(job.v_head_dim - d - c * V::LANES);
                store_first(sums[r][c], out.add(c * V::LANES), n);
            }
        }
    }
}
