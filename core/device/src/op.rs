//! The closed list of ops. Shapes use `T` for the tokens of a step and `O` for the rows whose
//! logits are asked for; every activation is `f32`, row-major.

use crate::program::WeightId;
use smallvec::SmallVec;

/// One operation of a program. Inputs and outputs are named by the node that holds the op.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// `() -> [T, width]`: row `tokens[t]` of the table, times `scale`.
    Embed {
        /// Table of `[vocab_size, width]`.
        table: WeightId,
        /// Factor on every element.
        scale: f32,
    },
    /// `() -> [T, rotary_dim]`: for each token `rotary_dim / 2` cosines, then as many sines.
    RopeTable(RopeSpec),
    /// `[R, w] -> [R, w]`.
    Norm(Norm),
    /// `(a, b) -> a + scale * b`, all `[R, w]`.
    Add {
        /// Factor on the second input.
        scale: f32,
    },
    /// `(x, y) -> (s, n)` with `s = x + scale * post(y)` and `n = pre(s)`, all `[T, w]`.
    AddNorm {
        /// Norm of `y` before it is added, where the architecture has one.
        post: Option<Norm>,
        /// Factor on the added value.
        scale: f32,
        /// Norm of the sum.
        pre: Norm,
    },
    /// `[R, k] -> [R, n]`: the product with each weight `[n_i, k]`, side by side, then the epilogue.
    MatMul {
        /// Weights of `[n_i, k]`; more than one share the input.
        weights: SmallVec<[WeightId; 3]>,
        /// Bias `[n_i]` of each weight.
        biases: SmallVec<[Option<WeightId>; 3]>,
        /// What happens to the product before it is stored.
        epilogue: Epilogue,
    },
    /// `[R, 2f] -> [R, f]`: `activation(first half) * second half`.
    GatedAct {
        /// The activation.
        activation: Activation,
    },
    /// `(qkv, table) -> qkv`, both `[T, (n_heads + n_kv_heads) * head_dim + n_kv_heads * v_head_dim]`:
    /// queries and keys normed and rotated, values as they are.
    QkNormRope(QkRope),
    /// `qkv -> ()`: writes keys and values of every token to its slot in the layer's open blocks.
    WriteKv {
        /// The layer.
        layer: usize,
        /// Heads of `qkv`.
        heads: HeadShape,
    },
    /// `(qkv, table) -> q [T, n_heads * head_dim]`: [`Op::QkNormRope`] and [`Op::WriteKv`] in one.
    RopeWriteKv {
        /// The layer.
        layer: usize,
        /// Norms and rotation.
        rope: QkRope,
    },
    /// `q -> [T, n_heads * v_head_dim]`; `q` is `[T, >= n_heads * head_dim]`, of which the first
    /// columns are read. Attends to the layer's blocks, causally.
    PagedAttention(Attention),
    /// `[T, w] -> [O, w]`: the rows named by the step.
    GatherRows,
    /// `x -> factor * x`, `[R, w]`.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// `x -> cap * tanh(x / cap)`, `[R, w]`.
    Softcap {
        /// The cap, above zero.
        cap: f32,
    },
    /// `() -> ()`: carries out the step's block copies in every layer.
    CopyBlocks,
}

/// A norm over the last dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// RMS or mean and variance.
    pub kind: NormKind,
    /// Factors, as long as the normed width.
    pub weight: WeightId,
    /// Added to the mean square (or variance).
    pub eps: f32,
}

/// Which statistics a norm uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + eps) * weight` (Zhang and Sennrich 2019).
    Rms,
    /// `(x - mean) / sqrt(var + eps) * weight` (Ba et al. 2016), without bias.
    Layer,
}

/// What a matmul does to its product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Epilogue {
    /// Stores it.
    Store,
    /// `(x, residual) -> residual + scale * product`.
    Residual {
        /// Factor on the product.
        scale: f32,
    },
    /// Two weights of equal shape `[f, k]`: stores `activation(w0 x) * (w1 x)`, `[R, f]`.
    Gated(Activation),
}

/// The activation of a gated feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
    /// `0.5 x (1 + erf(x / sqrt 2))`.
    Gelu,
}

/// Heads of a concatenated `qkv` row: `n_heads * head_dim` query columns, `n_kv_heads * head_dim` key
/// columns, `n_kv_heads * v_head_dim` value columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeadShape {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Width of a query or key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub v_head_dim: usize,
}

impl HeadShape {
    /// Columns of the queries.
    pub const fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }
    /// Columns of the keys.
    pub const fn k_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }
    /// Columns of the values.
    pub const fn v_width(&self) -> usize {
        self.n_kv_heads * self.v_head_dim
    }
    /// Columns of queries, keys and values together.
    pub const fn qkv_width(&self) -> usize {
        self.q_width() + self.k_width() + self.v_width()
    }
}

/// Norms of queries and keys before rotation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QkNorm {
    /// Each head apart; weights `[head_dim]`.
    PerHead {
        /// Norm of each query head.
        q: Norm,
        /// Norm of each key head.
        k: Norm,
    },
    /// All heads of a token as one row; weights `[n_heads * head_dim]` and `[n_kv_heads * head_dim]`.
    Whole {
        /// Norm of all query columns.
        q: Norm,
        /// Norm of all key columns.
        k: Norm,
    },
}

/// Norm and rotation of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QkRope {
    /// Heads of the input row.
    pub heads: HeadShape,
    /// Norms before rotation.
    pub norm: Option<QkNorm>,
    /// Which elements rotate together.
    pub style: RopeStyle,
    /// Leading elements of each head that rotate; even.
    pub rotary_dim: usize,
}

/// Which two elements of a head form a rotated pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// `(j, j + rotary_dim / 2)`: Hugging Face checkpoints, and GGUF of all but the llama family.
    Half,
    /// `(2j, 2j + 1)`: GGUF of the llama family, whose converter permutes the rows.
    Adjacent,
}

/// The angles of rotary position embedding (Su et al. 2021): token at position `p` turns pair `j`
/// by `p * theta^(-2j / rotary_dim)`, with the changes that `scaling` makes.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    /// Rotated elements a head; even.
    pub rotary_dim: usize,
    /// Base of the frequencies.
    pub theta: f32,
    /// Change of the frequencies for long contexts.
    pub scaling: RopeScaling,
}

/// How frequencies are changed for contexts longer than those of training.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// As they are.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// The divisor.
        factor: f32,
    },
    /// Frequency `j` divided by `factors[j]` (`rope_freqs.weight`, or Llama 3's rule worked out).
    Factors {
        /// One divisor a pair.
        factors: Vec<f32>,
    },
    /// Two sets of divisors (LongRoPE, Ding et al. 2024), and a factor on cosine and sine.
    Long {
        /// Divisors while the sequence is no longer than `original_context`.
        short_factors: Vec<f32>,
        /// Divisors beyond it.
        long_factors: Vec<f32>,
        /// Context length of training, in tokens.
        original_context: usize,
        /// Factor on cosine and sine.
        attention_factor: f32,
    },
    /// YaRN (Peng et al. 2023), frequencies worked out, and a factor on cosine and sine.
    Yarn {
        /// One divisor a pair.
        factors: Vec<f32>,
        /// Factor on cosine and sine.
        attention_factor: f32,
    },
}

impl RopeSpec {
    /// Angular frequency of each pair for a sequence of `total_len` tokens, radians a token,
    /// `[rotary_dim / 2]`, in f64.
    pub fn frequencies(&self, total_len: usize) -> Vec<f64> {
        let half = self.rotary_dim / 2;
        let divisor = |j: usize| -> f64 {
            match &self.scaling {
                RopeScaling::None => 1.0,
                RopeScaling::Linear { factor } => f64::from(*factor),
                RopeScaling::Factors { factors } | RopeScaling::Yarn { factors, .. } => {
                    f64::from(factors[j])
                }
                RopeScaling::Long {
                    short_factors,
                    long_factors,
                    original_context,
                    ..
                } => f64::from(if total_len > *original_context {
                    long_factors[j]
                } else {
                    short_factors[j]
                }),
            }
        };
        (0..half)
            .map(|j| {
                f64::from(self.theta).powf(-2.0 * j as f64 / self.rotary_dim as f64) / divisor(j)
            })
            .collect()
    }

    /// Factor on cosine and sine.
    pub fn attention_factor(&self) -> f32 {
        match self.scaling {
            RopeScaling::Long {
                attention_factor, ..
            }
            | RopeScaling::Yarn {
                attention_factor, ..
            } => attention_factor,
            _ => 1.0,
        }
    }

    /// Whether the frequencies depend on the length of the sequence.
    pub fn depends_on_length(&self) -> bool {
        matches!(self.scaling, RopeScaling::Long { .. })
    }
}

/// Attention of one layer over its blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// The layer whose blocks are read.
    pub layer: usize,
    /// Heads.
    pub heads: HeadShape,
    /// Factor on `q · k`.
    pub scale: f32,
    /// `cap * tanh(score / cap)` on scaled scores before the mask (Gemma 2).
    pub softcap: Option<f32>,
    /// Token `i` sees `j` with `i - window < j <= i`; all `j <= i` when absent.
    pub window: Option<usize>,
}

impl Op {
    /// The op's name in dumps, errors and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embed { .. } => "Embed",
            Self::RopeTable(_) => "RopeTable",
            Self::Norm(_) => "Norm",
            Self::Add { .. } => "Add",
            Self::AddNorm { .. } => "AddNorm",
            Self::MatMul { .. } => "MatMul",
            Self::GatedAct { .. } => "GatedAct",
            Self::QkNormRope(_) => "QkNormRope",
            Self::WriteKv { .. } => "WriteKv",
            Self::RopeWriteKv { .. } => "RopeWriteKv",
            Self::PagedAttention(_) => "PagedAttention",
            Self::GatherRows => "GatherRows",
            Self::Scale { .. } => "Scale",
            Self::Softcap { .. } => "Softcap",
            Self::CopyBlocks => "CopyBlocks",
        }
    }
}
