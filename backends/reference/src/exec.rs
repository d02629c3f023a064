//! Runs a program, node by node.

use crate::backend::{RefBuffer, RefWeight};
use crate::{attention, ops};
use kvant_device::{
    DeviceError, Epilogue, KvBinding, Node, Op, PrepareOptions, Program, QkRope, Rows, StepError,
    StepInput, ValueId, WeightId,
};

/// A prepared program: every value has its own memory.
#[derive(Debug)]
pub struct RefExec {
    program: Program,
    weights: Vec<RefWeight>,
    kv: KvBinding<RefBuffer>,
    options: PrepareOptions,
    windows: Vec<Option<usize>>,
    values: Vec<Vec<f32>>,
}

impl RefExec {
    pub(crate) fn new(
        program: Program,
        weights: Vec<RefWeight>,
        kv: KvBinding<RefBuffer>,
        options: PrepareOptions,
    ) -> Result<Self, DeviceError> {
        let mut windows = vec![None; program.kv_layers.len()];
        for node in &program.nodes {
            if let Op::PagedAttention(a) = &node.op {
                windows[a.layer] = a.window;
            }
        }
        let values = vec![Vec::new(); program.values.len()];
        Ok(Self {
            program,
            weights,
            kv,
            options,
            windows,
            values,
        })
    }

    /// Output `index` after the last step.
    pub(crate) fn output(&self, index: usize) -> &[f32] {
        self.value(self.program.outputs[index])
    }

    fn value(&self, id: ValueId) -> &[f32] {
        &self.values[id.0 as usize]
    }

    fn weight(&self, id: WeightId) -> &RefWeight {
        &self.weights[id.0 as usize]
    }

    pub(crate) fn run(&mut self, step: &StepInput<'_>) -> Result<(), DeviceError> {
        let vocab_size = self.program.nodes.iter().find_map(|n| match n.op {
            Op::Embed { table, .. } => Some(self.weight(table).n_rows),
            _ => None,
        });
        step.validate(
            vocab_size.unwrap_or(usize::MAX),
            &self.program.kv_layers,
            &self.windows,
            &self.kv.n_blocks,
        )?;
        let (n_tokens, n_outputs) = (step.tokens.len(), step.output_rows.len());
        if n_tokens > self.options.max_tokens || n_outputs > self.options.max_outputs {
            let (max_tokens, max_outputs) = (self.options.max_tokens, self.options.max_outputs);
            return Err(StepError::TooLarge {
                n_tokens,
                n_outputs,
                max_tokens,
                max_outputs,
            }
            .into());
        }
        for at in 0..self.program.nodes.len() {
            let node = self.program.nodes[at].clone();
            let results = self.eval(&node, step);
            for (id, result) in node.outputs.iter().zip(results) {
                let desc = self.program.value(*id);
                let rows = match desc.rows {
                    Rows::Tokens => n_tokens,
                    Rows::Outputs => n_outputs,
                };
                if result.len() != rows * desc.width {
                    let why = "an op made a value of another shape";
                    return Err(DeviceError::Program {
                        node: at,
                        op: node.op.name(),
                        why,
                    });
                }
                self.values[id.0 as usize] = result;
            }
        }
        Ok(())
    }

    fn eval(&self, node: &Node, step: &StepInput<'_>) -> Vec<Vec<f32>> {
        let input = |i: usize| self.value(node.inputs[i]);
        let width = |i: usize| self.program.value(node.inputs[i]).width;
        let norm = |x: &[f32], norm: &kvant_device::Norm, w: usize| {
            ops::norm(x, norm.kind, &self.weight(norm.weight).values, norm.eps, w)
        };
        match &node.op {
            Op::Embed { table, scale } => {
                let table = self.weight(*table);
                let row =
                    |&t: &u32| table.values[t as usize * table.n_cols..][..table.n_cols].iter();
                vec![
                    step.tokens
                        .iter()
                        .flat_map(row)
                        .map(|v| v * scale)
                        .collect(),
                ]
            }
            Op::RopeTable(spec) => vec![ops::rope_table(spec, step)],
            Op::Norm(n) => vec![norm(input(0), n, width(0))],
            Op::Add { scale } => vec![ops::add(input(0), input(1), *scale)],
            Op::AddNorm { post, scale, pre } => {
                let w = width(0);
                let sum = match post {
                    Some(post) => ops::add(input(0), &norm(input(1), post, w), *scale),
                    None => ops::add(input(0), input(1), *scale),
                };
                let normed = norm(&sum, pre, w);
                vec![sum, normed]
            }
            Op::MatMul {
                weights,
                biases,
                epilogue,
            } => {
                let parts: Vec<_> = weights
                    .iter()
                    .zip(biases)
                    .map(|(w, b)| (self.weight(*w), b.map(|b| self.weight(b).values.as_slice())))
                    .collect();
                let product = ops::matmul(input(0), width(0), &parts);
                vec![match epilogue {
                    Epilogue::Store => product,
                    Epilogue::Residual { scale } => ops::add(input(1), &product, *scale),
                    Epilogue::Gated(activation) => ops::gated(
                        &product,
                        parts.iter().map(|p| p.0.n_rows).sum(),
                        *activation,
                    ),
                }]
            }
            Op::GatedAct { activation } => vec![ops::gated(input(0), width(0), *activation)],
            Op::QkNormRope(rope) => vec![self.norm_rope(rope, input(0), input(1))],
            Op::WriteKv { layer, heads } => {
                attention::write_kv(
                    &self.kv,
                    &self.program.kv_layers,
                    *layer,
                    heads,
                    input(0),
                    step,
                );
                vec![]
            }
            Op::RopeWriteKv { layer, rope } => {
                let qkv = self.norm_rope(rope, input(0), input(1));
                attention::write_kv(
                    &self.kv,
                    &self.program.kv_layers,
                    *layer,
                    &rope.heads,
                    &qkv,
                    step,
                );
                let (q, all) = (rope.heads.q_width(), rope.heads.qkv_width());
                vec![
                    qkv.chunks_exact(all)
                        .flat_map(|row| row[..q].iter().copied())
                        .collect(),
                ]
            }
            Op::PagedAttention(a) => {
                vec![attention::attend(
                    &self.kv,
                    &self.program.kv_layers,
                    a,
                    input(0),
                    width(0),
                    step,
                )]
            }
            Op::GatherRows => {
                let w = width(0);
                let row = |&r: &u32| input(0)[r as usize * w..][..w].iter().copied();
                vec![step.output_rows.iter().flat_map(row).collect()]
            }
            Op::Scale { factor } => vec![input(0).iter().map(|x| x * factor).collect()],
            Op::Softcap { cap } => vec![input(0).iter().map(|x| cap * (x / cap).tanh()).collect()],
            Op::CopyBlocks => {
                attention::copy_blocks(&self.kv, &self.program.kv_layers, step);
                vec![]
            }
        }
    }

    fn norm_rope(&self, rope: &QkRope, qkv: &[f32], table: &[f32]) -> Vec<f32> {
        let norms = rope
            .norm
            .map(|norm| ops::QkNormWeights::new(norm, |id| &self.weight(id).values));
        ops::qk_norm_rope(rope, norms.as_ref(), qkv, table)
    }
}
