//! A model architecture as plain data.

use kvant_device::{Activation, NormKind, RopeSpec, RopeStyle};

/// Everything that [`crate::build_graph`] needs to know of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// Name of the architecture, as in [`crate::known_architectures`].
    pub architecture: &'static str,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Context length of training, in tokens.
    pub context_length: usize,
    /// Factor on embeddings.
    pub embedding_scale: f32,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// Statistics of every norm.
    pub norm_kind: NormKind,
    /// Added to the mean square in every norm.
    pub norm_eps: f32,
    /// Whether the embedding table is also the output matrix.
    pub tied_embeddings: bool,
    /// Factor on logits.
    pub logit_scale: f32,
    /// `cap * tanh(logit / cap)` on logits.
    pub logit_softcap: Option<f32>,
    /// Rotary embeddings that layers choose from by index.
    pub ropes: Vec<RopeSpec>,
    /// KV groups: the attention window of each, `None` for all tokens.
    pub kv_groups: Vec<Option<usize>>,
}

/// One layer: attention, then a gated feed-forward part, each with its norms and residual.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSpec {
    /// The attention part.
    pub attention: AttentionSpec,
    /// The feed-forward part.
    pub ffn: FfnSpec,
    /// Which norms there are.
    pub norms: NormPlacement,
    /// Factor on what is added to the residual stream.
    pub residual_scale: f32,
}

/// Attention of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a query or key head.
    pub head_dim: usize,
    /// Width of a value head.
    pub v_head_dim: usize,
    /// Factor on `q · k`.
    pub scale: f32,
    /// Soft cap on scores.
    pub softcap: Option<f32>,
    /// Norms of queries and keys.
    pub qk_norm: QkNormSpec,
    /// Biases on queries, keys and values.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub output_bias: bool,
    /// Index into [`ModelSpec::ropes`].
    pub rope: usize,
    /// Which elements rotate together.
    pub rope_style: RopeStyle,
    /// Index into [`ModelSpec::kv_groups`], which also gives the window.
    pub kv_group: usize,
}

/// Norms of queries and keys before rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNormSpec {
    /// None.
    None,
    /// Each head apart.
    PerHead,
    /// All heads of a token as one row.
    Whole,
}

/// A gated feed-forward part: `down(activation(gate x) * (up x))`.
#[derive(Debug, Clone, PartialEq)]
pub struct FfnSpec {
    /// Inner width.
    pub d_ff: usize,
    /// The activation.
    pub activation: Activation,
    /// Biases on all three matrices.
    pub bias: bool,
}

/// Which norms a layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NormPlacement {
    /// Before attention.
    pub pre_attention: bool,
    /// On the output of attention, before it is added.
    pub post_attention: bool,
    /// Before the feed-forward part.
    pub pre_ffn: bool,
    /// On the output of the feed-forward part, before it is added.
    pub post_ffn: bool,
}

impl NormPlacement {
    /// Before each part (Llama and most others).
    pub const PRE: Self = Self {
        pre_attention: true,
        post_attention: false,
        pre_ffn: true,
        post_ffn: false,
    };
    /// After each part (OLMo 2).
    pub const POST: Self = Self {
        pre_attention: false,
        post_attention: true,
        pre_ffn: false,
        post_ffn: true,
    };
    /// Before and after each part (Gemma 2 and 3).
    pub const SANDWICH: Self = Self {
        pre_attention: true,
        post_attention: true,
        pre_ffn: true,
        post_ffn: true,
    };
}
