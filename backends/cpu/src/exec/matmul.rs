//! Products, with the norm before them.
//!
//! In a step of few rows every thread norms and quantises the input for itself, into private memory,
//! before its first chunk: that costs less than a phase of its own. In larger steps a phase prepares
//! rows for all threads.

use super::phase::ValueRef;
use crate::Level;
use crate::matmul::{MatMul, MatMulSpec, PREPARE_ROWS};
use crate::ops::norm::{AddNormRow, NormRow, NormWeights};
use crate::vector::dispatch;
use crate::weights::PackedWeight;
use kvant_device::Epilogue;
use smallvec::SmallVec;
use std::sync::Arc;

/// Elements of the input up to which threads prepare it for themselves.
pub(crate) const PRIVATE_ELEMENTS: usize = 8192;

/// Where the input of a product comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// It is there.
    Value,
    /// `x = norm(from)`.
    Norm { norm: NormWeights, from: ValueRef },
    /// `sum = a + scale * post(b)`, `x = pre(sum)`.
    AddNorm {
        post: Option<NormWeights>,
        scale: f32,
        pre: NormWeights,
        a: ValueRef,
        b: ValueRef,
        sum: ValueRef,
    },
}

/// A product and its input.
#[derive(Debug)]
pub(crate) struct MatMulPhase {
    pub(crate) weights: SmallVec<[PackedWeight; 3]>,
    pub(crate) biases: SmallVec<[Option<Arc<[f32]>>; 3]>,
    pub(crate) epilogue: Epilogue,
    pub(crate) source: Source,
    /// The input `[rows, k]`, after the norm of `source`.
    pub(crate) x: ValueRef,
    pub(crate) residual: Option<ValueRef>,
    pub(crate) out: ValueRef,
}

impl MatMulPhase {
    /// Whether threads prepare `rows` rows for themselves.
    pub(crate) fn is_private(&self, rows: usize) -> bool {
        // Larger products prepare whole tiles of rows.
        rows < PREPARE_ROWS && rows.saturating_mul(self.x.width) <= PRIVATE_ELEMENTS
    }

    /// Whether the input has a norm to be computed.
    pub(crate) fn has_norm(&self) -> bool {
        !matches!(self.source, Source::Value)
    }

    /// Plans the product for a step and hands it on.
    pub(crate) fn with_plan<R>(
        &self,
        level: Level,
        rows: usize,
        n_threads: usize,
        deterministic: bool,
        f: impl FnOnce(&MatMul<'_>) -> R,
    ) -> R {
        let weights: SmallVec<[&PackedWeight; 3]> = self.weights.iter().collect();
        let biases: SmallVec<[Option<&[f32]>; 3]> =
            self.biases.iter().map(Option::as_deref).collect();
        let spec = MatMulSpec {
            weights: &weights,
            biases: &biases,
            epilogue: self.epilogue,
        };
        let plan = MatMul::new(level, spec, rows, n_threads, deterministic)
            .unwrap_or_else(|e| unreachable!("checked when the program was prepared: {e}"));
        f(&plan)
    }

    /// Norms one row: writes `x`, and `sum` where the source has one.
    ///
    /// # Safety
    /// `base` is the arena, the source's values are written, `x` and `sum` hold a row and nobody else
    /// uses them.
    pub(crate) unsafe fn norm_row(
        &self,
        level: Level,
        base: *mut u8,
        row: usize,
        x: *mut f32,
        sum: *mut f32,
    ) {
        let width = self.x.width;
        let at = |value: &ValueRef| {
            base.wrapping_add(value.offset)
                .cast::<f32>()
                .wrapping_add(row * width)
        };
        // SAFETY: by the caller.
        unsafe {
            match &self.source {
                Source::Value => {}
                Source::Norm { norm, from } => dispatch(
                    level,
                    NormRow {
                        norm,
                        x: at(from),
                        out: x,
                        width,
                    },
                ),
                Source::AddNorm {
                    post,
                    scale,
                    pre,
                    a,
                    b,
                    ..
                } => dispatch(
                    level,
                    AddNormRow {
                        post: post.as_ref(),
                        pre,
                        scale: *scale,
                        x: at(a),
                        y: at(b),
                        sum,
                        normed: x,
                        width,
                    },
                ),
            }
        }
    }
}
