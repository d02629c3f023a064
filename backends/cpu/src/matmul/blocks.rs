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
    /// Products, `[n_groups][rows][16]`.
    pub(crate) sums: *mut f32,
}

/// How far ahead weights are asked for, in bytes.
const PREFETCH: usize = 2048;

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

/// What every group needs of an activation block.
#[derive(Clone, Copy)]
struct Act<S: Simd> {
    codes: *const i8,
    scale: S::F,
    /// Where sums of products start: minus the bias times the sum of columns 0..16 and 16..32, or of all
    /// columns.
    start: [S::I; 2],
    /// Factors of the minima, likewise.
    sums: [S::F; 2],
}

#[inline(always)]
unsafe fn load_act<S: Simd, F: BlockFormat>(act: *const ActBlock) -> Act<S> {
    let zero = S::splat_i32(0);
    let (start, sums) = if F::HALVES {
        let [low, high] = (*act).bias_half_sums;
        let [low_sum, high_sum] = (*act).scaled_half_sums;
        // These are for a bias of 2^7.
        let start = match F::BIAS_LOG2 {
            Some(5) => [
                S::sra::<2>(S::splat_i32(low)),
                S::sra::<2>(S::splat_i32(high)),
            ],
            Some(2) => [
                S::sra::<5>(S::splat_i32(low)),
                S::sra::<5>(S::splat_i32(high)),
            ],
            Some(_) => unreachable!(),
            None => [zero; 2],
        };
        (start, [S::splat(low_sum), S::splat(high_sum)])
    } else {
        let start = match F::BIAS_LOG2 {
            Some(7) if !S::WIDE_KEEPS_BIAS => zero,
            Some(7) => S::splat_i32((*act).bias_sum),
            Some(4) => S::sra::<3>(S::splat_i32((*act).bias_sum)),
            Some(3) => S::splat_i32((*act).bias_sum_8),
            Some(_) => unreachable!(),
            None => zero,
        };
        ([start; 2], [S::splat((*act).scaled_sum); 2])
    };
    Act {
        codes: (&raw const (*act).codes).cast(),
        scale: S::splat((*act).scale),
        start,
        sums,
    }
}

/// Adds the products of one k block with one activation block.
#[inline(always)]
unsafe fn add_block<S: Simd, F: BlockFormat>(sum: S::F, block: &Block<S>, act: &Act<S>) -> S::F {
    let mut sum = sum;
    if F::HALVES {
        let [a, b, c, d, e, f, g, h] = block.codes;
        let low = S::dot::<4>(act.start[0], [a, b, c, d], act.codes, F::MAX);
        let high = S::dot::<4>(act.start[1], [e, f, g, h], act.codes.add(16), F::MAX);
        sum = S::fma(S::to_f32(low), S::mul(block.scale[0], act.scale), sum);
        sum = S::fma(S::to_f32(high), S::mul(block.scale[1], act.scale), sum);
    } else {
        let dot = S::dot::<8>(act.start[0], block.codes, act.codes, F::MAX);
        sum = S::fma(S::to_f32(dot), S::mul(block.scale[0], act.scale), sum);
    }
    if F::HAS_MIN {
        sum = S::fma(block.min[0], act.sums[0], sum);
    }
    if F::HAS_MIN && F::HALVES {
        sum = S::fma(block.min[1], act.sums[1], sum);
    }
    sum
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
        let mut line = 0;
        while line < geometry.scale_bytes {
            S::prefetch(scales.wrapping_add(PREFETCH + line));
            line += 64;
        }
        for index in 0..geometry.super_blocks {
            let mut line = 0;
            while line < geometry.code_bytes {
                S::prefetch(codes.wrapping_add(PREFETCH + line));
                line += 64;
            }
            let loaded = load_act::<S, F>(act);
            for part in 0..parts {
                let block = F::block::<S>(codes, scales, index, part * S::ROWS, &headers[part]);
                sums[part] = add_block::<S, F>(sums[part], &block, &loaded);
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
                let mut sum_at = sums.add(lane);
                for _ in 0..args.rows {
                    let act = load_act::<S, F>(acts);
                    for g in 0..G {
                        let at = sum_at.add(g * args.rows * GROUP_ROWS);
                        let sum = add_block::<S, F>(S::load_f32(at), &blocks[g], &act);
                        S::store_f32(at, sum);
                    }
                    sum_at = sum_at.add(GROUP_ROWS);
                    acts = acts.add(1);
                }
                codes = codes.add(geometry.code_bytes);
            }
            scales = scales.add(geometry.scale_bytes);
        }
    }
}
