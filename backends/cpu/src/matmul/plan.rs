//! What a product is, how it is cut, and the memory it needs.

use super::acts::{ActBlock, PANEL_ROWS, act_bytes};
use super::kernels::{Kernels, kernels, tile_kernels};
use super::tiles::{self, ROW_TILE, TilePlan};
use crate::arch::Level;
use crate::weights::geometry::{Layout, layout};
use crate::weights::{BLOCK_COLS, GROUP_ROWS, PackedWeight};
use kvant_device::Epilogue;

/// Weights of a product and what becomes of it.
#[derive(Debug, Clone, Copy)]
pub struct MatMulSpec<'w> {
    /// Weights `[n_i, k]`, side by side in the output; two of equal shape when gated.
    pub weights: &'w [&'w PackedWeight],
    /// Bias `[n_i]` of each weight; may be shorter than the weights, which then have none.
    pub biases: &'w [Option<&'w [f32]>],
    /// What becomes of the product.
    pub epilogue: Epilogue,
}

/// Weights that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MatMulError {
    /// No weight, or a gated product without exactly two of equal height.
    #[error("a matrix product needs one or more weights, a gated one two of equal shape")]
    Weights,
    /// Weights of different widths.
    #[error("weight {index} has {k} columns, the first one {first_k}")]
    Width {
        /// Which weight.
        index: usize,
        /// Its columns.
        k: usize,
        /// Columns of the first.
        first_k: usize,
    },
    /// A bias that is not as long as its weight is high.
    #[error("bias {index} has {len} elements, its weight {n} rows")]
    Bias {
        /// Which weight.
        index: usize,
        /// Elements of the bias.
        len: usize,
        /// Rows of the weight.
        n: usize,
    },
}

/// One product of one step.
#[derive(Debug, Clone, Copy)]
pub struct MatMul<'w> {
    pub(super) spec: MatMulSpec<'w>,
    pub(super) kernels: &'static Kernels,
    pub(super) rows: usize,
    pub(super) threads: usize,
    /// Whether some weight is multiplied in integers.
    pub(super) needs_blocks: bool,
    /// Groups of a chunk.
    chunk_groups: usize,
    /// How it runs on tiles, if it does.
    pub(super) tiles: Option<TilePlan>,
}

/// Rows from which tiles are used where there are any.
const TILE_ROWS: usize = 16;
/// Groups whose sums are held at once: their sums for a panel of rows fit the first-level cache.
const GROUPS_AT_ONCE_MANY: usize = 2;
/// The same for one row.
const GROUPS_AT_ONCE_ONE: usize = 16;
/// Columns that are decoded at once of formats without kernels of their own.
pub(super) const DECODE_COLS: usize = 2048;

impl<'w> MatMul<'w> {
    /// Plans a product of `rows` rows for a team of `threads`. With `deterministic`, a row's bits do not
    /// depend on `rows`.
    ///
    /// # Errors
    /// [`MatMulError`].
    ///
    /// # Panics
    /// When the machine lacks `level`.
    pub fn new(
        level: Level,
        spec: MatMulSpec<'w>,
        rows: usize,
        threads: usize,
        deterministic: bool,
    ) -> Result<Self, MatMulError> {
        assert!(level.is_available(), "this machine does not have {level}");
        check(&spec)?;
        let needs_blocks = spec
            .weights
            .iter()
            .any(|w| matches!(layout(w.format()), Layout::Blocks(_)));
        let mut plan = Self {
            spec,
            kernels: kernels(level),
            rows,
            threads,
            needs_blocks,
            chunk_groups: 1,
            tiles: None,
        };
        if let Some(kernels) = tile_kernels(level)
            && !deterministic
            && rows >= TILE_ROWS
        {
            let (groups, together) = (plan.n_groups(), plan.weights_at_once());
            plan.tiles = Some(TilePlan::new(
                kernels,
                spec.weights,
                groups,
                together,
                rows,
                threads,
            ));
        }
        // Several chunks a thread, so that a thread that was held up costs little; each of some
        // kilobytes, so that claiming it costs little.
        let groups = plan.n_groups() * plan.n_panels();
        let at_once = plan.groups_at_once();
        let wanted = groups.div_ceil(threads.max(1) * 8).min(64);
        plan.chunk_groups = if wanted >= 4 {
            wanted.next_multiple_of(4)
        } else {
            wanted.max(1)
        };
        if rows > 1 {
            plan.chunk_groups = plan.chunk_groups.next_multiple_of(at_once);
        }
        Ok(plan)
    }

    /// Columns of the input.
    pub fn k(&self) -> usize {
        self.spec.weights[0].k()
    }

    /// Columns of the output.
    pub fn width(&self) -> usize {
        output_width(&self.spec)
    }

    /// Rows of the input.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of prepared activations, aligned to 64.
    pub fn act_bytes(&self) -> usize {
        if let Some(tiles) = &self.tiles {
            tiles.act_bytes()
        } else if self.needs_blocks {
            act_bytes(self.rows, self.k())
        } else {
            0
        }
    }

    /// Bytes of scratch memory of one thread, aligned to 64.
    pub fn scratch_bytes(&self) -> usize {
        match &self.tiles {
            Some(tiles) => tiles.scratch_bytes(),
            None => self.sums_bytes() * self.weights_at_once() + self.decode_bytes(),
        }
    }

    /// Chunks of the preparation; none when activations are used as they are.
    pub fn n_prepare_chunks(&self) -> usize {
        if let Some(tiles) = &self.tiles {
            tiles.n_prepare_chunks()
        } else if self.needs_blocks {
            self.rows.div_ceil(PREPARE_ROWS)
        } else {
            0
        }
    }

    /// Chunks of the product.
    pub fn n_chunks(&self) -> usize {
        match &self.tiles {
            Some(tiles) => tiles.n_chunks(),
            None => self.n_panels() * self.chunks_a_panel(),
        }
    }

    /// Groups of the weights, those of a gated product counted once.
    pub(super) fn n_groups(&self) -> usize {
        match self.spec.epilogue {
            Epilogue::Gated(_) => self.spec.weights[0].n_groups(),
            _ => self.spec.weights.iter().map(|w| w.n_groups()).sum(),
        }
    }

    fn n_panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    fn chunks_a_panel(&self) -> usize {
        self.n_groups().div_ceil(self.chunk_groups)
    }

    /// The panel of a chunk, its first group and the group after its last.
    pub(super) fn chunk(&self, index: usize) -> (usize, usize, usize) {
        let (panel, part) = (index / self.chunks_a_panel(), index % self.chunks_a_panel());
        let first = part * self.chunk_groups;
        (
            panel,
            first,
            (first + self.chunk_groups).min(self.n_groups()),
        )
    }

    pub(super) fn groups_at_once(&self) -> usize {
        if self.rows == 1 {
            GROUPS_AT_ONCE_ONE
        } else {
            GROUPS_AT_ONCE_MANY
        }
    }

    /// Weights whose sums are needed together.
    pub(super) fn weights_at_once(&self) -> usize {
        if matches!(self.spec.epilogue, Epilogue::Gated(_)) {
            2
        } else {
            1
        }
    }

    /// Bytes of the sums of one weight.
    pub(super) fn sums_bytes(&self) -> usize {
        let rows = self.rows.min(PANEL_ROWS);
        self.groups_at_once() * rows * GROUP_ROWS * size_of::<f32>()
    }

    /// Bytes for decoded weights: `[DECODE_COLS][16]` floats, then a decoded row.
    fn decode_bytes(&self) -> usize {
        let decodes = self
            .spec
            .weights
            .iter()
            .any(|w| layout(w.format()) == Layout::Rows);
        if decodes {
            DECODE_COLS.min(self.k()) * (GROUP_ROWS + 1) * size_of::<f32>()
        } else {
            0
        }
    }
}

/// Rows that one preparation chunk takes; divides a panel.
pub const PREPARE_ROWS: usize = 16;
const _: () = assert!(PANEL_ROWS.is_multiple_of(PREPARE_ROWS));

/// At least [`MatMul::act_bytes`] of any product of up to `rows` rows of `k` columns; `None` on overflow.
/// `has_floats` says whether some weight is F32, F16 or BF16.
pub fn act_bytes_bound(level: Level, has_floats: bool, rows: usize, k: usize) -> Option<usize> {
    let mut bytes_a_block = size_of::<ActBlock>();
    let mut padded_rows = rows;
    if tile_kernels(level).is_some() && rows >= TILE_ROWS {
        // Two bytes an element; twice that for floats.
        bytes_a_block = if has_floats { 128 } else { 64 };
        padded_rows = rows.checked_next_multiple_of(ROW_TILE)?;
    }
    k.div_ceil(BLOCK_COLS)
        .checked_mul(bytes_a_block)?
        .checked_mul(padded_rows)
}

/// At least [`MatMul::scratch_bytes`] of any product.
pub fn scratch_bytes_bound(level: Level) -> usize {
    let one_row = 2 * GROUPS_AT_ONCE_ONE * GROUP_ROWS * size_of::<f32>();
    let panel = 2 * GROUPS_AT_ONCE_MANY * PANEL_ROWS * GROUP_ROWS * size_of::<f32>();
    let decoded = DECODE_COLS * (GROUP_ROWS + 1) * size_of::<f32>();
    let plain = one_row.max(panel) + decoded;
    if tile_kernels(level).is_some() {
        plain.max(tiles::SCRATCH_BYTES_BOUND)
    } else {
        plain
    }
}

/// Columns of the output.
fn output_width(spec: &MatMulSpec<'_>) -> usize {
    match spec.epilogue {
        Epilogue::Gated(_) => spec.weights[0].n(),
        _ => spec.weights.iter().map(|w| w.n()).sum(),
    }
}

fn check(spec: &MatMulSpec<'_>) -> Result<(), MatMulError> {
    let Some(first) = spec.weights.first() else {
        return Err(MatMulError::Weights);
    };
    if matches!(spec.epilogue, Epilogue::Gated(_))
        && (spec.weights.len() != 2 || spec.weights[1].n() != first.n())
    {
        return Err(MatMulError::Weights);
    }
    for (index, weight) in spec.weights.iter().enumerate() {
        if weight.k() != first.k() {
            return Err(MatMulError::Width {
                index,
                k: weight.k(),
                first_k: first.k(),
            });
        }
        if let Some(Some(bias)) = spec.biases.get(index)
            && bias.len() != weight.n()
        {
            return Err(MatMulError::Bias {
                index,
                len: bias.len(),
                n: weight.n(),
            });
        }
    }
    Ok(())
}
