//! The CPU's own form of a program: phases over memory that is already placed.

use super::matmul::MatMulPhase;
use crate::attention::tile::LayerKv;
use crate::ops::elementwise::ElementOp;
use crate::ops::norm::NormWeights;
use crate::ops::rope::{Rope, RopeFrequencies};
use crate::weights::PackedWeight;
use kvant_device::{Attention, HeadShape, Rows};

/// Where a value lies: `f32 [rows, width]` at byte `offset` of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueRef {
    pub(crate) offset: usize,
    pub(crate) width: usize,
    pub(crate) rows: Rows,
}

/// A layer's keys and values and the block table that leads to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerRef {
    pub(crate) kv: LayerKv,
    pub(crate) group: usize,
}

/// One phase: chunks that run in any order, on any thread.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Chunk: everything.
    CopyBlocks,
    /// Chunk: rows.
    Embed {
        table: PackedWeight,
        scale: f32,
        out: ValueRef,
    },
    /// Chunk: rows.
    RopeTable {
        frequencies: RopeFrequencies,
        out: ValueRef,
    },
    /// Chunk: rows.
    Norm {
        norm: NormWeights,
        x: ValueRef,
        out: ValueRef,
    },
    /// Chunk: rows.
    AddNorm {
        post: Option<NormWeights>,
        scale: f32,
        pre: NormWeights,
        x: ValueRef,
        y: ValueRef,
        sum: ValueRef,
        normed: ValueRef,
    },
    /// Chunk: rows. The second operand is another value, or the second half of the first.
    Elementwise {
        op: ElementOp,
        a: ValueRef,
        b: Option<ValueRef>,
        out: ValueRef,
    },
    /// Chunk: output rows.
    GatherRows { x: ValueRef, out: ValueRef },
    /// Chunk: rows.
    QkNormRope {
        rope: Rope,
        qkv: ValueRef,
        table: ValueRef,
        out: ValueRef,
    },
    /// Chunk: the rows of one block.
    WriteKv {
        layer: LayerRef,
        heads: HeadShape,
        qkv: ValueRef,
    },
    /// Chunk: the rows of one block. When `fused`, skipped in steps of single tokens, where
    /// [`Phase::Attention`] does it.
    RopeWriteKv {
        rope: RopeWrite,
        q: ValueRef,
        fused: bool,
    },
    /// Chunk: an item of the plan.
    Attention(AttentionPhase),
    /// Chunk: a merge of the plan.
    MergeAttention {
        heads: HeadShape,
        plan: usize,
        out: ValueRef,
    },
    /// Chunk: rows. Norms and quantises the input of the product that is the next phase; skipped in
    /// steps of few rows, where its threads do that for themselves.
    Prepare,
    /// Chunk: some of the outputs.
    MatMul(MatMulPhase),
}

/// Attention of one layer.
#[derive(Debug)]
pub(crate) struct AttentionPhase {
    pub(crate) attention: Attention,
    pub(crate) layer: LayerRef,
    /// Which of the plans.
    pub(crate) plan: usize,
    pub(crate) q: ValueRef,
    pub(crate) out: ValueRef,
    /// Rotation and writing of single tokens, each head just before it is attended to.
    pub(crate) rope: Option<RopeWrite>,
}

/// Norm, rotation and writing to a layer.
#[derive(Debug, Clone)]
pub(crate) struct RopeWrite {
    pub(crate) rope: Rope,
    pub(crate) layer: LayerRef,
    pub(crate) qkv: ValueRef,
    pub(crate) table: ValueRef,
}
