//! Running the chunks of a product.

use super::acts::{ActBlock, PANEL_ROWS, QuantizeArgs, panel_at};
use super::blocks::BlockArgs;
use super::floats::{FloatArgs, FloatKind};
use super::plan::{DECODE_COLS, MatMul, PREPARE_ROWS};
use super::store::StoreArgs;
use crate::weights::geometry::{Layout, layout};
use crate::weights::{BLOCK_COLS, GROUP_ROWS, PackedWeight};
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
    /// What [`Epilogue::Residual`](kvant_device::Epilogue::Residual) adds to, `[rows, width]`; may be the output itself.
    pub residual: *const f32,
    /// Floats from a residual row to the next.
    pub residual_stride: usize,
}

// SAFETY: the functions that follow these pointers are unsafe and say what is shared.
unsafe impl Send for MatMulIo {}
// SAFETY: as above.
unsafe impl Sync for MatMulIo {}

/// Groups of one weight, or the same groups of both weights of a gated product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'w> {
    /// The weight, or both.
    pub(super) weights: &'w [&'w PackedWeight],
    /// Index of the first of them.
    index: usize,
    /// First group.
    pub(super) group: usize,
    /// Groups.
    pub(super) n_groups: usize,
    /// Group after the last of this weight that the thread will want.
    end_group: usize,
    /// First output column.
    col: usize,
}

impl<'w> MatMul<'w> {
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
        let k = self.k();
        if let Some(tiles) = &self.tiles {
            // SAFETY: as the caller promises.
            unsafe { tiles.prepare_chunk(index, k, io) };
            return;
        }
        let first = index * PREPARE_ROWS;
        let end = (first + PREPARE_ROWS).min(self.rows);
        let panel = first / PANEL_ROWS * PANEL_ROWS;
        let args = QuantizeArgs {
            x: io.x.wrapping_add(panel * k),
            k,
            first: first - panel,
            end: end - panel,
            panel_rows: (self.rows - panel).min(PANEL_ROWS),
            out: io.acts.cast::<ActBlock>().wrapping_add(panel_at(panel, k)),
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
        if let Some(tiles) = &self.tiles {
            // SAFETY: as the caller promises.
            unsafe { tiles.run_chunk(self, index, io, scratch) };
            return;
        }
        let (panel, first, end) = self.chunk(index);
        let first_row = panel * PANEL_ROWS;
        let rows = (self.rows - first_row).min(PANEL_ROWS);
        let sums_at = |i: usize| scratch.wrapping_add(i * self.sums_bytes()).cast::<f32>();
        let decoded = scratch.wrapping_add(self.weights_at_once() * self.sums_bytes());
        self.for_each_part(first, end, self.groups_at_once(), |part| {
            for (i, weight) in part.weights.iter().enumerate() {
                // SAFETY: sums and decoded columns lie apart in the scratch; groups and rows exist.
                unsafe {
                    self.multiply(
                        weight,
                        &part,
                        first_row,
                        rows,
                        io,
                        sums_at(i),
                        decoded.cast(),
                    );
                }
            }
            // SAFETY: the sums have been computed; these outputs are this chunk's.
            unsafe { self.store_part(&part, first_row, rows, io, sums_at(0), sums_at(1), rows) }
        });
    }

    /// Cuts groups `first..end`, counted through all weights, into parts of at most `at_once` groups.
    pub(super) fn for_each_part(
        &self,
        first: usize,
        end: usize,
        at_once: usize,
        mut run: impl FnMut(Part<'w>),
    ) {
        let together = self.weights_at_once();
        let (mut groups_before, mut cols_before) = (0, 0);
        for (index, weights) in self.spec.weights.chunks(together).enumerate() {
            let n_groups = weights[0].n_groups();
            let from = first.saturating_sub(groups_before).min(n_groups);
            let to = end.saturating_sub(groups_before).min(n_groups);
            for group in (from..to).step_by(at_once) {
                run(Part {
                    weights,
                    index: index * together,
                    group,
                    n_groups: (to - group).min(at_once),
                    end_group: if self.threads == 1 { n_groups } else { to },
                    col: cols_before + group * GROUP_ROWS,
                });
            }
            groups_before += n_groups;
            cols_before += weights[0].n();
        }
    }

    /// From the sums of a part, `[groups][sum_rows][16]`, to its outputs.
    ///
    /// # Safety
    /// `sums` (and `more_sums` when gated) are valid for that; the outputs are the caller's.
    pub(super) unsafe fn store_part(
        &self,
        part: &Part<'_>,
        first_row: usize,
        rows: usize,
        io: &MatMulIo,
        sums: *const f32,
        more_sums: *const f32,
        sum_rows: usize,
    ) {
        let weight = part.weights[0];
        let first_of_weight = part.group * GROUP_ROWS;
        let bias_at = |weight: usize| match self.spec.biases.get(weight) {
            Some(Some(bias)) => bias[first_of_weight..].as_ptr(),
            _ => null(),
        };
        let args = StoreArgs {
            epilogue: self.spec.epilogue,
            sums,
            more_sums,
            sum_rows,
            bias: bias_at(part.index),
            more_bias: if part.weights.len() == 2 {
                bias_at(part.index + 1)
            } else {
                null()
            },
            rows,
            cols: (part.n_groups * GROUP_ROWS).min(weight.n() - first_of_weight),
            out: io.out.wrapping_add(first_row * io.out_stride + part.col),
            out_stride: io.out_stride,
            residual: io
                .residual
                .wrapping_add(first_row * io.residual_stride + part.col),
            residual_stride: io.residual_stride,
        };
        // SAFETY: the level was checked when the product was planned; the rest as the caller promises.
        unsafe { (self.kernels.store)(&args) }
    }

    /// Sums `[groups of the part][rows][16]` of one weight times one panel.
    ///
    /// # Safety
    /// The groups exist; `io` as for [`run_chunk`](Self::run_chunk); `sums` and `decoded` are valid for
    /// what the plan reserves.
    unsafe fn multiply(
        &self,
        weight: &PackedWeight,
        part: &Part<'_>,
        first_row: usize,
        rows: usize,
        io: &MatMulIo,
        sums: *mut f32,
        decoded: *mut f32,
    ) {
        let k = self.k();
        let floats = FloatArgs {
            kind: FloatKind::of(weight.format()),
            groups: weight.group(part.group),
            n_groups: part.n_groups,
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
                    groups: floats.groups,
                    n_groups: part.n_groups,
                    group_bytes: floats.group_bytes,
                    blocks: k / BLOCK_COLS,
                    acts: io
                        .acts
                        .cast::<ActBlock>()
                        .wrapping_add(panel_at(first_row, k)),
                    rows,
                    fetch_end: weight
                        .group(part.end_group - 1)
                        .wrapping_add(weight.group_bytes()),
                    sums,
                };
                // SAFETY: the level was checked when the product was planned; groups, activations and
                // sums are as the arguments say.
                unsafe { (self.kernels.blocks)(weight.format(), &args) }
            }
            // SAFETY: as above.
            Layout::Floats { .. } => unsafe { (self.kernels.floats)(&floats) },
            Layout::Rows => {
                for g in 0..part.n_groups {
                    for first in (0..k).step_by(DECODE_COLS) {
                        let cols = (k - first).min(DECODE_COLS);
                        let args = FloatArgs {
                            groups: decoded.cast_const().cast(),
                            n_groups: 1,
                            k: cols,
                            x: floats.x.wrapping_add(first),
                            add: first > 0,
                            sums: sums.wrapping_add(g * rows * GROUP_ROWS),
                            ..floats
                        };
                        // SAFETY: as above; `decoded` holds these columns of a group, and a row.
                        unsafe {
                            decode_panel(weight, part.group + g, first, cols, decoded);
                            (self.kernels.floats)(&args);
                        }
                    }
                }
            }
        }
    }
}

/// Decodes columns `first..first + cols` of a group of a weight that is kept as in the file to floats
/// `[cols][16]`; rows that do not exist are zero.
///
/// # Safety
/// `decoded` is valid for writing `17 * cols` floats.
pub(super) unsafe fn decode_panel(
    weight: &PackedWeight,
    group: usize,
    first: usize,
    cols: usize,
    decoded: *mut f32,
) {
    let format = weight.format();
    let block = format.block();
    let file_rows = weight.group(group);
    // SAFETY: as the caller promises.
    let (panel, row_values) = unsafe {
        (
            std::slice::from_raw_parts_mut(decoded, cols * GROUP_ROWS),
            std::slice::from_raw_parts_mut(decoded.add(cols * GROUP_ROWS), cols),
        )
    };
    panel.fill(0.0);
    for row in 0..(weight.n() - group * GROUP_ROWS).min(GROUP_ROWS) {
        let at = row * weight.row_bytes() + first / block.elements * block.bytes;
        let len = cols / block.elements * block.bytes;
        // SAFETY: these blocks lie in row `row` of the group.
        let bytes = unsafe { std::slice::from_raw_parts(file_rows.add(at), len) };
        kvant_quant::decode(format, bytes, row_values).expect("whole blocks");
        for (col, value) in row_values.iter().enumerate() {
            panel[col * GROUP_ROWS + row] = *value;
        }
    }
}

const _: () = assert!(DECODE_COLS.is_multiple_of(256));
