//! Packing of the formats with super-blocks of 256: Q2_K … Q6_K and IQ4_XS.
//!
//! Scales of a super-block, 16 rows: `d`, then `dmin` where there is one, as 16-bit floats; then the
//! integer sub-scales, one byte a row each: all scales, then all minima (Q4_K, Q5_K), or 16 bytes
//! with both nibbles (Q2_K).

use super::cells::RowCells;
use super::legacy::{get_nibbles, put_nibbles};
use bytemuck::{cast_slice, cast_slice_mut};
use kvant_quant::le::F16Le;
use kvant_quant::weights::{
    BlockIq4Xs, BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, q3k_scale, q3k_scales_pack,
    scale_min, scale_min_pack,
};

use super::geometry::BlockGeometry;

pub(super) trait PackedSuper: bytemuck::Pod {
    /// Writes one super-block; `codes` and `scales` are the first bytes of its vectors, and the
    /// codes of its eight k blocks lie `code_bytes` apart.
    fn pack(&self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize);
    /// Reads one super-block back.
    fn unpack(&mut self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize);
}

fn put_half(cells: &RowCells, at: usize, value: F16Le) {
    cells.put::<2>(at, bytemuck::cast(value));
}

fn get_half(cells: &RowCells, at: usize) -> F16Le {
    bytemuck::cast(cells.get::<2>(at))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn or_word(bytes: &mut [u8], at: usize, value: u32) {
    for (byte, v) in bytes[at..at + 4].iter_mut().zip(value.to_le_bytes()) {
        *byte |= v;
    }
}

/// Every byte's lowest `n` bits.
const fn low_bits(n: u32) -> u32 {
    0x0101_0101 * ((1 << n) - 1)
}

/// Packs 32 four-bit codes that lie in one nibble (`shift` 0 or 4) of 32 bytes.
fn put_one_nibble(cells: &RowCells, codes: usize, qs: &[u8], shift: u32) {
    for c in 0..4 {
        let low = (word(qs, 4 * c) >> shift) & low_bits(4);
        let high = (word(qs, 4 * c + 16) >> shift) & low_bits(4);
        cells.put(codes + c * 64, (low | high << 4).to_le_bytes());
    }
}

/// Inverse of [`put_one_nibble`], onto zeros.
fn get_one_nibble(cells: &RowCells, codes: usize, qs: &mut [u8], shift: u32) {
    for c in 0..4 {
        let both = u32::from_le_bytes(cells.get(codes + c * 64));
        or_word(qs, 4 * c, (both & low_bits(4)) << shift);
        or_word(qs, 4 * c + 16, ((both >> 4) & low_bits(4)) << shift);
    }
}

/// Packs the plane of bit `shift` of 32 bytes.
fn put_bit_plane(cells: &RowCells, at: usize, bits: &[u8], shift: u32) {
    let plane = (0..8).fold(0, |plane, c| {
        plane | ((word(bits, 4 * c) >> shift) & low_bits(1)) << c
    });
    cells.put(at, plane.to_le_bytes());
}

/// Inverse of [`put_bit_plane`], onto zeros.
fn get_bit_plane(cells: &RowCells, at: usize, bits: &mut [u8], shift: u32) {
    let plane = u32::from_le_bytes(cells.get(at));
    for c in 0..8 {
        or_word(bits, 4 * c, ((plane >> c) & low_bits(1)) << shift);
    }
}

/// Packs the plane of bits `shift..shift + 2` of 32 bytes.
fn put_two_bit_plane(cells: &RowCells, at: usize, bits: &[u8], shift: u32) {
    for v in 0..2 {
        let plane = (0..4).fold(0, |plane, f| {
            let field = (word(bits, 16 * v + 4 * f) >> shift) & low_bits(2);
            plane | field << (2 * f)
        });
        cells.put(at + v * 64, plane.to_le_bytes());
    }
}

/// Inverse of [`put_two_bit_plane`], onto zeros.
fn get_two_bit_plane(cells: &RowCells, at: usize, bits: &mut [u8], shift: u32) {
    for v in 0..2 {
        let plane = u32::from_le_bytes(cells.get(at + v * 64));
        for f in 0..4 {
            let field = (plane >> (2 * f)) & low_bits(2);
            or_word(bits, 16 * v + 4 * f, field << shift);
        }
    }
}

fn put_scales_mins(cells: &RowCells, at: usize, packed: &[u8; 12]) {
    for j in 0..8 {
        let (scale, min) = scale_min(packed, j);
        cells.put(at + 16 * j, [scale]);
        cells.put(at + 128 + 16 * j, [min]);
    }
}

fn get_scales_mins(cells: &RowCells, at: usize) -> [u8; 12] {
    let scales = std::array::from_fn(|j| cells.get::<1>(at + 16 * j)[0]);
    let mins = std::array::from_fn(|j| cells.get::<1>(at + 128 + 16 * j)[0]);
    scale_min_pack(&scales, &mins)
}

impl PackedSuper for BlockQ4K {
    fn pack(&self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        put_half(cells, scales, self.d);
        put_half(cells, scales + 32, self.dmin);
        put_scales_mins(cells, scales + 64, &self.scales);
        for j in 0..8 {
            let qs = &self.qs[32 * (j / 2)..][..32];
            put_one_nibble(cells, codes + j * code_bytes, qs, 4 * (j as u32 % 2));
        }
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        self.d = get_half(cells, scales);
        self.dmin = get_half(cells, scales + 32);
        self.scales = get_scales_mins(cells, scales + 64);
        self.qs.fill(0);
        for j in 0..8 {
            let qs = &mut self.qs[32 * (j / 2)..][..32];
            get_one_nibble(cells, codes + j * code_bytes, qs, 4 * (j as u32 % 2));
        }
    }
}

impl PackedSuper for BlockQ5K {
    fn pack(&self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        put_half(cells, scales, self.d);
        put_half(cells, scales + 32, self.dmin);
        put_scales_mins(cells, scales + 64, &self.scales);
        for j in 0..8 {
            let codes = codes + j * code_bytes;
            let qs = &self.qs[32 * (j / 2)..][..32];
            put_one_nibble(cells, codes, qs, 4 * (j as u32 % 2));
            put_bit_plane(cells, codes + 256, &self.qh, j as u32);
        }
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        self.d = get_half(cells, scales);
        self.dmin = get_half(cells, scales + 32);
        self.scales = get_scales_mins(cells, scales + 64);
        self.qs.fill(0);
        self.qh.fill(0);
        for j in 0..8 {
            let codes = codes + j * code_bytes;
            let qs = &mut self.qs[32 * (j / 2)..][..32];
            get_one_nibble(cells, codes, qs, 4 * (j as u32 % 2));
            get_bit_plane(cells, codes + 256, &mut self.qh, j as u32);
        }
    }
}

impl PackedSuper for BlockQ6K {
    fn pack(&self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        put_half(cells, scales, self.d);
        for (j, &scale) in self.scales.iter().enumerate() {
            cells.put(scales + 32 + 16 * j, [scale as u8]);
        }
        for j in 0..8 {
            let (half, part) = (j / 4, j % 4);
            let codes = codes + j * code_bytes;
            let ql = &self.ql[64 * half + 32 * (part % 2)..][..32];
            put_one_nibble(cells, codes, ql, 4 * (part as u32 / 2));
            let qh = &self.qh[32 * half..][..32];
            put_two_bit_plane(cells, codes + 256, qh, 2 * part as u32);
        }
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        self.d = get_half(cells, scales);
        for (j, scale) in self.scales.iter_mut().enumerate() {
            *scale = cells.get::<1>(scales + 32 + 16 * j)[0] as i8;
        }
        self.ql.fill(0);
        self.qh.fill(0);
        for j in 0..8 {
            let (half, part) = (j / 4, j % 4);
            let codes = codes + j * code_bytes;
            let ql = &mut self.ql[64 * half + 32 * (part % 2)..][..32];
            get_one_nibble(cells, codes, ql, 4 * (part as u32 / 2));
            let qh = &mut self.qh[32 * half..][..32];
            get_two_bit_plane(cells, codes + 256, qh, 2 * part as u32);
        }
    }
}

impl PackedSuper for BlockQ2K {
    fn pack(&self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        put_half(cells, scales, self.d);
        put_half(cells, scales + 32, self.dmin);
        for (j, &both) in self.scales.iter().enumerate() {
            cells.put(scales + 64 + 16 * j, [both]);
        }
        for j in 0..8 {
            let qs = &self.qs[32 * (j / 4)..][..32];
            put_two_bit_plane(cells, codes + j * code_bytes, qs, 2 * (j as u32 % 4));
        }
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        self.d = get_half(cells, scales);
        self.dmin = get_half(cells, scales + 32);
        for (j, both) in self.scales.iter_mut().enumerate() {
            *both = cells.get::<1>(scales + 64 + 16 * j)[0];
        }
        self.qs.fill(0);
        for j in 0..8 {
            let qs = &mut self.qs[32 * (j / 4)..][..32];
            get_two_bit_plane(cells, codes + j * code_bytes, qs, 2 * (j as u32 % 4));
        }
    }
}

impl PackedSuper for BlockQ3K {
    fn pack(&self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        put_half(cells, scales, self.d);
        for j in 0..16 {
            cells.put(
                scales + 32 + 16 * j,
                [q3k_scale(&self.scales, j).cast_unsigned()],
            );
        }
        for j in 0..8 {
            let codes = codes + j * code_bytes;
            let qs = &self.qs[32 * (j / 4)..][..32];
            put_two_bit_plane(cells, codes, qs, 2 * (j as u32 % 4));
            put_bit_plane(cells, codes + 128, &self.hmask, j as u32);
        }
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        self.d = get_half(cells, scales);
        let sub: [i8; 16] =
            std::array::from_fn(|j| cells.get::<1>(scales + 32 + 16 * j)[0].cast_signed());
        self.scales = q3k_scales_pack(&sub);
        self.qs.fill(0);
        self.hmask.fill(0);
        for j in 0..8 {
            let codes = codes + j * code_bytes;
            let qs = &mut self.qs[32 * (j / 4)..][..32];
            get_two_bit_plane(cells, codes, qs, 2 * (j as u32 % 4));
            get_bit_plane(cells, codes + 128, &mut self.hmask, j as u32);
        }
    }
}

impl PackedSuper for BlockIq4Xs {
    fn pack(&self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        put_half(cells, scales, self.d);
        let qs: &[[u8; 16]] = cast_slice(&self.qs);
        for (j, qs) in qs.iter().enumerate() {
            let low = (self.scales_l[j / 2] >> (4 * (j % 2))) & 15;
            let high = (self.scales_h.get() >> (2 * j)) & 3;
            cells.put(
                scales + 32 + 16 * j,
                [(low | (high as u8) << 4).wrapping_sub(32)],
            );
            put_nibbles(cells, codes + j * code_bytes, qs);
        }
    }
    fn unpack(&mut self, cells: &RowCells, codes: usize, code_bytes: usize, scales: usize) {
        self.d = get_half(cells, scales);
        self.scales_l = [0; 4];
        let mut scales_h = 0;
        let qs: &mut [[u8; 16]] = cast_slice_mut(&mut self.qs);
        for (j, qs) in qs.iter_mut().enumerate() {
            let raw = cells.get::<1>(scales + 32 + 16 * j)[0].wrapping_add(32);
            self.scales_l[j / 2] |= (raw & 15) << (4 * (j % 2));
            scales_h |= u16::from(raw >> 4) << (2 * j);
            get_nibbles(cells, codes + j * code_bytes, qs);
        }
        self.scales_h = kvant_quant::le::U16Le::new(scales_h);
    }
}

/// Packs a row of super-blocks.
pub(super) fn pack_row<B: PackedSuper>(row: &[u8], cells: &RowCells, geometry: BlockGeometry) {
    let supers: &[B] = cast_slice(row);
    let blocks = supers.len() * geometry.super_blocks;
    for (i, block) in supers.iter().enumerate() {
        let codes = geometry.codes_at(i * geometry.super_blocks);
        let scales = geometry.scales_at(blocks, i);
        block.pack(cells, codes, geometry.code_bytes, scales);
    }
}

/// Restores a row of super-blocks.
pub(super) fn unpack_row<B: PackedSuper>(
    cells: &RowCells,
    geometry: BlockGeometry,
    row: &mut [u8],
) {
    let supers: &mut [B] = cast_slice_mut(row);
    let blocks = supers.len() * geometry.super_blocks;
    for (i, block) in supers.iter_mut().enumerate() {
        let codes = geometry.codes_at(i * geometry.super_blocks);
        let scales = geometry.scales_at(blocks, i);
        block.unpack(cells, codes, geometry.code_bytes, scales);
    }
}
