//! What the kernels take for granted about a program, checked once when it is prepared.

use crate::CpuWeight;
use crate::memory::CpuBuffer;
use kvant_device::{
    DeviceError, Epilogue, HeadShape, KvBinding, Node, Norm, Op, Program, QkNorm, QkRope, Rows,
    ValueDesc, WeightId,
};

type Check = Result<(), &'static str>;

/// Shapes, weights and the order of values.
pub(crate) fn check_program(program: &Program, weights: &[CpuWeight]) -> Result<(), DeviceError> {
    if weights.len() != program.weights.len() {
        return Err(DeviceError::Program {
            node: 0,
            op: "weights",
            why: "weights bound and declared differ in number",
        });
    }
    let mut written = vec![false; program.values.len()];
    for (at, node) in program.nodes.iter().enumerate() {
        let error = |why| DeviceError::Program {
            node: at,
            op: node.op.name(),
            why,
        };
        for input in &node.inputs {
            if written.get(input.0 as usize) != Some(&true) {
                return Err(error("an input is not written before"));
            }
        }
        for output in &node.outputs {
            match written.get_mut(output.0 as usize) {
                Some(done) if !*done => *done = true,
                _ => return Err(error("an output is unknown or written twice")),
            }
        }
        Checker {
            program,
            weights,
            node,
        }
        .check()
        .map_err(error)?;
    }
    if program
        .outputs
        .iter()
        .any(|id| written.get(id.0 as usize) != Some(&true))
    {
        return Err(DeviceError::Program {
            node: program.nodes.len(),
            op: "outputs",
            why: "an output of the program is never written",
        });
    }
    Ok(())
}

/// Whether heads make sense.
pub(crate) fn check_heads(heads: &HeadShape) -> Check {
    if heads.n_kv_heads == 0 || !heads.n_heads.is_multiple_of(heads.n_kv_heads) {
        return Err("query heads are not a multiple of key heads");
    }
    if heads.n_heads == 0 || heads.head_dim == 0 || heads.v_head_dim == 0 {
        return Err("heads are empty");
    }
    Ok(())
}

/// Whether a rotation makes sense.
pub(crate) fn check_rope(rope: &QkRope) -> Check {
    check_heads(&rope.heads)?;
    if !rope.rotary_dim.is_multiple_of(2) || rope.rotary_dim > rope.heads.head_dim {
        return Err("the rotary dimension is odd or larger than a head");
    }
    Ok(())
}

struct Checker<'a> {
    program: &'a Program,
    weights: &'a [CpuWeight],
    node: &'a Node,
}

fn ensure(holds: bool, why: &'static str) -> Check {
    if holds { Ok(()) } else { Err(why) }
}

impl Checker<'_> {
    fn input(&self, i: usize) -> ValueDesc {
        self.program.value(self.node.inputs[i])
    }

    fn output(&self, i: usize) -> ValueDesc {
        self.program.value(self.node.outputs[i])
    }

    fn counts(&self, inputs: usize, outputs: usize) -> Check {
        ensure(
            self.node.inputs.len() == inputs && self.node.outputs.len() == outputs,
            "wrong number of inputs or outputs",
        )
    }

    fn shape(&self, value: ValueDesc, rows: Rows, width: usize) -> Check {
        ensure(
            value.rows == rows && value.width == width,
            "a value has another shape",
        )
    }

    fn norm(&self, norm: &Norm, width: usize) -> Check {
        self.vector(norm.weight, width)
    }

    fn vector(&self, id: WeightId, width: usize) -> Check {
        match self.weights.get(id.0 as usize) {
            Some(CpuWeight::Vector(v)) => ensure(v.len() == width, "a vector has another length"),
            _ => Err("a vector is missing or was loaded as a matrix"),
        }
    }

    /// Shape of a matrix.
    fn matrix(&self, id: WeightId) -> Result<(usize, usize), &'static str> {
        match self.weights.get(id.0 as usize) {
            Some(CpuWeight::Matrix(m)) => {
                let decl = self.program.weight(id);
                ensure(
                    m.n() == decl.n_rows && m.k() == decl.n_cols && m.format() == decl.format,
                    "a weight is not what the program declares",
                )?;
                Ok((m.n(), m.k()))
            }
            _ => Err("a matrix is missing or was loaded as a vector"),
        }
    }

    fn rope(&self, rope: &QkRope) -> Check {
        check_rope(rope)?;
        self.shape(self.input(0), Rows::Tokens, rope.heads.qkv_width())?;
        self.shape(self.input(1), Rows::Tokens, rope.rotary_dim)?;
        match &rope.norm {
            None => Ok(()),
            Some(QkNorm::PerHead { q, k }) => {
                self.norm(q, rope.heads.head_dim)?;
                self.norm(k, rope.heads.head_dim)
            }
            Some(QkNorm::Whole { q, k }) => {
                self.norm(q, rope.heads.q_width())?;
                self.norm(k, rope.heads.k_width())
            }
        }
    }

    fn layer(&self, layer: usize, heads: &HeadShape) -> Check {
        check_heads(heads)?;
        match self.program.kv_layers.get(layer) {
            Some(decl) => ensure(
                decl.n_kv_heads == heads.n_kv_heads
                    && decl.head_dim == heads.head_dim
                    && decl.v_head_dim == heads.v_head_dim,
                "the layer has other heads",
            ),
            None => Err("there is no such KV layer"),
        }
    }

    fn check(&self) -> Check {
        let like_input = |c: &Self| c.shape(c.output(0), c.input(0).rows, c.input(0).width);
        match &self.node.op {
            Op::CopyBlocks => self.counts(0, 0),
            Op::Embed { table, .. } => {
                self.counts(0, 1)?;
                let (_, width) = self.matrix(*table)?;
                self.shape(self.output(0), Rows::Tokens, width)
            }
            Op::RopeTable(spec) => {
                self.counts(0, 1)?;
                ensure(spec.rotary_dim.is_multiple_of(2), "an odd rotary dimension")?;
                self.shape(self.output(0), Rows::Tokens, spec.rotary_dim)
            }
            Op::Norm(norm) => {
                self.counts(1, 1)?;
                self.norm(norm, self.input(0).width)?;
                like_input(self)
            }
            Op::Add { .. } => {
                self.counts(2, 1)?;
                self.shape(self.input(1), self.input(0).rows, self.input(0).width)?;
                like_input(self)
            }
            Op::AddNorm { post, pre, .. } => {
                self.counts(2, 2)?;
                let ValueDesc { rows, width } = self.input(0);
                for value in [self.input(1), self.output(0), self.output(1)] {
                    self.shape(value, rows, width)?;
                }
                for norm in post.iter().chain([pre]) {
                    self.norm(norm, width)?;
                }
                Ok(())
            }
            Op::GatedAct { .. } => {
                self.counts(1, 1)?;
                let out = self.output(0);
                self.shape(self.input(0), out.rows, 2 * out.width)
            }
            Op::Scale { .. } | Op::Softcap { .. } => {
                self.counts(1, 1)?;
                like_input(self)
            }
            Op::GatherRows => {
                self.counts(1, 1)?;
                ensure(
                    self.input(0).rows == Rows::Tokens,
                    "the input has no token rows",
                )?;
                self.shape(self.output(0), Rows::Outputs, self.input(0).width)
            }
            Op::QkNormRope(rope) => {
                self.counts(2, 1)?;
                self.rope(rope)?;
                like_input(self)
            }
            Op::WriteKv { layer, heads } => {
                self.counts(1, 0)?;
                self.layer(*layer, heads)?;
                self.shape(self.input(0), Rows::Tokens, heads.qkv_width())
            }
            Op::RopeWriteKv { layer, rope } => {
                self.counts(2, 1)?;
                self.rope(rope)?;
                self.layer(*layer, &rope.heads)?;
                self.shape(self.output(0), Rows::Tokens, rope.heads.q_width())
            }
            Op::PagedAttention(a) => {
                self.counts(1, 1)?;
                self.layer(a.layer, &a.heads)?;
                ensure(a.window != Some(0), "the window is empty")?;
                let q = self.input(0);
                ensure(
                    q.rows == Rows::Tokens && q.width >= a.heads.q_width(),
                    "the queries have another shape",
                )?;
                let width = a.heads.n_heads * a.heads.v_head_dim;
                self.shape(self.output(0), Rows::Tokens, width)
            }
            Op::MatMul {
                weights,
                biases,
                epilogue,
            } => self.matmul(weights, biases, *epilogue),
        }
    }

    fn matmul(
        &self,
        weights: &[WeightId],
        biases: &[Option<WeightId>],
        epilogue: Epilogue,
    ) -> Check {
        let with_residual = matches!(epilogue, Epilogue::Residual { .. });
        self.counts(1 + usize::from(with_residual), 1)?;
        ensure(
            !weights.is_empty() && weights.len() == biases.len(),
            "weights and biases differ in number",
        )?;
        let ValueDesc { rows, width } = self.input(0);
        let mut heights = Vec::new();
        for (weight, bias) in weights.iter().zip(biases) {
            let (n, k) = self.matrix(*weight)?;
            ensure(k == width, "a weight has another number of columns")?;
            if let Some(bias) = bias {
                self.vector(*bias, n)?;
            }
            heights.push(n);
        }
        let out = match epilogue {
            Epilogue::Gated(_) => {
                ensure(
                    heights.len() == 2 && heights[0] == heights[1],
                    "a gated product needs two weights of one shape",
                )?;
                heights[0]
            }
            Epilogue::Store | Epilogue::Residual { .. } => heights.iter().sum(),
        };
        if with_residual {
            self.shape(self.input(1), rows, out)?;
        }
        self.shape(self.output(0), rows, out)
    }
}

/// Whether every layer's blocks lie in the buffer, aligned for their format.
pub(crate) fn check_kv(program: &Program, kv: &KvBinding<CpuBuffer>) -> Result<(), DeviceError> {
    let error = |why| DeviceError::Program {
        node: 0,
        op: "WriteKv",
        why,
    };
    if kv.layers.len() != program.kv_layers.len() {
        return Err(error("a KV layer is not bound"));
    }
    for (binding, decl) in kv.layers.iter().zip(&program.kv_layers) {
        let n_blocks = *kv
            .n_blocks
            .get(decl.group)
            .ok_or_else(|| error("a KV layer's group has no pool"))?;
        for (format, head_dim, offset, block_bytes) in [
            (
                binding.k_format,
                decl.head_dim,
                binding.k_offset,
                binding.k_block_bytes,
            ),
            (
                binding.v_format,
                decl.v_head_dim,
                binding.v_offset,
                binding.v_block_bytes,
            ),
        ] {
            let least = format
                .block_bytes(decl.n_kv_heads, head_dim)
                .ok_or_else(|| error("the size of a block overflows"))?;
            let align = format.align_bytes();
            if block_bytes < least
                || !block_bytes.is_multiple_of(align)
                || !offset.is_multiple_of(align)
            {
                return Err(error("blocks are too small or misaligned"));
            }
            let end = n_blocks
                .checked_mul(block_bytes)
                .and_then(|bytes| bytes.checked_add(offset));
            if end.is_none_or(|end| end > kv.buffer.len()) {
                return Err(error("blocks lie beyond the buffer"));
            }
        }
    }
    Ok(())
}
