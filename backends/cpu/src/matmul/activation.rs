//! The activations of gated feed-forward layers, on vectors.

// Safety is the contract of `Simd`.
#![allow(unsafe_op_in_unsafe_fn)]

use crate::arch::Simd;
use kvant_device::Activation;

/// `e^x`, relative error below 1e-6 for results that are normal numbers; `x` is clamped to ±87.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    let x = S::min(S::max(x, S::splat(-87.0)), S::splat(87.0));
    // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first with zeros at its end.
    let n = S::round_i32(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
    let n_float = S::to_f32(n);
    let r = S::fma(n_float, S::splat(-0.693_359_4), x);
    let r = S::fma(n_float, S::splat(2.121_944_4e-4), r);
    // Taylor's polynomial of degree 7: the rest is below 1e-8 there.
    let mut p = S::splat(1.0 / 5040.0);
    for c in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = S::fma(p, r, S::splat(c));
    }
    let power = S::as_f32(S::shl::<23>(S::add_i32(n, S::splat_i32(127))));
    S::mul(p, power)
}

/// `x / (1 + e^-y)`.
#[inline(always)]
unsafe fn times_sigmoid<S: Simd>(x: S::F, y: S::F) -> S::F {
    let minus = S::sub(S::splat(0.0), y);
    S::div(x, S::add(S::splat(1.0), exp::<S>(minus)))
}

/// `0.5 x (1 + tanh(u))` with `u = sqrt(2/π) (x + 0.044715 x³)`, which is `x sigmoid(2u)`.
#[inline(always)]
unsafe fn gelu_tanh<S: Simd>(x: S::F) -> S::F {
    // sqrt(8/π) and 0.044715 times it.
    let (linear, cubic) = (1.595_769, 0.071_354_82);
    let square = S::mul(x, x);
    let u = S::mul(x, S::fma(square, S::splat(cubic), S::splat(linear)));
    times_sigmoid::<S>(x, u)
}

/// `0.5 x (1 + erf(x / sqrt 2))`; erf by Abramowitz and Stegun 7.1.26, absolute error 1.5e-7.
#[inline(always)]
unsafe fn gelu<S: Simd>(x: S::F) -> S::F {
    let magnitude = S::max(x, S::sub(S::splat(0.0), x));
    let z = S::mul(magnitude, S::splat(std::f32::consts::FRAC_1_SQRT_2));
    let one = S::splat(1.0);
    let t = S::div(one, S::fma(S::splat(0.327_591_1), z, one));
    let mut p = S::splat(1.061_405_4);
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = S::fma(p, t, S::splat(c));
    }
    let tail = exp::<S>(S::sub(S::splat(0.0), S::mul(z, z)));
    // Half of 1 - erf(z).
    let half = S::mul(S::mul(S::mul(p, t), tail), S::splat(0.5));
    let positive = S::max(x, S::splat(0.0));
    S::sub(positive, S::mul(magnitude, half))
}

/// `activation(x)`.
#[inline(always)]
pub(crate) unsafe fn activate<S: Simd>(activation: Activation, x: S::F) -> S::F {
    match activation {
        Activation::Silu => times_sigmoid::<S>(x, x),
        Activation::GeluTanh => gelu_tanh::<S>(x),
        Activation::Gelu => gelu::<S>(x),
    }
}
