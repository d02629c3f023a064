//! Integer kernels: packed codes times 8-bit activations.
//!
//! One k block of weights is unpacked into registers and used for every row of the panel before the
//! next one is read. What happens to a row does not depend on how many others there are, so results
//! are the same to the bit for every batch.

// Safety is the contract of `BlockArgs`.
#![allow(unsafe_op_in_unsafe_fn)]

use super::acts::ActBlock;
use super::formats::{Block, BlockFormat};
use crate::arch::Simd;
use crate::weights::GROUP_ROWS;

/// Groups times one panel of activations.
///
/// # Safety
/// `groups` is valid for reading `n_groups` groups of `blocks` k blocks, `group_bytes` apart; `acts`
/// for `[blocks][rows]` activation blocks; `sums` for writing `[n_groups][rows][16]` floats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockArgs {
    /// First group.
    pub(crate) groups: *const u8,
    /// Groups.
    pub(crate) n_groups: usize,
    /// Bytes from a group to the next.
    pub(crate) group_bytes: usize,
    /// k blocks.
    pub(crate) blocks: usize,
    /// Activations of the panel.
    pub(crate) acts: *const ActBlock,
    /// Rows of the panel.
    pub(crate) rows: usize,
    /// Where the weights end that this thread will want next.
    pub(crate) fetch_end: *const u8,
    /// Products, `[n_groups][rows][16]`.
    pub(crate) sums: *mut f32,
}

/// How far ahead weights are asked for, in bytes: first for the second-level cache, which has more
/// requests under way at a time, then for the first.
const PREFETCH_FAR: usize = 8192;
const PREFETCH: usize = 1024;

/// Products of every group.
#[inline(always)]
pub(crate) unsafe fn multiply<S: Simd, F: BlockFormat>(args: &BlockArgs) {
    if args.rows == 1 {
        for group in 0..args.n_groups {
            one_row::<S, F>(args, group);
        }
        return;
    }
    let mut group = 0;
    if S::MANY_GROUPS == 2 {
        while group + 2 <= args.n_groups {
            many_rows::<S, F, 2>(args, group);
            group += 2;
        }
    }
    while group < args.n_groups {
        many_rows::<S, F, 1>(args, group);
        group += 1;
    }
}

/// Where sums of products start: minus the bias times the sum of activations, of columns 0..16 and
/// 16..32 or of all columns.
#[inline(always)]
unsafe fn starts<S: Simd, F: BlockFormat>(act: *const ActBlock) -> [S::I; 2] {
    let zero = S::splat_i32(0);
    if F::HALVES {
        // These are for a bias of 2^7.
        let [low, high] = [
            S::splat_i32((*act).bias_half_sums[0]),
            S::splat_i32((*act).bias_half_sums[1]),
        ];
        return match F::BIAS_LOG2 {
            Some(5) => [S::sra::<2>(low), S::sra::<2>(high)],
            Some(2) => [S::sra::<5>(low), S::sra::<5>(high)],
            Some(_) => unreachable!(),
            None => [zero; 2],
        };
    }
    let start = match F::BIAS_LOG2 {
        Some(7) if !S::WIDE_KEEPS_BIAS => zero,
        Some(7) => S::splat_i32((*act).bias_sum),
        Some(4) => S::sra::<3>(S::splat_i32((*act).bias_sum)),
        Some(3) => S::splat_i32((*act).bias_sum_8),
        Some(_) => unreachable!(),
        None => zero,
    };
    [start; 2]
}

/// Adds the products of one k block of `G` groups with the activation blocks of `R` rows.
#[inline(always)]
unsafe fn add_blocks<S: Simd, F: BlockFormat, const R: usize, const G: usize>(
    sums: &mut [[S::F; G]; R],
    blocks: &[Block<S>; G],
    acts: *const ActBlock,
) {
    let zero = S::splat_i32(0);
    let codes = (&raw const (*acts).codes).cast::<i8>();
    let stride = size_of::<ActBlock>();
    let mut low = [[zero; G]; R];
    let mut high = [[zero; G]; R];
    for r in 0..R {
        let [start_low, start_high] = starts::<S, F>(acts.add(r));
        low[r] = [start_low; G];
        high[r] = [start_high; G];
    }
    if F::HALVES {
        let mut low_codes = [[zero; 4]; G];
        let mut high_codes = [[zero; 4]; G];
        for g in 0..G {
            let [a, b, c, d, e, f, g_, h] = blocks[g].codes;
            low_codes[g] = [a, b, c, d];
            high_codes[g] = [e, f, g_, h];
        }
        low = S::dots::<R, G, 4>(low, low_codes, codes, stride, F::MAX);
        high = S::dots::<R, G, 4>(high, high_codes, codes.add(16), stride, F::MAX);
    } else {
        let mut all = [blocks[0].codes; G];
        for g in 1..G {
            all[g] = blocks[g].codes;
        }
        low = S::dots::<R, G, 8>(low, all, codes, stride, F::MAX);
    }
    for r in 0..R {
        let act = acts.add(r);
        let scale = S::splat((*act).scale);
        for g in 0..G {
            let block = &blocks[g];
            let mut sum = sums[r][g];
            sum = S::fma(S::to_f32(low[r][g]), S::mul(block.scale[0], scale), sum);
            if F::HALVES {
                sum = S::fma(S::to_f32(high[r][g]), S::mul(block.scale[1], scale), sum);
            }
            if F::HAS_MIN && F::HALVES {
                let act_sums = (*act).scaled_half_sums;
                sum = S::fma(block.min[0], S::splat(act_sums[0]), sum);
                sum = S::fma(block.min[1], S::splat(act_sums[1]), sum);
            } else if F::HAS_MIN {
                sum = S::fma(block.min[0], S::splat((*act).scaled_sum), sum);
            }
            sums[r][g] = sum;
        }
    }
}

/// Asks for what comes after the `bytes` bytes at `p`, up to `end`.
#[inline(always)]
unsafe fn fetch<S: Simd>(p: *const u8, bytes: usize, end: *const u8) {
    let mut line = 0;
    while line < bytes {
        S::prefetch(p.wrapping_add(PREFETCH + line));
        line += 64;
    }
    if p.addr() + PREFETCH_FAR < end.addr() {
        let mut line = 0;
        while line < bytes {
            S::prefetch_far(p.wrapping_add(PREFETCH_FAR + line));
            line += 64;
        }
    }
}

/// One row: its sums stay in registers.
#[inline(always)]
unsafe fn one_row<S: Simd, F: BlockFormat>(args: &BlockArgs, group: usize) {
    let geometry = F::GEOMETRY;
    let group_at = args.groups.add(group * args.group_bytes);
    let mut codes = group_at;
    let mut scales = group_at.add(geometry.scales_at(args.blocks, 0));
    let mut act = args.acts;
    let parts = GROUP_ROWS / S::ROWS;
    let mut sums = [S::splat(0.0); 4];
    for _ in 0..args.blocks / geometry.super_blocks {
        let mut headers = [F::header::<S>(scales, 0); 4];
        for part in 1..parts {
            headers[part] = F::header::<S>(scales, part * S::ROWS);
        }
        fetch::<S>(scales, geometry.scale_bytes, args.fetch_end);
        for index in 0..geometry.super_blocks {
            fetch::<S>(codes, geometry.code_bytes, args.fetch_end);
            for part in 0..parts {
                let block = F::block::<S>(codes, scales, index, part * S::ROWS, &headers[part]);
                let mut sum = [[sums[part]]];
                add_blocks::<S, F, 1, 1>(&mut sum, &[block], act);
                sums[part] = sum[0][0];
            }
            codes = codes.add(geometry.code_bytes);
            act = act.add(1);
        }
        scales = scales.add(geometry.scale_bytes);
    }
    for part in 0..parts {
        S::store_f32(
            args.sums.add(group * GROUP_ROWS + part * S::ROWS),
            sums[part],
        );
    }
}

/// Several rows and `G` groups: sums lie in memory, which the first-level cache holds.
#[inline(always)]
unsafe fn many_rows<S: Simd, F: BlockFormat, const G: usize>(args: &BlockArgs, group: usize) {
    let geometry = F::GEOMETRY;
    let group_at = args.groups.add(group * args.group_bytes);
    let scales_at = geometry.scales_at(args.blocks, 0);
    let sums = args.sums.add(group * args.rows * GROUP_ROWS);
    sums.write_bytes(0, G * args.rows * GROUP_ROWS);
    for lane in (0..GROUP_ROWS).step_by(S::ROWS) {
        let mut codes = group_at;
        let mut scales = group_at.add(scales_at);
        let mut acts = args.acts;
        for _ in 0..args.blocks / geometry.super_blocks {
            let mut headers = [F::header::<S>(scales, lane); G];
            for g in 1..G {
                headers[g] = F::header::<S>(scales.add(g * args.group_bytes), lane);
            }
            for index in 0..geometry.super_blocks {
                let mut blocks = [F::block::<S>(codes, scales, index, lane, &headers[0]); G];
                for g in 1..G {
                    let at = g * args.group_bytes;
                    blocks[g] =
                        F::block::<S>(codes.add(at), scales.add(at), index, lane, &headers[g]);
                }
                let mut row = 0;
                let sums_at = sums.add(lane);
                if S::MANY_ROWS == 4 {
                    while row + 4 <= args.rows {
                        some_rows::<S, F, 4, G>(args.rows, sums_at, &blocks, acts, row);
                        row += 4;
                    }
                }
                while row < args.rows {
                    some_rows::<S, F, 1, G>(args.rows, sums_at, &blocks, acts, row);
                    row += 1;
                }
                acts = acts.add(args.rows);
                codes = codes.add(geometry.code_bytes);
            }
            scales = scales.add(geometry.scale_bytes);
        }
    }
}

/// `R` rows from `row` on, `G` groups, one k block; `sums` is `[G][rows][16]`.
#[inline(always)]
unsafe fn some_rows<S: Simd, F: BlockFormat, const R: usize, const G: usize>(
    rows: usize,
    sums: *mut f32,
    blocks: &[Block<S>; G],
    acts: *const ActBlock,
    row: usize,
) {
    let mut values = [[S::splat(0.0); G]; R];
    for r in 0..R {
        for g in 0..G {
            values[r][g] = S::load_f32(sums.add((g * rows + row + r) * GROUP_ROWS));
        }
    }
    add_blocks::<S, F, R, G>(&mut values, blocks, acts.add(row));
    for r in 0..R {
        for g in 0..G {
            S::store_f32(sums.add((g * rows + row + r) * GROUP_ROWS), values[r][g]);
        }
    }
}
