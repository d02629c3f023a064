//! A program: nodes in order, the shape of every value, the weights and KV layers it reads.

use crate::arena::ArenaPlan;
use crate::op::Op;
use kvant_quant::WeightFormat;
use smallvec::SmallVec;
use std::fmt;

/// Names a value of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// Names a weight of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// How many rows a value has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One a token of the step (`T`).
    Tokens,
    /// One a row whose logits are asked for (`O`).
    Outputs,
}

/// Shape of a value: `f32 [rows, width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueDesc {
    /// Symbolic number of rows.
    pub rows: Rows,
    /// Elements a row.
    pub width: usize,
}

/// A weight as a program sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightDecl {
    /// Name for dumps and errors, the tensor's name in its file.
    pub name: String,
    /// Element format in the file.
    pub format: WeightFormat,
    /// Output rows; 1 for a vector.
    pub n_rows: usize,
    /// Input columns.
    pub n_cols: usize,
}

/// A layer's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayerDecl {
    /// The KV group, that is which block table the layer uses.
    pub group: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub v_head_dim: usize,
}

/// An op with its inputs and outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What is done.
    pub op: Op,
    /// Values read.
    pub inputs: SmallVec<[ValueId; 2]>,
    /// Values written.
    pub outputs: SmallVec<[ValueId; 2]>,
}

/// A graph after fusion, with a place for each value: all that a backend needs to prepare a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Ops in the order of execution.
    pub nodes: Vec<Node>,
    /// Shape of each value, by [`ValueId`].
    pub values: Vec<ValueDesc>,
    /// Each weight, by [`WeightId`].
    pub weights: Vec<WeightDecl>,
    /// Keys and values of each layer.
    pub kv_layers: Vec<KvLayerDecl>,
    /// Values that can be read after a step; the first is the logits `[O, vocab_size]` of a model.
    pub outputs: Vec<ValueId>,
    /// A slot for each value.
    pub arena: ArenaPlan,
}

impl Program {
    /// Plans the arena and joins the parts.
    pub fn new(
        nodes: Vec<Node>,
        values: Vec<ValueDesc>,
        weights: Vec<WeightDecl>,
        kv_layers: Vec<KvLayerDecl>,
        outputs: Vec<ValueId>,
    ) -> Self {
        let arena = ArenaPlan::new(&nodes, &values, &outputs);
        Self {
            nodes,
            values,
            weights,
            kv_layers,
            outputs,
            arena,
        }
    }

    /// The shape of a value.
    pub fn value(&self, id: ValueId) -> ValueDesc {
        self.values[id.0 as usize]
    }

    /// The declaration of a weight.
    pub fn weight(&self, id: WeightId) -> &WeightDecl {
        &self.weights[id.0 as usize]
    }
}

impl fmt::Display for ValueDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = match self.rows {
            Rows::Tokens => "T",
            Rows::Outputs => "O",
        };
        write!(f, "[{rows},{}]", self.width)
    }
}

impl fmt::Display for Program {
    /// One line a node: values with shape and slot, the op, its inputs, and the weights by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            for (i, &out) in node.outputs.iter().enumerate() {
                let comma = if i > 0 { ", " } else { "" };
                write!(
                    f,
                    "{comma}%{}{}@{}",
                    out.0,
                    self.value(out),
                    self.arena.slot_of(out).0
                )?;
            }
            if !node.outputs.is_empty() {
                f.write_str(" = ")?;
            }
            write!(f, "{}(", node.op.name())?;
            for (i, &input) in node.inputs.iter().enumerate() {
                write!(f, "{}%{}", if i > 0 { ", " } else { "" }, input.0)?;
            }
            writeln!(
                f,
                "){}",
                OpDetails {
                    op: &node.op,
                    program: self
                }
            )?;
        }
        write!(f, "return")?;
        for out in &self.outputs {
            write!(f, " %{}", out.0)?;
        }
        writeln!(f)
    }
}

struct OpDetails<'a> {
    op: &'a Op,
    program: &'a Program,
}

impl fmt::Display for OpDetails<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: WeightId| {
            let w = self.program.weight(id);
            format!("{}:{}[{},{}]", w.name, w.format, w.n_rows, w.n_cols)
        };
        match self.op {
            Op::Embed { table, scale } => write!(f, " {} scale={scale}", name(*table)),
            Op::Norm(norm) => write!(f, " {:?} {} eps={}", norm.kind, name(norm.weight), norm.eps),
            Op::AddNorm { post, scale, pre } => {
                if let Some(post) = post {
                    write!(f, " post={}", name(post.weight))?;
                }
                write!(
                    f,
                    " scale={scale} {:?} {} eps={}",
                    pre.kind,
                    name(pre.weight),
                    pre.eps
                )
            }
            Op::MatMul {
                weights,
                biases,
                epilogue,
            } => {
                for (weight, bias) in weights.iter().zip(biases) {
                    write!(f, " {}", name(*weight))?;
                    if let Some(bias) = bias {
                        write!(f, "+{}", self.program.weight(*bias).name)?;
                    }
                }
                write!(f, " {epilogue:?}")
            }
            Op::WriteKv { layer, .. } => write!(f, " layer={layer}"),
            Op::RopeWriteKv { layer, rope } => {
                write!(
                    f,
                    " layer={layer} {:?} rotary_dim={}",
                    rope.style, rope.rotary_dim
                )
            }
            Op::QkNormRope(rope) => write!(f, " {:?} rotary_dim={}", rope.style, rope.rotary_dim),
            Op::PagedAttention(a) => {
                write!(
                    f,
                    " layer={} heads={}/{} head_dim={}",
                    a.layer, a.heads.n_heads, a.heads.n_kv_heads, a.heads.head_dim
                )?;
                write!(f, " scale={}", a.scale)?;
                if let Some(window) = a.window {
                    write!(f, " window={window}")?;
                }
                if let Some(cap) = a.softcap {
                    write!(f, " softcap={cap}")?;
                }
                Ok(())
            }
            Op::RopeTable(rope) => {
                write!(f, " theta={} rotary_dim={}", rope.theta, rope.rotary_dim)
            }
            Op::Add { scale } => write!(f, " scale={scale}"),
            Op::GatedAct { activation } => write!(f, " {activation:?}"),
            Op::Scale { factor } => write!(f, " {factor}"),
            Op::Softcap { cap } => write!(f, " {cap}"),
            Op::GatherRows | Op::CopyBlocks => Ok(()),
        }
    }
}
