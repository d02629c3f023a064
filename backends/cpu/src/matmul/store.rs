//! From sums to outputs: bias, residual, gated activation.

// Safety is the contract of `StoreArgs`.
#![allow(unsafe_op_in_unsafe_fn)]

use super::activation::activate;
use crate::arch::Simd;
use crate::weights::GROUP_ROWS;
use kvant_device::Epilogue;

/// Sums of groups on their way to the output.
///
/// # Safety
/// `sums` (and `more_sums` when gated) is valid for reading `[n_groups][sum_rows][16]` floats. `out`, the
/// first output of the first row, and `residual`, where the epilogue has one, are valid for `rows` rows
/// of `cols` floats at their strides; nobody else accesses those outputs. `bias`, unless null, is valid
/// for `cols` floats.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreArgs {
    /// What is done.
    pub(crate) epilogue: Epilogue,
    /// Products.
    pub(crate) sums: *const f32,
    /// Products of the second weight, when gated.
    pub(crate) more_sums: *const f32,
    /// Rows of sums a group.
    pub(crate) sum_rows: usize,
    /// Bias of each output, or null.
    pub(crate) bias: *const f32,
    /// Bias of the second weight, or null.
    pub(crate) more_bias: *const f32,
    /// Rows.
    pub(crate) rows: usize,
    /// Outputs a row, at most 16 a group.
    pub(crate) cols: usize,
    /// First output.
    pub(crate) out: *mut f32,
    /// Floats from a row to the next.
    pub(crate) out_stride: usize,
    /// What is added to, at the first output.
    pub(crate) residual: *const f32,
    /// Floats from a row to the next.
    pub(crate) residual_stride: usize,
}

/// Stores every output, row by row.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd>(args: &StoreArgs) {
    let whole_groups = args.cols / GROUP_ROWS;
    for row in 0..args.rows {
        let out = args.out.wrapping_add(row * args.out_stride);
        let residual = args.residual.wrapping_add(row * args.residual_stride);
        for group in 0..whole_groups {
            let col = group * GROUP_ROWS;
            let at = |p: *const f32| if p.is_null() { p } else { p.add(col) };
            finish::<S>(
                args,
                (group * args.sum_rows + row) * GROUP_ROWS,
                residual.wrapping_add(col),
                at(args.bias),
                at(args.more_bias),
                out.add(col),
            );
        }
        // A group whose last rows do not exist.
        let col = whole_groups * GROUP_ROWS;
        let cols = args.cols - col;
        if cols > 0 {
            let bias = padded(args.bias, col, cols);
            let more_bias = padded(args.more_bias, col, cols);
            let residual = match args.epilogue {
                Epilogue::Residual { .. } => padded(residual, col, cols),
                _ => [0.0; GROUP_ROWS],
            };
            let mut outputs = [0.0; GROUP_ROWS];
            finish::<S>(
                args,
                (whole_groups * args.sum_rows + row) * GROUP_ROWS,
                residual.as_ptr(),
                bias.as_ptr(),
                more_bias.as_ptr(),
                outputs.as_mut_ptr(),
            );
            out.add(col)
                .copy_from_nonoverlapping(outputs.as_ptr(), cols);
        }
    }
}

/// `cols` floats from `p + at` on, then zeros; all zeros when `p` is null.
#[inline(always)]
unsafe fn padded(p: *const f32, at: usize, cols: usize) -> [f32; GROUP_ROWS] {
    let mut out = [0.0; GROUP_ROWS];
    if !p.is_null() {
        out.as_mut_ptr().copy_from_nonoverlapping(p.add(at), cols);
    }
    out
}

/// `sums + bias`, where there is one.
#[inline(always)]
unsafe fn biased<S: Simd>(sums: *const f32, bias: *const f32, lane: usize) -> S::F {
    let sum = S::load_f32(sums.add(lane));
    if bias.is_null() {
        sum
    } else {
        S::add(sum, S::load_f32(bias.add(lane)))
    }
}

/// Stores one row of one group; `at` is the place of its sums.
#[inline(always)]
unsafe fn finish<S: Simd>(
    args: &StoreArgs,
    at: usize,
    residual: *const f32,
    bias: *const f32,
    more_bias: *const f32,
    out: *mut f32,
) {
    for lane in (0..GROUP_ROWS).step_by(S::ROWS) {
        let product = biased::<S>(args.sums.add(at), bias, lane);
        let value = match args.epilogue {
            Epilogue::Store => product,
            Epilogue::Residual { scale } => {
                S::fma(product, S::splat(scale), S::load_f32(residual.add(lane)))
            }
            Epilogue::Gated(activation) => {
                let up = biased::<S>(args.more_sums.add(at), more_bias, lane);
                S::mul(activate::<S>(activation, product), up)
            }
        };
        S::store_f32(out.add(lane), value);
    }
}
