//! Products of many rows on matrix tiles: a panel of weights is decoded to bfloat16 once and multiplied
//! with many rows of bfloat16 activations, sums in `f32`.
//!
//! A bfloat16 keeps 8 bits of a number. That is finer than 8-bit activations with a scale for 32, so
//! quantised weights need no more. Float weights are meant to be exact: they and their activations are
//! split into two bfloat16 numbers each, of which three of the four products are taken.

// Only some architectures have tiles.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
mod run;

use crate::matmul::floats::FloatKind;
use crate::weights::geometry::{Layout, layout};
use crate::weights::{GROUP_ROWS, PackedWeight};
use kvant_quant::WeightFormat;

/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = 1024;
/// Rows of activations of a tile.
pub(crate) const ROW_TILE: usize = 16;
/// Columns of a tile of activations.
pub(crate) const K_TILE: usize = 32;

const _: () = assert!(K_TILES_AT_ONCE.is_multiple_of(8));
const _: () = assert!(ROW_TILE == super::PREPARE_ROWS);

/// Most column tiles that are decoded at once: those of two tiles of rows fit the first-level cache.
const K_TILES_AT_ONCE: usize = 24;
/// Groups that are decoded at once; even, because the kernel takes pairs.
const GROUPS_AT_ONCE: usize = 8;
/// Bytes of activations that a chunk goes through again and again: they should stay in the
/// second-level cache.
const ACT_BYTES_AT_ONCE: usize = 768 << 10;
/// Most rows of a chunk.
const MOST_ROWS: usize = 512;

/// At least [`TilePlan::scratch_bytes`] of any product.
pub(super) const SCRATCH_BYTES_BOUND: usize = {
    let sums = 2 * GROUPS_AT_ONCE * MOST_ROWS * GROUP_ROWS * size_of::<f32>();
    let tiles = 2 * GROUPS_AT_ONCE * K_TILES_AT_ONCE * TILE_BYTES;
    sums + tiles + DECODED_BYTES
};
/// Decoded columns of a group, and a decoded row.
const DECODED_BYTES: usize = K_TILES_AT_ONCE * K_TILE * (GROUP_ROWS + 1) * size_of::<f32>();

/// The kernels.
///
/// # Safety
/// Each function needs a machine with tiles, and what its argument type asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileKernels {
    /// Rows of activations to tiles.
    pub(crate) activations: unsafe fn(&ActTileArgs),
    /// Block formats to tiles.
    pub(crate) blocks: unsafe fn(WeightFormat, &BlockTileArgs),
    /// Floats to tiles.
    pub(crate) floats: unsafe fn(&FloatTileArgs),
    /// Product of tiles.
    pub(crate) multiply: unsafe fn(&TileArgs),
}

/// At most 16 rows of activations on their way to `[k tiles]` tiles of `[16 rows][32 columns]`.
///
/// # Safety
/// `x` is valid for reading `rows * k` floats, `out` for writing as many tiles, and as many again
/// `plane_bytes` on when there are two planes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActTileArgs {
    /// First row.
    pub(crate) x: *const f32,
    /// Columns.
    pub(crate) k: usize,
    /// Rows, at most 16.
    pub(crate) rows: usize,
    /// First tile.
    pub(crate) out: *mut u8,
    /// 1, or 2 for what rounding left over.
    pub(crate) planes: usize,
    /// Bytes to the second plane.
    pub(crate) plane_bytes: usize,
}

/// k blocks of a group on their way to tiles of `[16 column pairs][16 rows][2]`.
///
/// # Safety
/// `group` holds `blocks` k blocks, `first` and `count` are whole super-blocks of them, and `out` is
/// valid for writing `count` tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockTileArgs {
    /// The group.
    pub(crate) group: *const u8,
    /// k blocks of the group.
    pub(crate) blocks: usize,
    /// First k block.
    pub(crate) first: usize,
    /// k blocks.
    pub(crate) count: usize,
    /// First tile.
    pub(crate) out: *mut u8,
}

/// Columns of a group of floats on their way to tiles of `[16 column pairs][16 rows][2]`.
///
/// # Safety
/// `panel` is valid for reading `[cols][16]` elements, `out` for writing `cols / 32` tiles (rounded up),
/// and as many again `plane_bytes` on when there are two planes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloatTileArgs {
    /// Element type.
    pub(crate) kind: FloatKind,
    /// First column.
    pub(crate) panel: *const u8,
    /// Columns.
    pub(crate) cols: usize,
    /// First tile.
    pub(crate) out: *mut u8,
    /// 1, or 2 for what rounding left over.
    pub(crate) planes: usize,
    /// Bytes to the second plane.
    pub(crate) plane_bytes: usize,
}

/// `c = a b`, or `c += a b`.
///
/// # Safety
/// `a` holds `[row_tiles][k_tiles]` tiles (`a_stride` bytes from one row of tiles to the next), `b`
/// `[groups][k_tiles]` (`b_stride`), `c` `[groups][row_tiles * 16][16]` floats (`c_stride` bytes); when
/// `groups` is odd, `b` and `c` have room for one more. `k_tiles > 0`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileArgs {
    /// Activations.
    pub(crate) a: *const u8,
    /// Bytes from 16 rows to the next.
    pub(crate) a_stride: usize,
    /// Tiles of rows.
    pub(crate) row_tiles: usize,
    /// Weights.
    pub(crate) b: *const u8,
    /// Bytes from a group to the next.
    pub(crate) b_stride: usize,
    /// Groups.
    pub(crate) groups: usize,
    /// Sums.
    pub(crate) c: *mut f32,
    /// Bytes from a group to the next.
    pub(crate) c_stride: usize,
    /// Tiles of columns.
    pub(crate) k_tiles: usize,
    /// Whether to add to what `c` holds.
    pub(crate) add: bool,
}

/// How a product is cut for tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TilePlan {
    pub(super) kernels: &'static TileKernels,
    rows: usize,
    k_tiles: usize,
    /// Column tiles that are decoded at once, whole super-blocks.
    k_step: usize,
    /// 2 when some weight is exact floats.
    act_planes: usize,
    weight_planes: usize,
    /// Rows of a chunk, whole tiles.
    chunk_rows: usize,
    /// Groups of a chunk.
    chunk_groups: usize,
    n_groups: usize,
    /// Weights whose sums are needed together.
    weights_at_once: usize,
    decodes: bool,
}

impl TilePlan {
    pub(super) fn new(
        kernels: &'static TileKernels,
        weights: &[&PackedWeight],
        n_groups: usize,
        weights_at_once: usize,
        rows: usize,
        threads: usize,
    ) -> Self {
        let k_tiles = weights[0].k().div_ceil(K_TILE).max(1);
        let floats = |w: &&PackedWeight| matches!(layout(w.format()), Layout::Floats { .. });
        let act_planes = if weights.iter().any(floats) { 2 } else { 1 };
        let weight_planes = act_planes;
        let row_bytes = k_tiles * TILE_BYTES / ROW_TILE * act_planes;
        let most_rows = (ACT_BYTES_AT_ONCE / row_bytes).clamp(64, MOST_ROWS);
        let row_chunks = rows.div_ceil(most_rows);
        let chunk_rows = rows.div_ceil(row_chunks).next_multiple_of(2 * ROW_TILE);
        // Enough chunks that no thread waits long for another at the end.
        let wanted = n_groups * row_chunks / (threads.max(1) * 6);
        let chunk_groups = wanted.clamp(2, 2 * GROUPS_AT_ONCE).next_multiple_of(2);
        let decodes = weights.iter().any(|w| layout(w.format()) == Layout::Rows);
        Self {
            kernels,
            rows,
            k_tiles,
            k_step: k_tiles
                .div_ceil(k_tiles.div_ceil(K_TILES_AT_ONCE))
                .next_multiple_of(8),
            act_planes,
            weight_planes,
            chunk_rows,
            chunk_groups,
            n_groups,
            weights_at_once,
            decodes,
        }
    }

    /// Bytes of one plane of activations.
    fn plane_bytes(&self) -> usize {
        self.n_row_tiles() * self.k_tiles * TILE_BYTES
    }

    fn n_row_tiles(&self) -> usize {
        self.rows.div_ceil(ROW_TILE)
    }

    pub(super) fn act_bytes(&self) -> usize {
        self.plane_bytes() * self.act_planes
    }

    pub(super) fn n_prepare_chunks(&self) -> usize {
        self.n_row_tiles()
    }

    fn row_chunks(&self) -> usize {
        self.rows.div_ceil(self.chunk_rows)
    }

    fn group_chunks(&self) -> usize {
        self.n_groups.div_ceil(self.chunk_groups)
    }

    pub(super) fn n_chunks(&self) -> usize {
        self.row_chunks() * self.group_chunks()
    }

    /// Bytes of the sums of one weight.
    fn sums_bytes(&self) -> usize {
        GROUPS_AT_ONCE * self.chunk_rows * GROUP_ROWS * size_of::<f32>()
    }

    /// Bytes of decoded tiles of one group and plane.
    fn group_tile_bytes(&self) -> usize {
        self.k_tiles.min(self.k_step) * TILE_BYTES
    }

    fn weight_tile_bytes(&self) -> usize {
        GROUPS_AT_ONCE * self.group_tile_bytes() * self.weight_planes
    }

    /// Sums of each weight; tiles of weights; a decoded panel and a decoded row.
    pub(super) fn scratch_bytes(&self) -> usize {
        let decoded = if self.decodes { DECODED_BYTES } else { 0 };
        self.sums_bytes() * self.weights_at_once + self.weight_tile_bytes() + decoded
    }
}
