//! Tiles by AMX: activations and weights to bfloat16, and their product.

// Safety is the contract of each argument type, and that the machine has AMX.
#![allow(unsafe_op_in_unsafe_fn)]

use super::{
    ActTileArgs, BlockTileArgs, FloatTileArgs, K_TILE, ROW_TILE, TILE_BYTES, TileArgs, TileKernels,
};
use crate::arch::Simd;
use crate::arch::x86_64::amx;
use crate::arch::x86_64::avx512::Avx512;
use crate::matmul::floats::FloatKind;
use crate::matmul::formats::{self as f, BlockFormat};
use kvant_quant::WeightFormat;
use std::arch::x86_64::*;

pub(crate) static KERNELS: TileKernels = TileKernels {
    activations,
    blocks,
    floats,
    multiply,
};

const _: () = assert!(TILE_BYTES == amx::TILE_BYTES);

/// Pairs of columns: the upper 16 bits of each lane of `first` below those of `second`, rounded to
/// nearest (halves away from zero). Not for NaN with a full payload.
#[inline(always)]
unsafe fn pair_rounded(first: __m512, second: __m512) -> __m512i {
    let half = _mm512_set1_epi32(0x8000);
    let low = _mm512_srli_epi32::<16>(_mm512_add_epi32(_mm512_castps_si512(first), half));
    let high = _mm512_add_epi32(_mm512_castps_si512(second), half);
    Avx512::or_masked(low, high, _mm512_set1_epi32(0xFFFF_0000u32.cast_signed()))
}

/// To bfloat16, ties to even, as the upper half of each lane; NaN stays NaN.
#[inline(always)]
unsafe fn rounded(x: __m512) -> __m512 {
    let bits: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(x));
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
}

/// Pairs of columns that are bfloat16 numbers already.
#[inline(always)]
unsafe fn pair(first: __m512, second: __m512) -> __m512i {
    let low = _mm512_srli_epi32::<16>(_mm512_castps_si512(first));
    _mm512_or_si512(low, _mm512_castps_si512(second))
}

#[inline(always)]
unsafe fn store(p: *mut u8, v: __m512i) {
    _mm512_storeu_si512(p.cast(), v);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn activations(args: &ActTileArgs) {
    for tile in 0..args.k.div_ceil(K_TILE) {
        let first = tile * K_TILE;
        let cols = (args.k - first).min(K_TILE);
        let (low_mask, high_mask) = (
            (1u32.wrapping_shl(cols.min(16) as u32).wrapping_sub(1)) as u16,
            (1u32 << (cols.max(16) - 16)).wrapping_sub(1) as u16,
        );
        for row in 0..ROW_TILE {
            let out = args.out.add(tile * TILE_BYTES + row * 64);
            let (a, b) = if row < args.rows {
                let x = args.x.add(row * args.k + first);
                (
                    _mm512_maskz_loadu_ps(low_mask, x),
                    _mm512_maskz_loadu_ps(high_mask, x.wrapping_add(16)),
                )
            } else {
                (_mm512_setzero_ps(), _mm512_setzero_ps())
            };
            let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(b, a));
            store(out, both);
            if args.planes == 2 {
                let (a, b) = (_mm512_sub_ps(a, rounded(a)), _mm512_sub_ps(b, rounded(b)));
                let rest: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(b, a));
                store(out.add(args.plane_bytes), rest);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,f16c")]
unsafe fn blocks_of<F: BlockFormat>(args: &BlockTileArgs) {
    let geometry = F::GEOMETRY;
    let mut codes = args.group.add(geometry.codes_at(args.first));
    let mut scales = args
        .group
        .add(geometry.scales_at(args.blocks, args.first / geometry.super_blocks));
    let mut out = args.out;
    let mut left = args.count;
    // Codes become the floats 1 + code / 256, so a weight is one multiplication and addition away.
    let one = _mm512_set1_epi32(0x3F80_0000);
    let field = _mm512_set1_epi32(0x007F_8000);
    let bias = F::BIAS_LOG2.map_or(0.0, |n| (1 << n) as f32);
    while left > 0 {
        let header = F::header::<Avx512>(scales, 0);
        for index in 0..geometry.super_blocks {
            let mut line = 0;
            while line < geometry.code_bytes {
                Avx512::prefetch(codes.wrapping_add(1024 + line));
                line += 64;
            }
            let block = F::block::<Avx512>(codes, scales, index, 0, &header);
            for c in 0..8 {
                let half = if F::HALVES { c / 4 } else { 0 };
                let scale = _mm512_mul_ps(block.scale[half], _mm512_set1_ps(256.0));
                let shift = _mm512_set1_ps(-256.0 - bias);
                let offset = if F::HAS_MIN {
                    _mm512_fmadd_ps(block.scale[half], shift, block.min[half])
                } else {
                    _mm512_mul_ps(block.scale[half], shift)
                };
                let v = block.codes[c];
                let shifted = [
                    _mm512_slli_epi32::<15>(v),
                    _mm512_slli_epi32::<7>(v),
                    _mm512_srli_epi32::<1>(v),
                    _mm512_srli_epi32::<9>(v),
                ];
                let mut x = [scale; 4];
                for j in 0..4 {
                    let float = _mm512_castsi512_ps(Avx512::or_masked(one, shifted[j], field));
                    x[j] = _mm512_fmadd_ps(float, scale, offset);
                }
                store(out.add(c * 128), pair_rounded(x[0], x[1]));
                store(out.add(c * 128 + 64), pair_rounded(x[2], x[3]));
            }
            out = out.add(TILE_BYTES);
            codes = codes.add(geometry.code_bytes);
        }
        scales = scales.add(geometry.scale_bytes);
        left -= geometry.super_blocks;
    }
}

unsafe fn blocks(format: WeightFormat, args: &BlockTileArgs) {
    match format {
        WeightFormat::Q4_0 => blocks_of::<f::Q4_0>(args),
        WeightFormat::Q4_1 => blocks_of::<f::Q4_1>(args),
        WeightFormat::Q5_0 => blocks_of::<f::Q5_0>(args),
        WeightFormat::Q5_1 => blocks_of::<f::Q5_1>(args),
        WeightFormat::Q8_0 => blocks_of::<f::Q8_0>(args),
        WeightFormat::IQ4_NL => blocks_of::<f::IQ4_NL>(args),
        WeightFormat::MXFP4 => blocks_of::<f::MXFP4>(args),
        WeightFormat::Q2_K => blocks_of::<f::Q2_K>(args),
        WeightFormat::Q3_K => blocks_of::<f::Q3_K>(args),
        WeightFormat::Q4_K => blocks_of::<f::Q4_K>(args),
        WeightFormat::Q5_K => blocks_of::<f::Q5_K>(args),
        WeightFormat::Q6_K => blocks_of::<f::Q6_K>(args),
        WeightFormat::IQ4_XS => blocks_of::<f::IQ4_XS>(args),
        other => unreachable!("{other} is not kept as blocks"),
    }
}

/// Sixteen rows of one column; zero beyond the last.
#[inline(always)]
unsafe fn column(args: &FloatTileArgs, col: usize) -> __m512 {
    if col >= args.cols {
        return _mm512_setzero_ps();
    }
    match args.kind {
        FloatKind::F32 => Avx512::load_f32(args.panel.add(col * 64).cast()),
        FloatKind::F16 => Avx512::load_f16(args.panel.add(col * 32)),
        FloatKind::Bf16 => Avx512::load_bf16(args.panel.add(col * 32)),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn floats(args: &FloatTileArgs) {
    for two in 0..args.cols.div_ceil(K_TILE) * (K_TILE / 2) {
        let (a, b) = (column(args, 2 * two), column(args, 2 * two + 1));
        let (high_a, high_b) = (rounded(a), rounded(b));
        let out = args.out.add(two * 64);
        store(out, pair(high_a, high_b));
        if args.planes == 2 {
            let rest_a = rounded(_mm512_sub_ps(a, high_a));
            let rest_b = rounded(_mm512_sub_ps(b, high_b));
            store(out.add(args.plane_bytes), pair(rest_a, rest_b));
        }
    }
}

unsafe fn multiply(args: &TileArgs) {
    amx::configure();
    let mut row_tile = 0;
    while row_tile < args.row_tiles {
        let a = args.a.add(row_tile * args.a_stride);
        let two = row_tile + 2 <= args.row_tiles;
        for group in (0..args.groups).step_by(2) {
            let b = args.b.add(group * args.b_stride);
            let c = args
                .c
                .add(group * args.c_stride / 4 + row_tile * ROW_TILE * 16);
            if two {
                amx::multiply_two(
                    a,
                    args.a_stride,
                    b,
                    args.b_stride,
                    c,
                    args.c_stride,
                    args.k_tiles,
                    args.add,
                );
            } else {
                amx::multiply_one(
                    a,
                    b,
                    args.b_stride,
                    c,
                    args.c_stride,
                    args.k_tiles,
                    args.add,
                );
            }
        }
        row_tile += 2;
    }
    amx::release();
}
