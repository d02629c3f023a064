//! Products of every format, shape and instruction set against a plain sum in `f64`.

use super::{MatMul, MatMulIo, MatMulSpec, PREPARE_ROWS, act_bytes_bound, scratch_bytes_bound};
use crate::arch::Level;
use crate::weights::geometry::{Layout, layout};
use crate::weights::{PackedWeight, WeightArena, sequential};
use kvant_device::{Activation, Epilogue};
use kvant_quant::WeightFormat;
use kvant_quant::testing::{Random, random_blocks};

/// 64-byte aligned bytes.
struct Aligned(Vec<[u64; 8]>, usize);

impl Aligned {
    fn new(bytes: usize) -> Self {
        Self(vec![[0; 8]; bytes / 64 + 2], bytes)
    }
    fn ptr(&mut self) -> *mut u8 {
        let p = self.0.as_mut_ptr().cast::<u8>();
        let skip = p.align_offset(64);
        assert!(skip + self.1 <= self.0.len() * 64);
        p.wrapping_add(skip)
    }
}

pub(super) struct Weight {
    pub(super) packed: PackedWeight,
    /// `[n, k]`.
    pub(super) values: Vec<f32>,
}

pub(super) fn weight(format: WeightFormat, n: usize, k: usize, seed: u64) -> Weight {
    let blocks = n * k / format.block().elements;
    let bytes = random_blocks(format, blocks, seed);
    let mut values = vec![0.0; n * k];
    kvant_quant::decode(format, &bytes, &mut values).expect("whole blocks");
    let arena = WeightArena::new();
    let mut builder = PackedWeight::builder(&arena, format, n, k).expect("shape");
    builder.push(&bytes, &sequential).expect("rows");
    Weight {
        packed: builder.finish().expect("all rows"),
        values,
    }
}

pub(super) fn activations(rows: usize, k: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..rows * k).map(|_| random.normal()).collect()
}

/// Runs a product on one thread.
pub(super) fn run(
    level: Level,
    spec: MatMulSpec<'_>,
    rows: usize,
    x: &[f32],
    residual: &[f32],
    deterministic: bool,
) -> Vec<f32> {
    let plan = MatMul::new(level, spec, rows, 2, deterministic).expect("a good spec");
    let has_floats = |w: &&PackedWeight| matches!(layout(w.format()), Layout::Floats { .. });
    let has_floats = spec.weights.iter().any(has_floats);
    assert!(Some(plan.act_bytes()) <= act_bytes_bound(level, has_floats, rows, plan.k()));
    assert!(plan.scratch_bytes() <= scratch_bytes_bound(level));
    assert_eq!(
        plan.n_prepare_chunks(),
        if plan.act_bytes() == 0 {
            0
        } else {
            rows.div_ceil(PREPARE_ROWS)
        }
    );
    assert_eq!(x.len(), rows * plan.k());
    let mut out = vec![f32::NAN; rows * plan.width()];
    assert!(residual.is_empty() || residual.len() == out.len());
    let mut acts = Aligned::new(plan.act_bytes());
    let mut scratch = Aligned::new(plan.scratch_bytes());
    let io = MatMulIo {
        x: x.as_ptr(),
        acts: acts.ptr(),
        out: out.as_mut_ptr(),
        out_stride: plan.width(),
        residual: residual.as_ptr(),
        residual_stride: plan.width(),
    };
    for i in 0..plan.n_prepare_chunks() {
        // SAFETY: buffers are as large as the plan says; one thread.
        unsafe { plan.prepare_chunk(i, &io) }
    }
    for i in (0..plan.n_chunks()).rev() {
        // SAFETY: as above; the preparation is done.
        unsafe { plan.run_chunk(i, &io, scratch.ptr()) }
    }
    out
}

pub(super) fn store<'w>(weights: &'w [&'w PackedWeight]) -> MatMulSpec<'w> {
    MatMulSpec {
        weights,
        biases: &[],
        epilogue: Epilogue::Store,
    }
}

/// How far one product may be from the truth: half a step of the 8-bit activations (or of bfloat16) a
/// column, added up as independent errors, six deviations; and `f32` rounding of the sum of magnitudes.
fn tolerance(level: Level, format: WeightFormat, w: &[f32], x: &[f32], rows: usize) -> f64 {
    let magnitude: f64 = w
        .iter()
        .zip(x)
        .map(|(&w, &x)| f64::from((w * x).abs()))
        .sum();
    let rounding = 3e-6 * magnitude * (w.len() as f64).sqrt().max(4.0) / 4.0;
    let blocks = matches!(layout(format), Layout::Blocks(_));
    let tiles = level == Level::Amx && rows > 1;
    let mut variance = 0.0;
    if blocks {
        for (w, x) in w.chunks(32).zip(x.chunks(32)) {
            let largest = x.iter().fold(0f32, |a, v| a.max(v.abs()));
            let step = f64::from(largest) / 127.0;
            variance += w
                .iter()
                .map(|&w| (f64::from(w) * step).powi(2) / 12.0)
                .sum::<f64>();
        }
        // A minimum or a bias meets the same errors with the size of the code, not of the weight.
        variance *= 1.0;
    }
    if tiles {
        variance += w
            .iter()
            .zip(x)
            .map(|(&w, &x)| (f64::from(w * x) / 256.0).powi(2))
            .sum::<f64>();
    }
    6.0 * variance.sqrt() + rounding + 1e-30
}

fn check(level: Level, format: WeightFormat, n: usize, k: usize, rows: usize) {
    let w = weight(format, n, k, 1);
    let x = activations(rows, k, 2);
    let out = run(level, store(&[&w.packed]), rows, &x, &[], false);
    for row in 0..rows {
        for col in 0..n {
            let (w, x) = (&w.values[col * k..][..k], &x[row * k..][..k]);
            let want: f64 = w
                .iter()
                .zip(x)
                .map(|(&w, &x)| f64::from(w) * f64::from(x))
                .sum();
            let got = f64::from(out[row * n + col]);
            let allowed = tolerance(level, format, w, x, rows);
            assert!(
                (got - want).abs() <= allowed,
                "{level} {format} [{n},{k}] x {rows}: ({row},{col}) is {got}, not {want}, by {}, allowed {allowed}",
                got - want,
            );
        }
    }
}

/// Every format on every level: rows that are no multiple of anything, one block and several.
#[test]
fn products_are_near_the_truth() {
    for level in Level::available() {
        for &format in WeightFormat::ALL {
            let block = format.block().elements;
            for (n, blocks, rows) in [
                (1, 1, 1),
                (50, 3, 1),
                (37, 1, 2),
                (49, 3, 5),
                (16, 2, 17),
                (33, 1, 33),
                (70, 3, 130),
            ] {
                // Elements that are their own block: a width that no vector divides.
                let k = if block == 1 {
                    blocks * 45
                } else {
                    blocks * block
                };
                check(level, format, n, k, rows);
            }
        }
    }
}

/// A width beyond what is decoded or multiplied at once.
#[test]
fn wide_products_are_near_the_truth() {
    for level in Level::available() {
        for format in [
            WeightFormat::Q4_K,
            WeightFormat::F16,
            WeightFormat::IQ2_XXS,
            WeightFormat::Q8_0,
        ] {
            for rows in [1, 3, 40] {
                check(level, format, 20, 4608, rows);
            }
        }
    }
}

/// With integers for activations nothing is rounded but the `f32` sums.
#[test]
fn integer_products_are_exact_up_to_float_rounding() {
    for level in Level::available() {
        for &format in WeightFormat::ALL {
            if !matches!(layout(format), Layout::Blocks(_)) {
                continue;
            }
            let (n, k) = (40, 512);
            let w = weight(format, n, k, 3);
            for rows in [1, 4] {
                let mut random = Random::new(4);
                let mut x: Vec<f32> = (0..rows * k)
                    .map(|_| random.below(255) as f32 - 127.0)
                    .collect();
                for block in x.chunks_mut(32) {
                    block[5] = 127.0;
                }
                let out = run(level, store(&[&w.packed]), rows, &x, &[], true);
                for (i, &got) in out.iter().enumerate() {
                    let (w, x) = (&w.values[i % n * k..][..k], &x[i / n * k..][..k]);
                    let terms = || w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
                    let want: f64 = terms().sum();
                    let magnitude: f64 = terms().map(f64::abs).sum();
                    assert!(
                        (f64::from(got) - want).abs() <= 2e-6 * magnitude,
                        "{level} {format} x {rows}: {got}, not {want}"
                    );
                }
            }
        }
    }
}

/// A row alone and the same row among others: the same bits.
#[test]
fn deterministic_rows_do_not_depend_on_the_batch() {
    for level in Level::available() {
        for &format in WeightFormat::ALL {
            let k = 3 * 256;
            let w = weight(format, 50, k, 5);
            let x = activations(70, k, 6);
            let all = run(level, store(&[&w.packed]), 70, &x, &[], true);
            for (first, rows) in [(0, 1), (69, 1), (3, 2), (20, 16), (1, 69)] {
                let some = run(
                    level,
                    store(&[&w.packed]),
                    rows,
                    &x[first * k..][..rows * k],
                    &[],
                    true,
                );
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(
                    bits(&some),
                    bits(&all[first * 50..][..rows * 50]),
                    "{level} {format}"
                );
            }
        }
    }
}

/// Weights of several formats side by side, with biases and a residual.
#[test]
fn side_by_side_with_bias_and_residual() {
    for level in Level::available() {
        let k = 256;
        let formats = [WeightFormat::Q4_K, WeightFormat::F16, WeightFormat::Q6_K];
        let heights = [48, 20, 33];
        let weights: Vec<Weight> = (0..3)
            .map(|i| weight(formats[i], heights[i], k, 7))
            .collect();
        let packed: Vec<&PackedWeight> = weights.iter().map(|w| &w.packed).collect();
        let width: usize = heights.iter().sum();
        let bias = activations(1, heights[1], 8);
        for rows in [1, 3, 40] {
            let x = activations(rows, k, 9);
            let residual = activations(rows, width, 10);
            let spec = MatMulSpec {
                weights: &packed,
                biases: &[None, Some(&bias)],
                epilogue: Epilogue::Residual { scale: 0.5 },
            };
            let out = run(level, spec, rows, &x, &residual, false);
            let mut at = 0;
            for i in 0..3 {
                let alone = run(level, store(&packed[i..=i]), rows, &x, &[], false);
                for row in 0..rows {
                    for col in 0..heights[i] {
                        let b = if i == 1 { bias[col] } else { 0.0 };
                        let product = alone[row * heights[i] + col] + b;
                        let place = row * width + at + col;
                        let want = residual[place] + 0.5 * product;
                        // Alone, a float weight takes another path on tiles.
                        let slack = if level == Level::Amx { 0.05 } else { 1e-5 };
                        assert!((out[place] - want).abs() <= slack * (1.0 + product.abs()));
                    }
                }
                at += heights[i];
            }
        }
    }
}

#[test]
fn gated_activations() {
    for level in Level::available() {
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
            let (n, k) = (35, 64);
            let gate = weight(WeightFormat::Q4_0, n, k, 11);
            let up = weight(WeightFormat::Q8_0, n, k, 12);
            for rows in [1, 5, 40] {
                let x = activations(rows, k, 13);
                let g = run(level, store(&[&gate.packed]), rows, &x, &[], false);
                let u = run(level, store(&[&up.packed]), rows, &x, &[], false);
                let weights = [&gate.packed, &up.packed];
                let spec = MatMulSpec {
                    weights: &weights,
                    biases: &[],
                    epilogue: Epilogue::Gated(activation),
                };
                let out = run(level, spec, rows, &x, &[], false);
                for i in 0..out.len() {
                    let z = f64::from(g[i]);
                    let want = exact(activation, z) * f64::from(u[i]);
                    let error = (f64::from(out[i]) - want).abs();
                    assert!(
                        error <= 1e-6 * (want.abs() + f64::from(u[i].abs()) + 1e-3),
                        "{level} {activation:?}({z}): {} not {want}",
                        out[i]
                    );
                }
            }
        }
    }
}

fn exact(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + u.tanh())
        }
        Activation::Gelu => x * normal_cdf(x),
    }
}

/// By Simpson's rule on the density.
fn normal_cdf(x: f64) -> f64 {
    let steps = 2000;
    let h = x / f64::from(steps);
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let inner: f64 = (1..steps)
        .map(|i| density(f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 })
        .sum();
    0.5 + (density(0.0) + inner + density(x)) * h / 3.0
}
