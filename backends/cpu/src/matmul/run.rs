//! Running the chunks of a product.

use super::acts::{ActBlock, PANEL_ROWS, QuantizeArgs, panel_at};
use super::blocks::BlockArgs;
use super::floats::{FloatArgs, FloatKind};
use super::plan::{DECODE_COLS, MatMul, PREPARE_ROWS};
use super::store::StoreArgs;
use crate::weights::geometry::{Layout, layout};
use crate::weights::{BLOCK_COLS, GROUP_ROWS, PackedWeight};
use kvant_device::Epilogue;
use kvant_quant::WeightFormat;
use std::ptr::null;

/// Where a product reads and writes. Pointers, because the threads of a team share them.
#[derive(Debug, Clone, Copy)]
pub struct MatMulIo {
    /// Input `[rows, k]`, rows next to each other.
    pub x: *const f32,
    /// Prepared activations, [`MatMul::act_bytes`], aligned to 64.
    pub acts: *mut u8,
    /// Output `[rows, width]`.
    pub out: *mut f32,
    /// Floats from an output row to the next.
    pub out_stride: usize,
    /// What [`Epilogue::Residual`] adds to, `[rows, width]`; may be the output itself.
    pub residual: *const f32,
    /// Floats from a residual row to the next.
    pub residual_stride: usize,
}

// SAFETY: the functions that follow these pointers are unsafe and say what is shared.
unsafe impl Send for MatMulIo {}
// SAFETY: as above.
unsafe impl Sync for MatMulIo {}

impl MatMul<'_> {
    /// Prepares some of the activations.
    ///
    /// # Safety
    /// `io.x` is valid for reading `rows * k` floats and `io.acts` for writing
    /// [`act_bytes`](Self::act_bytes) bytes, aligned to 64. Different chunks may run at the same time,
    /// each once.
    ///
    /// # Panics
    /// When there is no such chunk.
    pub unsafe fn prepare_chunk(&self, index: usize, io: &MatMulIo) {
        assert!(index < self.n_prepare_chunks());
        let first = index * PREPARE_ROWS;
        let end = (first + PREPARE_ROWS).min(self.rows);
        let panel = first / PANEL_ROWS * PANEL_ROWS;
        let args = QuantizeArgs {
            x: io.x.wrapping_add(panel * self.k()),
            k: self.k(),
            first: first - panel,
            end: end - panel,
            panel_rows: (self.rows - panel).min(PANEL_ROWS),
            out: io
                .acts
                .cast::<ActBlock>()
                .wrapping_add(panel_at(panel, self.k())),
        };
        // SAFETY: the level was checked when the product was planned; the panel lies inside `x` and
        // `acts`, and this chunk alone has its rows.
        unsafe { (self.kernels.quantize)(&args) }
    }

    /// Computes some of the outputs.
    ///
    /// # Safety
    /// Every chunk of the preparation is done. Pointers of `io` are valid for what their fields say.
    /// `scratch` is valid for [`scratch_bytes`](Self::scratch_bytes) bytes, aligned to 64, and no other
    /// thread's. Different chunks may run at the same time, each once; nobody else accesses the output.
    ///
    /// # Panics
    /// When there is no such chunk.
    pub unsafe fn run_chunk(&self, index: usize, io: &MatMulIo, scratch: *mut u8) {
        assert!(index < self.n_chunks());
        let (panel, first, end) = self.chunk(index);
        // SAFETY: as the caller promises.
        unsafe { self.run_groups(panel * PANEL_ROWS, first, end, io, scratch) }
    }

    /// Groups `first..end`, counted through all weights, times the panel that begins at `first_row`.
    ///
    /// # Safety
    /// As for [`run_chunk`](Self::run_chunk).
    unsafe fn run_groups(
        &self,
        first_row: usize,
        first: usize,
        end: usize,
        io: &MatMulIo,
        scratch: *mut u8,
    ) {
        let rows = (self.rows - first_row).min(PANEL_ROWS);
        let weights = match self.spec.epilogue {
            Epilogue::Gated(_) => &self.spec.weights[..1],
            _ => self.spec.weights,
        };
        let sums = scratch.cast::<f32>();
        let more_sums = scratch.wrapping_add(self.sums_bytes()).cast::<f32>();
        let (mut groups_before, mut cols_before) = (0, 0);
        for (index, weight) in weights.iter().enumerate() {
            let from = first.saturating_sub(groups_before).min(weight.n_groups());
            let to = end.saturating_sub(groups_before).min(weight.n_groups());
            for group in (from..to).step_by(self.groups_at_once()) {
                let n_groups = (to - group).min(self.groups_at_once());
                let col = group * GROUP_ROWS;
                let mut args = StoreArgs {
                    epilogue: self.spec.epilogue,
                    sums,
                    more_sums: null(),
                    bias: self.bias_at(index, col),
                    more_bias: null(),
                    rows,
                    cols: (n_groups * GROUP_ROWS).min(weight.n() - col),
                    out: io
                        .out
                        .wrapping_add(first_row * io.out_stride + cols_before + col),
                    out_stride: io.out_stride,
                    residual: io
                        .residual
                        .wrapping_add(first_row * io.residual_stride + cols_before + col),
                    residual_stride: io.residual_stride,
                };
                // SAFETY: sums and decode memory lie apart in the scratch; the groups exist.
                unsafe {
                    let decode = scratch.add(self.scratch_bytes() - self.decode_bytes());
                    self.multiply(weight, group, n_groups, first_row, rows, io, sums, decode);
                    if matches!(self.spec.epilogue, Epilogue::Gated(_)) {
                        let up = self.spec.weights[1];
                        self.multiply(up, group, n_groups, first_row, rows, io, more_sums, decode);
                        args.more_sums = more_sums;
                        args.more_bias = self.bias_at(1, col);
                    }
                    (self.kernels.store)(&args);
                }
            }
            groups_before += weight.n_groups();
            cols_before += weight.n();
        }
    }

    fn bias_at(&self, weight: usize, col: usize) -> *const f32 {
        match self.spec.biases.get(weight) {
            Some(Some(bias)) => bias[col..].as_ptr(),
            _ => null(),
        }
    }

    /// Sums `[n_groups][rows][16]` of one weight's groups times one panel.
    ///
    /// # Safety
    /// The groups exist; `io` as for [`run_chunk`](Self::run_chunk); `sums` and `decode` are valid for
    /// what the plan reserves.
    unsafe fn multiply(
        &self,
        weight: &PackedWeight,
        group: usize,
        n_groups: usize,
        first_row: usize,
        rows: usize,
        io: &MatMulIo,
        sums: *mut f32,
        decode: *mut u8,
    ) {
        let k = self.k();
        let floats = FloatArgs {
            kind: FloatKind::F32,
            groups: weight.group(group),
            n_groups,
            group_bytes: weight.group_bytes(),
            k,
            x: io.x.wrapping_add(first_row * k),
            x_stride: k,
            rows,
            add: false,
            sums,
        };
        match layout(weight.format()) {
            Layout::Blocks(_) => {
                let args = BlockArgs {
                    groups: weight.group(group),
                    n_groups,
                    group_bytes: weight.group_bytes(),
                    blocks: k / BLOCK_COLS,
                    acts: io
                        .acts
                        .cast::<ActBlock>()
                        .wrapping_add(panel_at(first_row, k)),
                    rows,
                    sums,
                };
                // SAFETY: the level was checked when the product was planned; groups, activations and
                // sums are as the arguments say.
                unsafe { (self.kernels.blocks)(weight.format(), &args) }
            }
            Layout::Floats { .. } => {
                let kind = match weight.format() {
                    WeightFormat::F16 => FloatKind::F16,
                    WeightFormat::BF16 => FloatKind::Bf16,
                    _ => FloatKind::F32,
                };
                // SAFETY: as above.
                unsafe { (self.kernels.floats)(&FloatArgs { kind, ..floats }) }
            }
            Layout::Rows => {
                for g in 0..n_groups {
                    // SAFETY: as above; `decode` holds a panel of decoded columns and a row.
                    unsafe {
                        let args = FloatArgs {
                            n_groups: 1,
                            sums: sums.add(g * rows * GROUP_ROWS),
                            ..floats
                        };
                        self.decode_and_multiply(weight, group + g, &args, decode.cast());
                    }
                }
            }
        }
    }

    /// Decodes one group, some columns at a time, and multiplies it.
    ///
    /// # Safety
    /// As for [`multiply`](Self::multiply); `args` are for one group, whose place is filled in here.
    unsafe fn decode_and_multiply(
        &self,
        weight: &PackedWeight,
        group: usize,
        args: &FloatArgs,
        decode: *mut f32,
    ) {
        let k = self.k();
        let format = weight.format();
        let block = format.block();
        let file_rows = weight.group(group);
        let live_rows = (weight.n() - group * GROUP_ROWS).min(GROUP_ROWS);
        for first in (0..k).step_by(DECODE_COLS) {
            let cols = (k - first).min(DECODE_COLS);
            // SAFETY: `decode` holds `[cols][16]` floats and then `cols` more.
            let (panel, row_values) = unsafe {
                (
                    std::slice::from_raw_parts_mut(decode, cols * GROUP_ROWS),
                    std::slice::from_raw_parts_mut(decode.add(cols * GROUP_ROWS), cols),
                )
            };
            panel.fill(0.0);
            for row in 0..live_rows {
                let at = row * weight.row_bytes() + first / block.elements * block.bytes;
                let len = cols / block.elements * block.bytes;
                // SAFETY: these blocks lie in row `row` of the group.
                let bytes = unsafe { std::slice::from_raw_parts(file_rows.add(at), len) };
                kvant_quant::decode(format, bytes, row_values).expect("whole blocks");
                for (col, value) in row_values.iter().enumerate() {
                    panel[col * GROUP_ROWS + row] = *value;
                }
            }
            let args = FloatArgs {
                groups: panel.as_ptr().cast(),
                group_bytes: 0,
                k: cols,
                x: args.x.wrapping_add(first),
                add: first > 0,
                ..*args
            };
            // SAFETY: the panel holds one group of `cols` columns; the rest is as `args` say.
            unsafe { (self.kernels.floats)(&args) }
        }
    }
}

const _: () = assert!(DECODE_COLS.is_multiple_of(256));
