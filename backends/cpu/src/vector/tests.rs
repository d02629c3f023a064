use super::*;
use crate::Level;

/// Applies a function of vectors to a slice.
struct Map<'a, F>(&'a mut [f32], F);

trait Function {
    /// # Safety
    /// As [`F32s`].
    unsafe fn call<V: F32s>(&self, x: V) -> V;
}

impl<F: Function> Kernel for Map<'_, F> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        for part in self.0.chunks_mut(V::LANES) {
            // SAFETY: `part` has `part.len()` elements.
            unsafe {
                let x = load_first::<V>(part.as_ptr(), part.len());
                store_first(self.1.call(x), part.as_mut_ptr(), part.len());
            }
        }
    }
}

macro_rules! function {
    ($name:ident, $f:expr) => {
        struct $name;
        impl Function for $name {
            #[inline(always)]
            unsafe fn call<V: F32s>(&self, x: V) -> V {
                // SAFETY: by the caller.
                unsafe { $f(x) }
            }
        }
    };
}

function!(Exp, exp);
function!(Tanh, tanh);
function!(Sigmoid, sigmoid);
function!(Erf, erf);
function!(Round, |x: V| x.round());

fn each_level(f: impl Fn(Level)) {
    for level in Level::available() {
        f(level);
    }
}

fn apply(level: Level, f: impl Function, xs: &[f32]) -> Vec<f32> {
    let mut out = xs.to_vec();
    // SAFETY: the kernel only touches its slice.
    unsafe { dispatch(level, Map(&mut out, f)) };
    out
}

fn range(from: f32, to: f32, n: usize) -> Vec<f32> {
    (0..=n)
        .map(|i| from + (to - from) * i as f32 / n as f32)
        .collect()
}

#[test]
fn exp_is_within_a_millionth() {
    each_level(|level| {
        let xs = range(-87.2, 88.7, 100_003);
        for (x, y) in xs.iter().zip(apply(level, Exp, &xs)) {
            let right = f64::from(*x).exp();
            assert!(
                (f64::from(y) / right - 1.0).abs() < 5e-7,
                "{level:?} exp({x}) = {y}"
            );
        }
        let edges = [
            0.0,
            -0.0,
            f32::NEG_INFINITY,
            -1e30,
            -88.0,
            f32::INFINITY,
            100.0,
        ];
        let right = [1.0, 1.0, 0.0, 0.0, 0.0, f32::INFINITY, f32::INFINITY];
        assert_eq!(apply(level, Exp, &edges), right, "{level:?}");
        assert!(apply(level, Exp, &[f32::NAN; 3])[2].is_nan());
    });
}

#[test]
fn tanh_sigmoid_erf() {
    each_level(|level| {
        let xs = range(-12.0, 12.0, 50_021);
        for (x, y) in xs.iter().zip(apply(level, Tanh, &xs)) {
            let right = f64::from(*x).tanh();
            let error = (f64::from(y) - right).abs();
            assert!(
                error < 1e-6 * right.abs().max(1e-3),
                "{level:?} tanh({x}) = {y}"
            );
        }
        for (x, y) in xs.iter().zip(apply(level, Sigmoid, &xs)) {
            let right = 1.0 / (1.0 + (-f64::from(*x)).exp());
            assert!(
                (f64::from(y) / right - 1.0).abs() < 1e-6,
                "{level:?} {x} {y}"
            );
        }
        let known = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (-1.0, -0.842_700_792_9),
            (2.0, 0.995_322_265_0),
            (5.0, 1.0),
        ];
        for (x, right) in known {
            let y = apply(level, Erf, &[x])[0];
            assert!(
                (f64::from(y) - right).abs() < 3e-7,
                "{level:?} erf({x}) = {y}"
            );
        }
        let big = apply(level, Tanh, &[f32::INFINITY, f32::NEG_INFINITY, 1e9]);
        assert_eq!(big, [1.0, -1.0, 1.0]);
    });
}

#[test]
fn round_is_to_even() {
    each_level(|level| {
        let xs = [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 3.2, -7.9, 5e6];
        let right = [0.0, 2.0, 2.0, 0.0, -2.0, 0.0, 3.0, -8.0, 5e6];
        assert_eq!(apply(level, Round, &xs), right, "{level:?}");
    });
}

/// Lanes kept, sums, largest, halves: against plain code.
struct Lanes;
impl Kernel for Lanes {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        let xs: Vec<f32> = (0..V::LANES).map(|i| 0.25 * i as f32 - 1.0).collect();
        // SAFETY: all slices have `LANES` elements.
        unsafe {
            let x = V::load(xs.as_ptr());
            assert_eq!(x.sum(), xs.iter().sum::<f32>());
            assert_eq!(x.largest(), xs[V::LANES - 1]);
            for from in 0..V::LANES + 2 {
                for to in 0..V::LANES + 2 {
                    let mut out = vec![0f32; V::LANES];
                    x.keep(from, to, V::splat(9.0)).store(out.as_mut_ptr());
                    for (i, &got) in out.iter().enumerate() {
                        let right = if i >= from && i < to { xs[i] } else { 9.0 };
                        assert_eq!(got, right, "{from}..{to}");
                    }
                }
            }
            let mut halves = vec![0u16; V::LANES];
            let mut back = vec![0f32; V::LANES];
            for special in [65_504.0, 65_519.0, 6e-8, 1e-5, 0.1, f32::INFINITY, -3.3] {
                V::splat(special).store_f16(halves.as_mut_ptr());
                V::load_f16(halves.as_ptr()).store(back.as_mut_ptr());
                assert_eq!(back[0], half::f16::from_f32(special).to_f32());
            }
        }
    }
}

#[test]
fn lane_operations() {
    each_level(|level| {
        // SAFETY: the kernel touches only its own memory.
        unsafe { dispatch(level, Lanes) }
    });
}
