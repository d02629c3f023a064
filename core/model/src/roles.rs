//! What each weight is for, apart from what a file calls it.

use std::fmt;

/// The part a weight plays in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightRole {
    /// Embedding table, `[vocab_size, d_model]`.
    TokenEmbedding,
    /// Factors of the last norm, `[d_model]`.
    OutputNorm,
    /// Output matrix where it is not the embedding table, `[vocab_size, d_model]`.
    Output,
    /// A weight of a layer.
    Layer(usize, LayerRole),
}

/// The part a weight plays in its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum LayerRole {
    PreAttentionNorm,
    Query,
    Key,
    Value,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    AttentionOutput,
    AttentionOutputBias,
    PostAttentionNorm,
    PreFfnNorm,
    Gate,
    Up,
    Down,
    GateBias,
    UpBias,
    DownBias,
    PostFfnNorm,
}

/// Where a weight's rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightSource {
    /// Tensor in the file.
    pub tensor: String,
    /// First row, where several weights lie in one tensor.
    pub first_row: usize,
    /// Rows of the whole tensor, where several weights lie in it; `None` when the weight is all of it.
    pub tensor_rows: Option<usize>,
    /// What is done to the elements.
    pub transform: Transform,
}

/// What is done to a weight's elements as they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Nothing.
    None,
    /// One is added: norms stored as the distance from one (Gemma in Hugging Face folders).
    AddOne,
}

impl WeightSource {
    /// The whole tensor as it is.
    pub fn whole(tensor: impl Into<String>) -> Self {
        Self {
            tensor: tensor.into(),
            first_row: 0,
            tensor_rows: None,
            transform: Transform::None,
        }
    }
}

impl fmt::Display for WeightRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(layer, role) => write!(f, "layer {layer} {role:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}
