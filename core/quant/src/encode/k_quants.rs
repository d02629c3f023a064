//! Superblocks: search a scale (and minimum) for each group, round those to small integers under
//! the block's scale, then choose the codes again with the rounded scales.

use super::search::{ScaleMin, ScaleMinSearch, symmetric, symmetric_by_descent};
use super::{nearest, signed_extreme};
use crate::le::F16Le;
use crate::weights::{
    BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, q3k_scales_pack, scale_min_pack,
};

const Q2: ScaleMinSearch = ScaleMinSearch {
    levels: 3,
    first: -0.5,
    last_trial: 15,
    absolute_error: true,
};
const Q4: ScaleMinSearch = ScaleMinSearch {
    levels: 15,
    first: -1.0,
    last_trial: 20,
    absolute_error: false,
};
const Q5: ScaleMinSearch = ScaleMinSearch {
    levels: 31,
    first: -0.5,
    last_trial: 15,
    absolute_error: false,
};

/// Groups of a block with scale and minimum, everything rounded.
struct Affine<const GROUPS: usize> {
    d: F16Le,
    dmin: F16Le,
    scales: [u8; GROUPS],
    mins: [u8; GROUPS],
    codes: [u8; 256],
}

/// `groups` are the searched groups of the block, `largest` the largest scale code.
fn affine<const GROUPS: usize, const N: usize>(
    values: &[f32; 256],
    groups: &[ScaleMin<N>; GROUPS],
    largest: u8,
    levels: u8,
) -> Affine<GROUPS> {
    let (d, scales) = round_scales(&groups.each_ref().map(|group| group.scale), largest);
    let (dmin, mins) = round_scales(&groups.each_ref().map(|group| group.min), largest);
    let mut codes = [0; 256];
    for (j, codes) in codes.chunks_exact_mut(N).enumerate() {
        let scale = d.get() * f32::from(scales[j]);
        if scale == 0.0 {
            // Any code gives the same value; these are the ones the reference leaves.
            codes.copy_from_slice(&groups[j].codes);
            continue;
        }
        let min = dmin.get() * f32::from(mins[j]);
        for (code, &x) in codes.iter_mut().zip(&values[N * j..]) {
            *code = nearest((x + min) / scale).clamp(0, i32::from(levels)) as u8;
        }
    }
    Affine {
        d,
        dmin,
        scales,
        mins,
        codes,
    }
}

/// Codes up to `largest` for scales that are not negative.
fn round_scales<const GROUPS: usize>(scales: &[f32; GROUPS], largest: u8) -> (F16Le, [u8; GROUPS]) {
    let max = scales.iter().copied().fold(0.0, f32::max);
    let inverse = if max > 0.0 {
        f32::from(largest) / max
    } else {
        0.0
    };
    let codes = scales.map(|s| nearest(inverse * s).clamp(0, i32::from(largest)) as u8);
    (F16Le::new(max / f32::from(largest)), codes)
}

/// The groups of 32 of Q4_K and Q5_K, weighted by magnitude above the group's root mean square.
fn groups_of_32(values: &[f32; 256], search: &ScaleMinSearch) -> [ScaleMin<32>; 8] {
    let (groups, _) = values.as_chunks::<32>();
    std::array::from_fn(|j| {
        let sum_x2 = groups[j].iter().fold(0.0, |sum, x| sum + x * x);
        let rms = (sum_x2 / 32.0f32).sqrt();
        search.run(&groups[j], &groups[j].map(|x| rms + x.abs()))
    })
}

/// Two bits a code, four bit planes of 32 bytes for each 128 elements.
fn pack_two_bits(codes: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|i| {
        let first = 128 * (i / 32) + i % 32;
        (0..4).fold(0, |byte, g| byte | ((codes[first + 32 * g] & 3) << (2 * g)))
    })
}

/// The low four bits, pairs 32 elements apart.
fn pack_four_bits(codes: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let first = 64 * (i / 32) + i % 32;
        (codes[first] & 15) | (codes[first + 32] << 4)
    })
}

/// One bit of every code, a bit plane for each 32 elements.
fn pack_plane(codes: &[u8; 256], bit: u32) -> [u8; 32] {
    std::array::from_fn(|i| {
        (0..8).fold(0, |byte, g| byte | (((codes[i + 32 * g] >> bit) & 1) << g))
    })
}

pub(super) fn q2_k(values: &[f32; 256]) -> BlockQ2K {
    let (groups, _) = values.as_chunks::<16>();
    let groups: [_; 16] = std::array::from_fn(|j| Q2.run(&groups[j], &groups[j].map(f32::abs)));
    let block = affine(values, &groups, 15, Q2.levels);
    BlockQ2K {
        scales: std::array::from_fn(|j| block.scales[j] | (block.mins[j] << 4)),
        qs: pack_two_bits(&block.codes),
        d: block.d,
        dmin: block.dmin,
    }
}

pub(super) fn q4_k(values: &[f32; 256]) -> BlockQ4K {
    let block = affine(values, &groups_of_32(values, &Q4), 63, Q4.levels);
    BlockQ4K {
        d: block.d,
        dmin: block.dmin,
        scales: scale_min_pack(&block.scales, &block.mins),
        qs: pack_four_bits(&block.codes),
    }
}

pub(super) fn q5_k(values: &[f32; 256]) -> BlockQ5K {
    let block = affine(values, &groups_of_32(values, &Q5), 63, Q5.levels);
    BlockQ5K {
        d: block.d,
        dmin: block.dmin,
        scales: scale_min_pack(&block.scales, &block.mins),
        qh: pack_plane(&block.codes, 4),
        qs: pack_four_bits(&block.codes),
    }
}

/// A block without minima: scale codes in `-largest..largest`, of which the scale of largest
/// magnitude gets `-largest`, and codes shifted by `half` to be positive.
fn symmetric_block(
    values: &[f32; 256],
    largest: i32,
    half: i8,
    search: impl Fn(&[f32; 16], i8) -> (f32, [i8; 16]),
) -> (F16Le, [i8; 16], [u8; 256]) {
    let (groups, _) = values.as_chunks::<16>();
    let searched: [_; 16] = std::array::from_fn(|j| search(&groups[j], half));
    let scales = searched.map(|(scale, _)| scale);
    let extreme = signed_extreme(&scales);
    let (d, scales) = if extreme == 0.0 {
        (F16Le::new(0.0), [0; 16])
    } else {
        let inverse = -(largest as f32) / extreme;
        let codes = scales.map(|s| nearest(inverse * s).clamp(-largest, largest - 1) as i8);
        (F16Le::new(1.0 / inverse), codes)
    };
    let mut codes = [0; 256];
    for (j, codes) in codes.chunks_exact_mut(16).enumerate() {
        let scale = d.get() * f32::from(scales[j]);
        for (i, code) in codes.iter_mut().enumerate() {
            let q = if scale == 0.0 {
                searched[j].1[i]
            } else {
                let half = i32::from(half);
                nearest(groups[j][i] / scale).clamp(-half, half - 1) as i8
            };
            *code = (q + half) as u8;
        }
    }
    (d, scales, codes)
}

pub(super) fn q3_k(values: &[f32; 256]) -> BlockQ3K {
    let (d, scales, codes) = symmetric_block(values, 32, 4, symmetric_by_descent);
    BlockQ3K {
        hmask: pack_plane(&codes, 2),
        qs: pack_two_bits(&codes),
        scales: q3k_scales_pack(&scales),
        d,
    }
}

pub(super) fn q6_k(values: &[f32; 256]) -> BlockQ6K {
    let (d, scales, codes) = symmetric_block(values, 128, 32, symmetric);
    if scales == [0; 16] {
        return bytemuck::Zeroable::zeroed();
    }
    let high = codes.map(|q| q >> 4);
    BlockQ6K {
        ql: std::array::from_fn(|i| {
            let first = 128 * (i / 64) + i % 64;
            (codes[first] & 15) | (codes[first + 64] << 4)
        }),
        qh: pack_two_bits(&high),
        scales,
        d,
    }
}
