//! Running the chunks of a product on tiles.

use super::{
    ActTileArgs, BlockTileArgs, FloatTileArgs, GROUPS_AT_ONCE, K_TILE, ROW_TILE, TILE_BYTES,
    TileArgs, TilePlan,
};
use crate::matmul::floats::FloatKind;
use crate::matmul::plan::MatMul;
use crate::matmul::run::{MatMulIo, Part, decode_panel};
use crate::weights::geometry::{Layout, layout};
use crate::weights::{GROUP_ROWS, PackedWeight};
use kvant_quant::WeightFormat;

/// Scratch for weights.
#[derive(Debug, Clone, Copy)]
struct Memory {
    /// Decoded tiles, `[planes][groups][column tiles]`.
    tiles: *mut u8,
    /// A decoded panel and a row, for formats without kernels of their own.
    decoded: *mut f32,
}

impl TilePlan {
    /// # Safety
    /// As for [`MatMul::prepare_chunk`].
    pub(in crate::matmul) unsafe fn prepare_chunk(&self, index: usize, k: usize, io: &MatMulIo) {
        let first = index * ROW_TILE;
        let args = ActTileArgs {
            x: io.x.wrapping_add(first * k),
            k,
            rows: (self.rows - first).min(ROW_TILE),
            out: io.acts.wrapping_add(index * self.k_tiles * TILE_BYTES),
            planes: self.act_planes,
            plane_bytes: self.plane_bytes(),
        };
        // SAFETY: the plan exists, so the machine has tiles; the rows and tiles are those of this chunk.
        unsafe { (self.kernels.activations)(&args) }
    }

    /// # Safety
    /// As for [`MatMul::run_chunk`].
    pub(in crate::matmul) unsafe fn run_chunk(
        &self,
        matmul: &MatMul<'_>,
        index: usize,
        io: &MatMulIo,
        scratch: *mut u8,
    ) {
        // Chunks that follow each other share their rows.
        let first_row = index / self.group_chunks() * self.chunk_rows;
        let first = index % self.group_chunks() * self.chunk_groups;
        let end = (first + self.chunk_groups).min(self.n_groups);
        let rows = (self.rows - first_row).min(self.chunk_rows);
        let sum_rows = rows.next_multiple_of(ROW_TILE);
        matmul.for_each_part(first, end, GROUPS_AT_ONCE, |part| {
            let sums_at = |i: usize| scratch.wrapping_add(i * self.sums_bytes()).cast::<f32>();
            let tiles = scratch.wrapping_add(self.weights_at_once * self.sums_bytes());
            let memory = Memory {
                tiles,
                decoded: tiles.wrapping_add(self.weight_tile_bytes()).cast(),
            };
            for (i, weight) in part.weights.iter().enumerate() {
                // SAFETY: sums and tiles lie apart in the scratch; the groups and rows exist.
                unsafe { self.multiply(weight, &part, first_row, rows, io, sums_at(i), memory) }
            }
            // SAFETY: the sums have been computed; these outputs are this chunk's.
            unsafe {
                matmul.store_part(&part, first_row, rows, io, sums_at(0), sums_at(1), sum_rows);
            }
        });
    }

    /// Sums `[groups of the part][rows in whole tiles][16]`.
    ///
    /// # Safety
    /// The rows and groups exist, and `sums` and `memory` hold what the plan reserves.
    unsafe fn multiply(
        &self,
        weight: &PackedWeight,
        part: &Part<'_>,
        first_row: usize,
        rows: usize,
        io: &MatMulIo,
        sums: *mut f32,
        memory: Memory,
    ) {
        let row_tiles = rows.div_ceil(ROW_TILE);
        let sum_stride = row_tiles * ROW_TILE * GROUP_ROWS;
        let exact = matches!(layout(weight.format()), Layout::Floats { .. });
        let weight_planes = if exact && weight.format() != WeightFormat::BF16 {
            2
        } else {
            1
        };
        let act_planes = if exact { 2 } else { 1 };
        for first in (0..self.k_tiles).step_by(self.k_step) {
            let count = (self.k_tiles - first).min(self.k_step);
            for g in 0..part.n_groups {
                let out = memory.tiles.wrapping_add(g * self.group_tile_bytes());
                // SAFETY: tiles for every group and plane are reserved.
                unsafe {
                    let group = part.group + g;
                    self.decode(
                        weight,
                        group,
                        first,
                        count,
                        weight_planes,
                        out,
                        memory.decoded,
                    );
                }
            }
            for (act_plane, weight_plane) in [(0, 0), (1, 0), (0, 1)] {
                if act_plane >= act_planes || weight_plane >= weight_planes {
                    continue;
                }
                let row_tile = first_row / ROW_TILE;
                let a =
                    (row_tile * self.k_tiles + first) * TILE_BYTES + act_plane * self.plane_bytes();
                let args = TileArgs {
                    a: io.acts.wrapping_add(a),
                    a_stride: self.k_tiles * TILE_BYTES,
                    row_tiles,
                    b: memory
                        .tiles
                        .wrapping_add(weight_plane * self.weight_plane_bytes()),
                    b_stride: self.group_tile_bytes(),
                    groups: part.n_groups,
                    c: sums,
                    c_stride: sum_stride * size_of::<f32>(),
                    k_tiles: count,
                    add: (first, act_plane, weight_plane) != (0, 0, 0),
                };
                // SAFETY: the plan exists, so the machine has tiles; an odd number of groups is below the
                // even number that is reserved.
                unsafe { (self.kernels.multiply)(&args) }
            }
        }
    }

    fn weight_plane_bytes(&self) -> usize {
        GROUPS_AT_ONCE * self.group_tile_bytes()
    }

    /// Decodes `count` column tiles of a group.
    ///
    /// # Safety
    /// The group and tiles exist; `out` is valid for writing them, each plane in its place, and `decoded`
    /// for the columns of a group as floats and one row.
    unsafe fn decode(
        &self,
        weight: &PackedWeight,
        group: usize,
        first: usize,
        count: usize,
        planes: usize,
        out: *mut u8,
        decoded: *mut f32,
    ) {
        let at = weight.group(group);
        let first_col = first * K_TILE;
        let cols = (weight.k() - first_col).min(count * K_TILE);
        let mut args = FloatTileArgs {
            kind: FloatKind::F32,
            panel: at,
            cols,
            out,
            planes,
            plane_bytes: self.weight_plane_bytes(),
        };
        match layout(weight.format()) {
            Layout::Blocks(_) => {
                let args = BlockTileArgs {
                    group: at,
                    blocks: weight.k() / K_TILE,
                    first,
                    count,
                    out,
                };
                // SAFETY: whole super-blocks, since both steps are; the rest as the caller promises.
                unsafe { (self.kernels.blocks)(weight.format(), &args) }
                return;
            }
            Layout::Floats { bytes } => {
                args.kind = FloatKind::of(weight.format());
                args.panel = at.wrapping_add(first_col * GROUP_ROWS * bytes);
            }
            Layout::Rows => {
                // SAFETY: as the caller promises.
                unsafe { decode_panel(weight, group, first_col, cols, decoded) };
                args.panel = decoded.cast_const().cast();
            }
        }
        // SAFETY: as the caller promises.
        unsafe { (self.kernels.floats)(&args) }
    }
}
