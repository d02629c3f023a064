//! Float kernels: F32, F16 and BF16 weights times `f32` activations, and every format that is first
//! decoded to `f32`.
//!
//! Each sum is taken in the order of the columns, whatever the number of rows.

// Safety is the contract of `FloatArgs`.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::arch::Simd;
use crate::weights::GROUP_ROWS;
use kvant_quant::WeightFormat;

/// Element type of a panel of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatKind {
    /// `f32`.
    F32,
    /// binary16.
    F16,
    /// bfloat16.
    Bf16,
}

impl FloatKind {
    /// How a weight of this format meets the float kernels; formats that are decoded first are `f32`.
    pub(crate) fn of(format: WeightFormat) -> Self {
        match format {
            WeightFormat::F16 => Self::F16,
            WeightFormat::BF16 => Self::Bf16,
            _ => Self::F32,
        }
    }
}

/// Groups times rows of activations; products are added to `sums` or replace them.
///
/// # Safety
/// `groups` is valid for reading `n_groups` groups of `[k][16]` elements, `group_bytes` apart; `x` for
/// `rows` rows of `k` floats, `x_stride` floats apart; `sums` for `[n_groups][rows][16]` floats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloatArgs {
    /// Element type.
    pub(crate) kind: FloatKind,
    /// First group.
    pub(crate) groups: *const u8,
    /// Groups.
    pub(crate) n_groups: usize,
    /// Bytes from a group to the next.
    pub(crate) group_bytes: usize,
    /// Columns.
    pub(crate) k: usize,
    /// First activation.
    pub(crate) x: *const f32,
    /// Floats from a row to the next.
    pub(crate) x_stride: usize,
    /// Rows.
    pub(crate) rows: usize,
    /// Whether to add to what `sums` hold.
    pub(crate) add: bool,
    /// Products, `[n_groups][rows][16]`.
    pub(crate) sums: *mut f32,
}

/// How far ahead weights are asked for, in bytes.
const PREFETCH: usize = 1024;

/// Columns that stay in registers while the rows pass: as many as leave room for the sums.
const COLS: usize = 8;
const COLS_OF_32_REGISTERS: usize = 16;

trait Element {
    const BYTES: usize;
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

struct F32;
struct F16;
struct Bf16;

impl Element for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        S::load_f32(p.cast())
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        S::load_f16(p)
    }
}

impl Element for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        S::load_bf16(p)
    }
}

/// Products of every group.
#[inline(always)]
pub(crate) unsafe fn multiply<S: Simd>(args: &FloatArgs) {
    match args.kind {
        FloatKind::F32 => multiply_elements::<S, F32>(args),
        FloatKind::F16 => multiply_elements::<S, F16>(args),
        FloatKind::Bf16 => multiply_elements::<S, Bf16>(args),
    }
}

#[inline(always)]
unsafe fn multiply_elements<S: Simd, E: Element>(args: &FloatArgs) {
    if !args.add {
        args.sums
            .write_bytes(0, args.n_groups * args.rows * GROUP_ROWS);
    }
    let mut group = 0;
    if args.rows == 1 {
        // Four vectors of sums hide the latency of an addition; 16-lane vectors need four groups.
        if S::ROWS == 16 {
            while group + 4 <= args.n_groups {
                one_row::<S, E, 4>(args, group);
                group += 4;
            }
        }
        if S::ROWS >= 8 {
            while group + 2 <= args.n_groups {
                one_row::<S, E, 2>(args, group);
                group += 2;
            }
        }
        while group < args.n_groups {
            one_row::<S, E, 1>(args, group);
            group += 1;
        }
        return;
    }
    while group < args.n_groups {
        many_rows::<S, E>(args, group);
        group += 1;
    }
}

/// One row and `G` groups: sums stay in registers.
#[inline(always)]
unsafe fn one_row<S: Simd, E: Element, const G: usize>(args: &FloatArgs, group: usize) {
    let parts = GROUP_ROWS / S::ROWS;
    let weights = args.groups.add(group * args.group_bytes);
    let sums_at = args.sums.add(group * GROUP_ROWS);
    let mut sums = [[S::splat(0.0); 4]; G];
    for g in 0..G {
        for part in 0..parts {
            sums[g][part] = S::load_f32(sums_at.add(g * GROUP_ROWS + part * S::ROWS));
        }
    }
    for col in 0..args.k {
        let x = S::splat(*args.x.add(col));
        let at = weights.add(col * GROUP_ROWS * E::BYTES);
        for g in 0..G {
            let at = at.add(g * args.group_bytes);
            if GROUP_ROWS * E::BYTES == 64 || col.is_multiple_of(2) {
                S::prefetch(at.wrapping_add(PREFETCH));
            }
            for part in 0..parts {
                let w = E::load::<S>(at.add(part * S::ROWS * E::BYTES));
                sums[g][part] = S::fma(w, x, sums[g][part]);
            }
        }
    }
    for g in 0..G {
        for part in 0..parts {
            S::store_f32(sums_at.add(g * GROUP_ROWS + part * S::ROWS), sums[g][part]);
        }
    }
}

/// Several rows: a few columns of weights stay in registers while the rows pass.
#[inline(always)]
unsafe fn many_rows<S: Simd, E: Element>(args: &FloatArgs, group: usize) {
    let weights = args.groups.add(group * args.group_bytes);
    let sums = args.sums.add(group * args.rows * GROUP_ROWS);
    for lane in (0..GROUP_ROWS).step_by(S::ROWS) {
        let mut col = 0;
        if S::MANY_GROUPS == 2 {
            while col + COLS_OF_32_REGISTERS <= args.k {
                let sums = sums.add(lane);
                some_columns::<S, E, COLS_OF_32_REGISTERS>(args, weights, sums, lane, col);
                col += COLS_OF_32_REGISTERS;
            }
        }
        while col + COLS <= args.k {
            some_columns::<S, E, COLS>(args, weights, sums.add(lane), lane, col);
            col += COLS;
        }
        while col < args.k {
            some_columns::<S, E, 1>(args, weights, sums.add(lane), lane, col);
            col += 1;
        }
    }
}

#[inline(always)]
unsafe fn some_columns<S: Simd, E: Element, const C: usize>(
    args: &FloatArgs,
    weights: *const u8,
    sums: *mut f32,
    lane: usize,
    col: usize,
) {
    let mut w = [S::splat(0.0); C];
    for c in 0..C {
        w[c] = E::load::<S>(weights.add(((col + c) * GROUP_ROWS + lane) * E::BYTES));
    }
    let mut row = 0;
    if S::MANY_ROWS == 4 {
        while row + 4 <= args.rows {
            some_rows::<S, C, 4>(args, &w, sums, col, row);
            row += 4;
        }
    }
    while row < args.rows {
        some_rows::<S, C, 1>(args, &w, sums, col, row);
        row += 1;
    }
}

/// `R` rows from `row` on, side by side to hide the latency of an addition.
#[inline(always)]
unsafe fn some_rows<S: Simd, const C: usize, const R: usize>(
    args: &FloatArgs,
    w: &[S::F; C],
    sums: *mut f32,
    col: usize,
    row: usize,
) {
    let x = args.x.add(row * args.x_stride + col);
    let mut values = [S::splat(0.0); R];
    for r in 0..R {
        values[r] = S::load_f32(sums.add((row + r) * GROUP_ROWS));
    }
    for c in 0..C {
        for r in 0..R {
            let x = S::splat(*x.add(r * args.x_stride + c));
            values[r] = S::fma(w[c], x, values[r]);
        }
    }
    for r in 0..R {
        S::store_f32(sums.add((row + r) * GROUP_ROWS), values[r]);
    }
}
