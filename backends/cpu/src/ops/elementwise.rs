//! Ops of single elements.

use crate::vector::{F32s, Kernel, erf, load_first, sigmoid, store_first, tanh};
use kvant_device::Activation;

/// The activation of each lane.
///
/// # Safety
/// As [`F32s`].
#[inline(always)]
pub(crate) unsafe fn activate<V: F32s>(activation: Activation, x: V) -> V {
    // SAFETY: by the caller.
    unsafe {
        match activation {
            Activation::Silu => x.mul(sigmoid(x)),
            Activation::GeluTanh => {
                let cube = x.mul(x).mul(x);
                let inner = cube.mul_add(V::splat(0.044_715), x);
                let t = tanh(inner.mul(V::splat(0.797_884_6)));
                x.mul(V::splat(0.5)).mul(t.add(V::splat(1.0)))
            }
            Activation::Gelu => {
                let t = erf(x.mul(V::splat(std::f32::consts::FRAC_1_SQRT_2)));
                x.mul(V::splat(0.5)).mul(t.add(V::splat(1.0)))
            }
        }
    }
}

/// An op on one or two runs of `n` elements.
pub(crate) struct Elementwise {
    pub(crate) op: ElementOp,
    pub(crate) a: *const f32,
    /// The second operand, where there is one.
    pub(crate) b: *const f32,
    pub(crate) out: *mut f32,
    pub(crate) n: usize,
}

/// What is done to elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ElementOp {
    /// `a + scale * b`.
    Add { scale: f32 },
    /// `activation(a) * b`.
    Gated(Activation),
    /// `factor * a`.
    Scale { factor: f32 },
    /// `cap * tanh(a / cap)`.
    Softcap { cap: f32 },
}

impl Kernel for Elementwise {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        // SAFETY: by the caller of `dispatch`: `n` elements at each pointer the op uses.
        unsafe {
            match self.op {
                ElementOp::Add { scale } => {
                    let scale = V::splat(scale);
                    self.two(|a: V, b| b.mul_add(scale, a));
                }
                ElementOp::Gated(activation) => self.two(|a: V, b| activate(activation, a).mul(b)),
                ElementOp::Scale { factor } => {
                    let factor = V::splat(factor);
                    self.one(|a: V| a.mul(factor));
                }
                ElementOp::Softcap { cap } => {
                    let (inverse, cap) = (V::splat(1.0 / cap), V::splat(cap));
                    self.one(|a: V| tanh(a.mul(inverse)).mul(cap));
                }
            }
        }
    }
}

impl Elementwise {
    #[inline(always)]
    unsafe fn one<V: F32s>(&self, f: impl Fn(V) -> V) {
        // SAFETY: by the caller.
        unsafe {
            for at in (0..self.n).step_by(V::LANES) {
                let n = V::LANES.min(self.n - at);
                store_first(f(load_first(self.a.add(at), n)), self.out.add(at), n);
            }
        }
    }

    #[inline(always)]
    unsafe fn two<V: F32s>(&self, f: impl Fn(V, V) -> V) {
        // SAFETY: by the caller.
        unsafe {
            for at in (0..self.n).step_by(V::LANES) {
                let n = V::LANES.min(self.n - at);
                let (a, b) = (load_first(self.a.add(at), n), load_first(self.b.add(at), n));
                store_first(f(a, b), self.out.add(at), n);
            }
        }
    }
}
