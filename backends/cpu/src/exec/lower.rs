//! From a program's nodes to phases.
//!
//! - `RopeWriteKv` directly before the attention of its layer is folded into it for steps in which
//!   every sequence has one token: each key head rotates, writes and attends in one chunk.
//! - A norm directly before the product that alone reads it is folded into the product's preparation.
//! - Slots are planned anew, because a folded node's inputs must live as long as the node it went
//!   into.

use super::check::{check_kv, check_program};
use super::layout::Layout;
use super::matmul::{MatMulPhase, Source};
use super::phase::{AttentionPhase, LayerRef, Phase, RopeWrite, ValueRef};
use crate::CpuWeight;
use crate::attention::tile::LayerKv;
use crate::memory::CpuBuffer;
use crate::ops::elementwise::ElementOp;
use crate::ops::norm::NormWeights;
use crate::ops::rope::{QkNormWeights, Rope, RopeFrequencies};
use crate::weights::PackedWeight;
use kvant_device::{
    ArenaPlan, Attention, DeviceError, KvBinding, Node, Norm, Op, Program, QkNorm, QkRope, ValueId,
    WeightId,
};
use std::sync::Arc;

/// The arena plan of a program's phases.
pub(crate) fn plan_arena(program: &Program) -> ArenaPlan {
    let mut nodes = program.nodes.clone();
    for at in 1..nodes.len() {
        if folds_into_attention(program, at - 1) || folds_into_product(program, at - 1) {
            // What the folded node reads and writes lives as long as the node it went into runs, even
            // a sum that nobody reads: it must not land in the slot of that node's output.
            let (inputs, outputs) = (nodes[at - 1].inputs.clone(), nodes[at - 1].outputs.clone());
            nodes[at].inputs.extend(inputs.into_iter().chain(outputs));
        }
    }
    ArenaPlan::new(&nodes, &program.values, &program.outputs)
}

/// Whether node `at` is a `RopeWriteKv` whose queries only the next node, the attention of the same
/// layer, reads.
fn folds_into_attention(program: &Program, at: usize) -> bool {
    let (Some(node), Some(next)) = (program.nodes.get(at), program.nodes.get(at + 1)) else {
        return false;
    };
    let (Op::RopeWriteKv { layer, rope }, Op::PagedAttention(attention)) = (&node.op, &next.op)
    else {
        return false;
    };
    let q = node.outputs[0];
    *layer == attention.layer
        && rope.heads == attention.heads
        && next.inputs[0] == q
        && !program.outputs.contains(&q)
        && program.nodes[at + 2..]
            .iter()
            .all(|n| !n.inputs.contains(&q))
}

/// Whether node `at` is a norm whose result only the next node, a product, reads.
fn folds_into_product(program: &Program, at: usize) -> bool {
    let (Some(node), Some(next)) = (program.nodes.get(at), program.nodes.get(at + 1)) else {
        return false;
    };
    let normed = match &node.op {
        Op::Norm(_) => node.outputs[0],
        // The sum is written while the product runs, so the product must not read it.
        Op::AddNorm { .. } if !next.inputs.contains(&node.outputs[0]) => node.outputs[1],
        _ => return false,
    };
    matches!(next.op, Op::MatMul { .. })
        && next.inputs[0] == normed
        && next.inputs.iter().filter(|id| **id == normed).count() == 1
        && !program.outputs.contains(&normed)
        && program.nodes[at + 2..]
            .iter()
            .all(|n| !n.inputs.contains(&normed))
}

/// Makes the phases of a program that has been checked.
pub(crate) fn lower(
    program: &Program,
    weights: &[CpuWeight],
    kv: &KvBinding<CpuBuffer>,
    arena: &ArenaPlan,
    layout: &Layout,
) -> Vec<Phase> {
    let lowering = Lowering {
        program,
        weights,
        kv,
        arena,
        layout,
    };
    let mut phases = Vec::new();
    for at in 0..program.nodes.len() {
        lowering.node(at, &mut phases);
    }
    phases
}

/// Everything that [`lower`] and the kernels take for granted.
pub(crate) fn check(
    program: &Program,
    weights: &[CpuWeight],
    kv: &KvBinding<CpuBuffer>,
) -> Result<(), DeviceError> {
    check_program(program, weights)?;
    check_kv(program, kv)
}

struct Lowering<'a> {
    program: &'a Program,
    weights: &'a [CpuWeight],
    kv: &'a KvBinding<CpuBuffer>,
    arena: &'a ArenaPlan,
    layout: &'a Layout,
}

impl Lowering<'_> {
    fn value(&self, id: ValueId) -> ValueRef {
        let desc = self.program.value(id);
        ValueRef {
            offset: self.layout.slots[self.arena.slot_of(id).0 as usize],
            width: desc.width,
            rows: desc.rows,
        }
    }

    fn matrix(&self, id: WeightId) -> PackedWeight {
        match &self.weights[id.0 as usize] {
            CpuWeight::Matrix(matrix) => matrix.clone(),
            CpuWeight::Vector(_) => unreachable!("checked by `check_program`"),
        }
    }

    fn vector(&self, id: WeightId) -> Arc<[f32]> {
        match &self.weights[id.0 as usize] {
            CpuWeight::Vector(vector) => vector.clone(),
            CpuWeight::Matrix(_) => unreachable!("checked by `check_program`"),
        }
    }

    fn norm(&self, norm: &Norm) -> NormWeights {
        NormWeights {
            kind: norm.kind,
            weight: self.vector(norm.weight),
            eps: norm.eps,
        }
    }

    fn rope(&self, rope: &QkRope) -> Rope {
        Rope {
            heads: rope.heads,
            norm: rope.norm.as_ref().map(|norm| match norm {
                QkNorm::PerHead { q, k } => QkNormWeights::PerHead {
                    q: self.norm(q),
                    k: self.norm(k),
                },
                QkNorm::Whole { q, k } => QkNormWeights::Whole {
                    q: self.norm(q),
                    k: self.norm(k),
                },
            }),
            style: rope.style,
            rotary_dim: rope.rotary_dim,
        }
    }

    fn layer(&self, layer: usize) -> LayerRef {
        let binding = &self.kv.layers[layer];
        let base = self.kv.buffer.as_ptr();
        LayerRef {
            kv: LayerKv {
                k_format: binding.k_format,
                v_format: binding.v_format,
                // In bounds: `check_kv`.
                keys: base.wrapping_add(binding.k_offset),
                values: base.wrapping_add(binding.v_offset),
                k_block_bytes: binding.k_block_bytes,
                v_block_bytes: binding.v_block_bytes,
            },
            group: self.program.kv_layers[layer].group,
        }
    }

    fn rope_write(&self, node: &Node, layer: usize, rope: &QkRope) -> RopeWrite {
        RopeWrite {
            rope: self.rope(rope),
            layer: self.layer(layer),
            qkv: self.value(node.inputs[0]),
            table: self.value(node.inputs[1]),
        }
    }

    fn node(&self, at: usize, phases: &mut Vec<Phase>) {
        let node = &self.program.nodes[at];
        if folds_into_product(self.program, at) {
            return;
        }
        let input = |i: usize| self.value(node.inputs[i]);
        let output = |i: usize| self.value(node.outputs[i]);
        let elementwise = |op, b| Phase::Elementwise {
            op,
            a: input(0),
            b,
            out: output(0),
        };
        let phase = match &node.op {
            Op::CopyBlocks => Phase::CopyBlocks,
            Op::Embed { table, scale } => Phase::Embed {
                table: self.matrix(*table),
                scale: *scale,
                out: output(0),
            },
            Op::RopeTable(spec) => Phase::RopeTable {
                frequencies: RopeFrequencies::new(spec),
                out: output(0),
            },
            Op::Norm(norm) => Phase::Norm {
                norm: self.norm(norm),
                x: input(0),
                out: output(0),
            },
            Op::AddNorm { post, scale, pre } => Phase::AddNorm {
                post: post.as_ref().map(|n| self.norm(n)),
                scale: *scale,
                pre: self.norm(pre),
                x: input(0),
                y: input(1),
                sum: output(0),
                normed: output(1),
            },
            Op::Add { scale } => elementwise(ElementOp::Add { scale: *scale }, Some(input(1))),
            Op::GatedAct { activation } => elementwise(ElementOp::Gated(*activation), None),
            Op::Scale { factor } => elementwise(ElementOp::Scale { factor: *factor }, None),
            Op::Softcap { cap } => elementwise(ElementOp::Softcap { cap: *cap }, None),
            Op::GatherRows => Phase::GatherRows {
                x: input(0),
                out: output(0),
            },
            Op::QkNormRope(rope) => Phase::QkNormRope {
                rope: self.rope(rope),
                qkv: input(0),
                table: input(1),
                out: output(0),
            },
            Op::WriteKv { layer, heads } => Phase::WriteKv {
                layer: self.layer(*layer),
                heads: *heads,
                qkv: input(0),
            },
            Op::RopeWriteKv { layer, rope } => Phase::RopeWriteKv {
                rope: self.rope_write(node, *layer, rope),
                q: output(0),
                fused: folds_into_attention(self.program, at),
            },
            Op::PagedAttention(attention) => {
                let phase = self.attention(at, attention);
                let merge = Phase::MergeAttention {
                    heads: attention.heads,
                    plan: phase.plan,
                    out: phase.out,
                };
                phases.push(Phase::Attention(phase));
                merge
            }
            Op::MatMul {
                weights,
                biases,
                epilogue,
            } => {
                phases.push(Phase::Prepare);
                Phase::MatMul(MatMulPhase {
                    weights: weights.iter().map(|w| self.matrix(*w)).collect(),
                    biases: biases.iter().map(|b| b.map(|b| self.vector(b))).collect(),
                    epilogue: *epilogue,
                    source: self.source(at),
                    x: input(0),
                    residual: node.inputs.get(1).map(|id| self.value(*id)),
                    out: output(0),
                })
            }
        };
        phases.push(phase);
    }

    /// Where the input of the product at node `at` comes from.
    fn source(&self, at: usize) -> Source {
        let Some(before) = at
            .checked_sub(1)
            .filter(|&b| folds_into_product(self.program, b))
            .map(|b| &self.program.nodes[b])
        else {
            return Source::Value;
        };
        match &before.op {
            Op::Norm(norm) => Source::Norm {
                norm: self.norm(norm),
                from: self.value(before.inputs[0]),
            },
            Op::AddNorm { post, scale, pre } => Source::AddNorm {
                post: post.as_ref().map(|n| self.norm(n)),
                scale: *scale,
                pre: self.norm(pre),
                a: self.value(before.inputs[0]),
                b: self.value(before.inputs[1]),
                sum: self.value(before.outputs[0]),
            },
            _ => unreachable!("only norms fold into products"),
        }
    }

    fn attention(&self, at: usize, attention: &Attention) -> AttentionPhase {
        let node = &self.program.nodes[at];
        let plan = self
            .layout
            .plans
            .iter()
            .position(|(k, _)| k.heads == attention.heads && k.window == attention.window)
            .unwrap_or_else(|| unreachable!("the layout has a plan for every attention"));
        let before = at
            .checked_sub(1)
            .filter(|&b| folds_into_attention(self.program, b))
            .map(|b| &self.program.nodes[b]);
        let rope = before.map(|before| match &before.op {
            Op::RopeWriteKv { layer, rope } => self.rope_write(before, *layer, rope),
            _ => unreachable!("only RopeWriteKv folds into attention"),
        });
        AttentionPhase {
            attention: *attention,
            layer: self.layer(attention.layer),
            plan,
            q: self.value(node.inputs[0]),
            out: self.value(node.outputs[0]),
            rope,
        }
    }
}
