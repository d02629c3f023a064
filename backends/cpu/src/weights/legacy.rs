//! Packing of the formats with blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
//!
//! Their nibble order (`i` low, `i + 16` high) is the packed one, so nibbles move four bytes at a
//! time.

use super::cells::RowCells;
use super::geometry::BlockGeometry;
use bytemuck::{cast_slice, cast_slice_mut, from_bytes, from_bytes_mut};
use kvant_quant::weights::{
    BlockIq4Nl, BlockMxfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0,
};

/// Bytes of a field of a file's block.
fn bytes_of<T: bytemuck::Pod, const N: usize>(field: &T) -> [u8; N] {
    *from_bytes(bytemuck::bytes_of(field))
}

fn set_bytes<T: bytemuck::Pod, const N: usize>(field: &mut T, bytes: [u8; N]) {
    *from_bytes_mut::<[u8; N]>(bytemuck::bytes_of_mut(field)) = bytes;
}

pub(super) fn put_nibbles(cells: &RowCells, codes: usize, qs: &[u8; 16]) {
    for (c, bytes) in cast_slice::<u8, [u8; 4]>(qs).iter().enumerate() {
        cells.put(codes + c * 64, *bytes);
    }
}

pub(super) fn get_nibbles(cells: &RowCells, codes: usize, qs: &mut [u8; 16]) {
    for (c, bytes) in cast_slice_mut::<u8, [u8; 4]>(qs).iter_mut().enumerate() {
        *bytes = cells.get(codes + c * 64);
    }
}

/// Bit `4c + j` to bit `c` of byte `j`.
fn plane_from_bits(bits: u32) -> u32 {
    (0..8).fold(0, |plane, c| {
        // The four bits of chunk c, spread to the lowest bit of each byte.
        let nibble = (bits >> (4 * c)) & 15;
        plane | (nibble.wrapping_mul(0x0020_4081) & 0x0101_0101) << c
    })
}

/// Inverse of [`plane_from_bits`].
fn bits_from_plane(plane: u32) -> u32 {
    (0..8).fold(0, |bits, c| {
        let spread = (plane >> c) & 0x0101_0101;
        bits | ((spread.wrapping_mul(0x0102_0408) >> 24) & 15) << (4 * c)
    })
}

pub(super) trait Packed: bytemuck::Pod {
    /// Writes one block; `codes` and `scales` are the first bytes of the block's vectors.
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize);
    /// Reads one block back.
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize);
}

impl Packed for BlockQ4_0 {
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize) {
        cells.put::<2>(scales, bytes_of(&self.d));
        put_nibbles(cells, codes, &self.qs);
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize) {
        set_bytes(&mut self.d, cells.get::<2>(scales));
        get_nibbles(cells, codes, &mut self.qs);
    }
}

impl Packed for BlockIq4Nl {
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize) {
        cells.put::<2>(scales, bytes_of(&self.d));
        put_nibbles(cells, codes, &self.qs);
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize) {
        set_bytes(&mut self.d, cells.get::<2>(scales));
        get_nibbles(cells, codes, &mut self.qs);
    }
}

impl Packed for BlockQ4_1 {
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize) {
        cells.put::<2>(scales, bytes_of(&self.d));
        cells.put::<2>(scales + 32, bytes_of(&self.m));
        put_nibbles(cells, codes, &self.qs);
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize) {
        set_bytes(&mut self.d, cells.get::<2>(scales));
        set_bytes(&mut self.m, cells.get::<2>(scales + 32));
        get_nibbles(cells, codes, &mut self.qs);
    }
}

impl Packed for BlockQ5_0 {
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize) {
        cells.put::<2>(scales, bytes_of(&self.d));
        put_nibbles(cells, codes, &self.qs);
        let bits = u32::from_le_bytes(bytes_of(&self.qh));
        cells.put(codes + 256, plane_from_bits(bits).to_le_bytes());
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize) {
        set_bytes(&mut self.d, cells.get::<2>(scales));
        get_nibbles(cells, codes, &mut self.qs);
        let plane = u32::from_le_bytes(cells.get(codes + 256));
        set_bytes(&mut self.qh, bits_from_plane(plane).to_le_bytes());
    }
}

impl Packed for BlockQ5_1 {
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize) {
        cells.put::<2>(scales, bytes_of(&self.d));
        cells.put::<2>(scales + 32, bytes_of(&self.m));
        put_nibbles(cells, codes, &self.qs);
        let bits = u32::from_le_bytes(bytes_of(&self.qh));
        cells.put(codes + 256, plane_from_bits(bits).to_le_bytes());
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize) {
        set_bytes(&mut self.d, cells.get::<2>(scales));
        set_bytes(&mut self.m, cells.get::<2>(scales + 32));
        get_nibbles(cells, codes, &mut self.qs);
        let plane = u32::from_le_bytes(cells.get(codes + 256));
        set_bytes(&mut self.qh, bits_from_plane(plane).to_le_bytes());
    }
}

impl Packed for BlockQ8_0 {
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize) {
        cells.put::<2>(scales, bytes_of(&self.d));
        let qs: &[[u8; 4]] = cast_slice(&self.qs);
        for (c, bytes) in qs.iter().enumerate() {
            cells.put(codes + c * 64, bytes.map(|b| b ^ 0x80));
        }
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize) {
        set_bytes(&mut self.d, cells.get::<2>(scales));
        let qs: &mut [[u8; 4]] = cast_slice_mut(&mut self.qs);
        for (c, bytes) in qs.iter_mut().enumerate() {
            *bytes = cells.get::<4>(codes + c * 64).map(|b| b ^ 0x80);
        }
    }
}

/// MXFP4's scale `2^(e - 128)` is kept as the upper half of its `f32`, which holds it exactly.
impl Packed for BlockMxfp4 {
    fn pack(&self, cells: &RowCells, codes: usize, scales: usize) {
        let bits = match self.e {
            0 => 0x0020,
            1 => 0x0040,
            e => (u16::from(e) - 1) << 7,
        };
        cells.put(scales, bits.to_le_bytes());
        put_nibbles(cells, codes, &self.qs);
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, scales: usize) {
        self.e = match u16::from_le_bytes(cells.get(scales)) {
            0x0020 => 0,
            0x0040 => 1,
            bits => ((bits >> 7) + 1) as u8,
        };
        get_nibbles(cells, codes, &mut self.qs);
    }
}

/// Packs a row of blocks.
pub(super) fn pack_row<B: Packed>(row: &[u8], cells: &RowCells, geometry: BlockGeometry) {
    let blocks: &[B] = cast_slice(row);
    for (i, block) in blocks.iter().enumerate() {
        let scales = geometry.scales_at(blocks.len(), i);
        block.pack(cells, geometry.codes_at(i), scales);
    }
}

/// Restores a row of blocks.
pub(super) fn unpack_row<B: Packed>(cells: &RowCells, geometry: BlockGeometry, row: &mut [u8]) {
    let blocks: &mut [B] = cast_slice_mut(row);
    let n_blocks = blocks.len();
    for (i, block) in blocks.iter_mut().enumerate() {
        let scales = geometry.scales_at(n_blocks, i);
        block.unpack(cells, geometry.codes_at(i), scales);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_planes_are_a_permutation() {
        for i in 0..32 {
            assert_eq!(plane_from_bits(1 << i), 1 << (8 * (i % 4) + i / 4));
        }
        for bits in [0, 1, 0xDEAD_BEEF, 0x8000_0001, u32::MAX, 0x1234_5678] {
            assert_eq!(bits_from_plane(plane_from_bits(bits)), bits);
        }
    }
}
