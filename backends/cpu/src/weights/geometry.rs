//! The packed layout: where the codes and the scales of 16 rows lie.
//!
//! A weight `[n, k]` is cut into groups of [`GROUP_ROWS`] rows. A group is one run of bytes: first
//! the codes of its k blocks (32 columns each), then their scales.
//!
//! Codes of a k block, 16 rows: *chunk* `c` is columns `4c..4c+4`, as `[16 rows][4 columns]`, so that
//! a 64-byte vector holds one 32-bit lane a row, which is an operand of a byte dot product.
//! - 4 bits: 4 × 64 bytes; byte `c` has chunk `c` in its low nibble and chunk `c + 4` in its high one.
//! - 8 bits: 8 × 64 bytes, chunk after chunk; codes are the signed values plus 128.
//! - 1-bit plane: 64 bytes, chunk `c` is bit `c` of each byte.
//! - 2-bit plane: 2 × 64 bytes, chunk `c` is bits `2(c % 4)..` of vector `c / 4`.
//!
//! 5 and 6 bits are 4 bits and a plane, 3 bits are two planes.
//!
//! Scales are vectors of one element a row: 16-bit floats, or the integer sub-scales of the file.

use kvant_quant::WeightFormat;

/// Rows of a group.
pub const GROUP_ROWS: usize = 16;
/// Columns of a k block.
pub const BLOCK_COLS: usize = 32;

/// How a format is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Codes and scales of k blocks.
    Blocks(BlockGeometry),
    /// `[k][16 rows]` floats.
    Floats {
        /// Bytes an element.
        bytes: usize,
    },
    /// Rows as in the file.
    Rows,
}

/// Bytes of the parts of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockGeometry {
    /// Codes of one k block, 16 rows.
    pub(crate) code_bytes: usize,
    /// Scales of one super-block, 16 rows.
    pub(crate) scale_bytes: usize,
    /// k blocks of a super-block.
    pub(crate) super_blocks: usize,
}

/// Layout of a format.
pub(crate) const fn layout(format: WeightFormat) -> Layout {
    let (code_bytes, scale_bytes, super_blocks) = match format {
        WeightFormat::Q4_0 | WeightFormat::IQ4_NL | WeightFormat::MXFP4 => (256, 32, 1),
        WeightFormat::Q4_1 => (256, 64, 1),
        WeightFormat::Q5_0 => (320, 32, 1),
        WeightFormat::Q5_1 => (320, 64, 1),
        WeightFormat::Q8_0 => (512, 32, 1),
        WeightFormat::Q2_K => (128, 64 + 16 * 16, 8),
        WeightFormat::Q3_K => (192, 32 + 16 * 16, 8),
        WeightFormat::Q4_K => (256, 64 + 16 * 16, 8),
        WeightFormat::Q5_K => (320, 64 + 16 * 16, 8),
        WeightFormat::Q6_K => (384, 32 + 16 * 16, 8),
        WeightFormat::IQ4_XS => (256, 32 + 8 * 16, 8),
        WeightFormat::F32 => return Layout::Floats { bytes: 4 },
        WeightFormat::F16 | WeightFormat::BF16 => return Layout::Floats { bytes: 2 },
        _ => return Layout::Rows,
    };
    Layout::Blocks(BlockGeometry {
        code_bytes,
        scale_bytes,
        super_blocks,
    })
}

/// Bytes of one group of `k` columns; `None` when `k` is not whole blocks or on overflow.
pub(crate) fn group_bytes(format: WeightFormat, k: usize) -> Option<usize> {
    let row_bytes = format.bytes_for(k)?;
    match layout(format) {
        Layout::Blocks(geometry) => {
            let blocks = k / BLOCK_COLS;
            let codes = blocks.checked_mul(geometry.code_bytes)?;
            let scales = (blocks / geometry.super_blocks).checked_mul(geometry.scale_bytes)?;
            codes.checked_add(scales)?.checked_next_multiple_of(64)
        }
        Layout::Floats { bytes } => k
            .checked_mul(bytes * GROUP_ROWS)?
            .checked_next_multiple_of(64),
        Layout::Rows => row_bytes.checked_mul(GROUP_ROWS),
    }
}

impl BlockGeometry {
    /// First byte of the codes of k block `block`.
    pub(crate) fn codes_at(&self, block: usize) -> usize {
        block * self.code_bytes
    }

    /// First byte of the scales of super-block `index`, in a group of `blocks` k blocks.
    pub(crate) fn scales_at(&self, blocks: usize, index: usize) -> usize {
        blocks * self.code_bytes + index * self.scale_bytes
    }
}
