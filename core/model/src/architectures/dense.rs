//! What dense decoders have in common: the spec of a Llama without a name, which architectures
//! change where they differ.

use crate::config::{Config, Key};
use crate::error::ModelError;
use crate::rope::{RopeKeys, read_rope};
use crate::spec::{AttentionSpec, FfnSpec, LayerSpec, ModelSpec, NormPlacement, QkNormSpec};
use kvant_device::{Activation, NormKind, RopeStyle};

/// Tensors that tell whether a part is there, in GGUF and in Hugging Face folders.
fn has(config: &Config<'_>, gguf: &str, hf: &str) -> bool {
    match config.is_gguf() {
        true => config.has_tensor(gguf),
        false => config.has_tensor(&format!("{}{hf}", config.hf_prefix())),
    }
}

/// Most layers that a file may claim; an allocation guard, far above any model.
const MAX_LAYERS: usize = 4096;

/// What a `config.json` means where it is silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    /// Key and value heads; as many as query heads when `None`.
    pub(super) n_kv_heads: Option<usize>,
    /// Width of a head; `d_model / n_heads` when `None`.
    pub(super) head_dim: Option<usize>,
    /// Added to the mean square in norms.
    pub(super) norm_eps: f32,
    /// Whether the embedding table is the output matrix.
    pub(super) tied_embeddings: bool,
}

impl Defaults {
    /// Llama's.
    pub(super) const LLAMA: Self = Self {
        n_kv_heads: None,
        head_dim: None,
        norm_eps: 1e-6,
        tied_embeddings: false,
    };
}

/// Reads the common keys: pre-norms, SiLU, one rope of every head element, full attention.
pub(super) fn read(
    config: &Config<'_>,
    name: &'static str,
    defaults: Defaults,
    rope_keys: RopeKeys,
) -> Result<ModelSpec, ModelError> {
    // GGUF files say all that is not as in Llama.
    let defaults = if config.is_gguf() {
        Defaults::LLAMA
    } else {
        defaults
    };
    let layers_key = Key("block_count", "num_hidden_layers");
    let n_layers = config.count(layers_key)?;
    if n_layers > MAX_LAYERS {
        return Err(config.bad(
            layers_key,
            n_layers.to_string(),
            format!("at most {MAX_LAYERS} layers are possible"),
        ));
    }
    let d_model = config.count(Key("embedding_length", "hidden_size"))?;
    let heads_key = Key("attention.head_count", "num_attention_heads");
    let n_heads = require(config, heads_key, config.counts(heads_key, n_layers)?)?;
    let kv_heads_key = Key("attention.head_count_kv", "num_key_value_heads");
    let n_kv_heads = config.counts(kv_heads_key, n_layers)?.unwrap_or_else(|| {
        defaults
            .n_kv_heads
            .map_or_else(|| n_heads.clone(), |n| vec![n; n_layers])
    });
    for (&q, &kv) in n_heads.iter().zip(&n_kv_heads) {
        if q % kv != 0 {
            return Err(config.bad(
                kv_heads_key,
                kv.to_string(),
                format!("it must divide the {q} query heads"),
            ));
        }
    }
    let head_dim_key = Key("attention.key_length", "head_dim");
    let head_dim = match config.opt_count(head_dim_key)?.or(defaults.head_dim) {
        Some(dim) => dim,
        None if d_model % n_heads[0] == 0 => d_model / n_heads[0],
        None => {
            return Err(ModelError::MissingKey {
                key: config.spelled(head_dim_key),
            });
        }
    };
    let v_head_dim = config
        .opt_count(Key("attention.value_length", ""))?
        .unwrap_or(head_dim);
    let rotary_key = Key("rope.dimension_count", "");
    let rotary_dim = match config.opt_count(rotary_key)? {
        Some(dim) => dim,
        None => {
            let part = config
                .json_number("partial_rotary_factor")
                .or_else(|| config.json_number("rope_parameters.partial_rotary_factor"));
            (head_dim as f64 * part.unwrap_or(1.0)) as usize
        }
    };
    if rotary_dim == 0 || rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
        return Err(config.bad(
            rotary_key,
            rotary_dim.to_string(),
            format!("it must be even and at most the head's {head_dim}"),
        ));
    }
    let d_ff_key = Key("feed_forward_length", "intermediate_size");
    let d_ff = require(config, d_ff_key, config.counts(d_ff_key, n_layers)?)?;
    let embedding = match config.is_gguf() {
        true => "token_embd.weight".to_owned(),
        false => format!("{}embed_tokens.weight", config.hf_prefix()),
    };
    let vocab_size = config
        .tensor_rows(&embedding)
        .ok_or_else(|| ModelError::MissingTensor {
            tensor: embedding.clone(),
            role: "TokenEmbedding".to_owned(),
        })?;
    let has_output = config.has_tensor(if config.is_gguf() {
        "output.weight"
    } else {
        "lm_head.weight"
    });
    let tied = config
        .opt_bool(Key("", "tie_word_embeddings"))?
        .unwrap_or(defaults.tied_embeddings);
    let qkv_bias = has(
        config,
        "blk.0.attn_q.bias",
        "layers.0.self_attn.q_proj.bias",
    );
    let output_bias = has(
        config,
        "blk.0.attn_output.bias",
        "layers.0.self_attn.o_proj.bias",
    );
    let ffn_bias = has(config, "blk.0.ffn_down.bias", "layers.0.mlp.down_proj.bias");
    let activation = activation(config, Key("", "hidden_act"))?.unwrap_or(Activation::Silu);
    let layers = (0..n_layers)
        .map(|i| LayerSpec {
            attention: AttentionSpec {
                n_heads: n_heads[i],
                n_kv_heads: n_kv_heads[i],
                head_dim,
                v_head_dim,
                scale: 1.0 / (head_dim as f32).sqrt(),
                softcap: None,
                qk_norm: QkNormSpec::None,
                qkv_bias,
                output_bias,
                rope: 0,
                rope_style: RopeStyle::Half,
                kv_group: 0,
            },
            ffn: FfnSpec {
                d_ff: d_ff[i],
                activation,
                bias: ffn_bias,
            },
            norms: NormPlacement::PRE,
            residual_scale: 1.0,
        })
        .collect();
    Ok(ModelSpec {
        architecture: name,
        vocab_size,
        d_model,
        context_length: config.count(Key("context_length", "max_position_embeddings"))?,
        embedding_scale: 1.0,
        layers,
        norm_kind: NormKind::Rms,
        norm_eps: eps(config, defaults.norm_eps)?,
        tied_embeddings: tied || !has_output,
        logit_scale: 1.0,
        logit_softcap: None,
        ropes: vec![read_rope(config, rotary_dim, rope_keys)?],
        kv_groups: vec![None],
    })
}

fn require(
    config: &Config<'_>,
    key: Key,
    found: Option<Vec<usize>>,
) -> Result<Vec<usize>, ModelError> {
    found.ok_or_else(|| ModelError::MissingKey {
        key: config.spelled(key),
    })
}

fn eps(config: &Config<'_>, default: f32) -> Result<f32, ModelError> {
    let key = Key("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    let eps = match config.opt_f32(key)? {
        None if config.is_gguf() => {
            return Err(ModelError::MissingKey {
                key: config.spelled(key),
            });
        }
        eps => eps.unwrap_or(default),
    };
    if eps >= 0.0 {
        Ok(eps)
    } else {
        Err(config.bad(key, eps.to_string(), "it must not be negative"))
    }
}

/// The activation that a `config.json` names; GGUF names none.
pub(super) fn activation(config: &Config<'_>, key: Key) -> Result<Option<Activation>, ModelError> {
    match config.opt_str(key)? {
        None => Ok(None),
        Some("silu" | "swish") => Ok(Some(Activation::Silu)),
        Some("gelu") => Ok(Some(Activation::Gelu)),
        Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Some(Activation::GeluTanh)),
        Some(other) => Err(config.bad(key, other, "known are silu, gelu, gelu_pytorch_tanh")),
    }
}

/// GGUF of the llama family has its query and key rows permuted so that neighbours rotate together.
pub(super) fn adjacent_in_gguf(config: &Config<'_>, spec: &mut ModelSpec) {
    if config.is_gguf() {
        for layer in &mut spec.layers {
            layer.attention.rope_style = RopeStyle::Adjacent;
        }
    }
}
