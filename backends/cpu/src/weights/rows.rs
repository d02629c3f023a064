//! One row of a file to its place in a group, and back.

use super::cells::RowCells;
use super::geometry::{BlockGeometry, GROUP_ROWS, Layout, layout};
use super::{k_quants, legacy};
use kvant_quant::WeightFormat;
use kvant_quant::weights as file;

macro_rules! for_block_type {
    ($format:expr, $legacy:ident, $k_quant:ident, $args:tt) => {
        match $format {
            WeightFormat::Q4_0 => legacy::$legacy::<file::BlockQ4_0> $args,
            WeightFormat::Q4_1 => legacy::$legacy::<file::BlockQ4_1> $args,
            WeightFormat::Q5_0 => legacy::$legacy::<file::BlockQ5_0> $args,
            WeightFormat::Q5_1 => legacy::$legacy::<file::BlockQ5_1> $args,
            WeightFormat::Q8_0 => legacy::$legacy::<file::BlockQ8_0> $args,
            WeightFormat::IQ4_NL => legacy::$legacy::<file::BlockIq4Nl> $args,
            WeightFormat::MXFP4 => legacy::$legacy::<file::BlockMxfp4> $args,
            WeightFormat::Q2_K => k_quants::$k_quant::<file::BlockQ2K> $args,
            WeightFormat::Q3_K => k_quants::$k_quant::<file::BlockQ3K> $args,
            WeightFormat::Q4_K => k_quants::$k_quant::<file::BlockQ4K> $args,
            WeightFormat::Q5_K => k_quants::$k_quant::<file::BlockQ5K> $args,
            WeightFormat::Q6_K => k_quants::$k_quant::<file::BlockQ6K> $args,
            WeightFormat::IQ4_XS => k_quants::$k_quant::<file::BlockIq4Xs> $args,
            other => unreachable!("{other} is not kept as blocks"),
        }
    };
}

/// Packs one row.
///
/// # Safety
/// `group` is valid for writing a group of this format and width, and nobody else accesses the row.
pub(super) unsafe fn pack_row(
    format: WeightFormat,
    row: &[u8],
    group: *mut u8,
    group_bytes: usize,
    lane: usize,
) {
    // SAFETY: as the caller promises.
    let cells = unsafe { RowCells::new(group, group_bytes, lane) };
    match layout(format) {
        Layout::Blocks(geometry) => pack_blocks(format, row, &cells, geometry),
        Layout::Floats { bytes: 4 } => put_elements::<4>(row, &cells),
        Layout::Floats { .. } => put_elements::<2>(row, &cells),
        Layout::Rows => {
            assert!((lane + 1) * row.len() <= group_bytes);
            // SAFETY: row `lane` of the group, which is 16 rows of this length.
            unsafe {
                let at = group.add(lane * row.len());
                at.copy_from_nonoverlapping(row.as_ptr(), row.len());
            }
        }
    }
}

/// Restores one row to the bytes of the file.
///
/// # Safety
/// `group` is valid for reading a group of this format and width, and nobody writes the row.
pub(super) unsafe fn unpack_row(
    format: WeightFormat,
    group: *const u8,
    group_bytes: usize,
    lane: usize,
    row: &mut [u8],
) {
    // SAFETY: as the caller promises; only `get` is called on these cells.
    let cells = unsafe { RowCells::new(group.cast_mut(), group_bytes, lane) };
    match layout(format) {
        Layout::Blocks(geometry) => unpack_blocks(format, row, &cells, geometry),
        Layout::Floats { bytes: 4 } => get_elements::<4>(row, &cells),
        Layout::Floats { .. } => get_elements::<2>(row, &cells),
        Layout::Rows => {
            assert!((lane + 1) * row.len() <= group_bytes);
            // SAFETY: row `lane` of the group, which is 16 rows of this length.
            unsafe {
                let at = group.add(lane * row.len());
                at.copy_to_nonoverlapping(row.as_mut_ptr(), row.len());
            }
        }
    }
}

fn pack_blocks(format: WeightFormat, row: &[u8], cells: &RowCells, geometry: BlockGeometry) {
    for_block_type!(format, pack_row, pack_row, (row, cells, geometry));
}

fn unpack_blocks(format: WeightFormat, row: &mut [u8], cells: &RowCells, geometry: BlockGeometry) {
    for_block_type!(format, unpack_row, unpack_row, (cells, geometry, row));
}

fn put_elements<const N: usize>(row: &[u8], cells: &RowCells) {
    for (i, element) in row.as_chunks::<N>().0.iter().enumerate() {
        cells.put(i * N * GROUP_ROWS, *element);
    }
}

fn get_elements<const N: usize>(row: &mut [u8], cells: &RowCells) {
    for (i, element) in row.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *element = cells.get(i * N * GROUP_ROWS);
    }
}
