//! What dense decoders have in common: the spec of a Llama without a name, which architectures
//! change where they differ.

use crate::config::{Config, Key};
use crate::error::ModelError;
use crate::rope::{RopeKeys, read_rope};
use crate::spec::{AttentionSpec, FfnSpec, LayerSpec, ModelSpec, NormPlacement, QkNormSpec};
use kvant_device::{Activation, NormKind, RopeStyle};

/// Tensors that tell whether a part is there, in GGUF and in Hugging Face folders.
fn has(config: &Config<'_>, gguf: &str, hf: &str) -> bool {
    config.has_tensor(if config.is_gguf() { gguf } else { hf })
}

/// Most layers that a file may claim; an allocation guard, far above any model.
const MAX_LAYERS: usize = 4096;

/// Reads the common keys: pre-norms, SiLU, one rope of every head element, full attention.
pub(super) fn read(config: &Config<'_>, name: &'static str) -> Result<ModelSpec, ModelError> {
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
    let n_kv_heads = config
        .counts(kv_heads_key, n_layers)?
        .unwrap_or_else(|| n_heads.clone());
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
    let head_dim = match config.opt_count(head_dim_key)? {
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
    let embedding = if config.is_gguf() {
        "token_embd.weight"
    } else {
        "model.embed_tokens.weight"
    };
    let vocab_size = config
        .tensor_rows(embedding)
        .ok_or_else(|| ModelError::MissingTensor {
            tensor: embedding.to_owned(),
            role: "TokenEmbedding".to_owned(),
        })?;
    let has_output = has(config, "output.weight", "lm_head.weight");
    let tied = config
        .opt_bool(Key("", "tie_word_embeddings"))?
        .unwrap_or(false);
    let qkv_bias = has(
        config,
        "blk.0.attn_q.bias",
        "model.layers.0.self_attn.q_proj.bias",
    );
    let output_bias = has(
        config,
        "blk.0.attn_output.bias",
        "model.layers.0.self_attn.o_proj.bias",
    );
    let ffn_bias = has(
        config,
        "blk.0.ffn_down.bias",
        "model.layers.0.mlp.down_proj.bias",
    );
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
                activation: Activation::Silu,
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
        norm_eps: eps(config)?,
        tied_embeddings: tied || !has_output,
        logit_scale: 1.0,
        logit_softcap: None,
        ropes: vec![read_rope(config, rotary_dim, RopeKeys::SINGLE)?],
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

fn eps(config: &Config<'_>) -> Result<f32, ModelError> {
    let key = Key("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    let eps = config.opt_f32(key)?.ok_or_else(|| ModelError::MissingKey {
        key: config.spelled(key),
    })?;
    if eps >= 0.0 {
        Ok(eps)
    } else {
        Err(config.bad(key, eps.to_string(), "it must not be negative"))
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

/// The window of the layers that have one.
pub(super) fn window(config: &Config<'_>) -> Result<Option<usize>, ModelError> {
    if config.opt_bool(Key("", "use_sliding_window"))? == Some(false) {
        return Ok(None);
    }
    config.opt_count(Key("attention.sliding_window", "sliding_window"))
}

/// Gives every layer the same window.
pub(super) fn window_everywhere(spec: &mut ModelSpec, window: Option<usize>) {
    spec.kv_groups = vec![window];
}

/// Puts the layers for which `slides` is true in a group of their own with that window. Newer
/// `config.json` files list `layer_types`, which win.
pub(super) fn window_some_layers(
    config: &Config<'_>,
    spec: &mut ModelSpec,
    window: Option<usize>,
    slides: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, ModelError> {
    let n_layers = spec.layers.len();
    let sliding: Vec<bool> = match config.json_strings("layer_types") {
        Some(types) if types.len() == n_layers => {
            types.iter().map(|t| *t == "sliding_attention").collect()
        }
        Some(types) => {
            let key = Key("", "layer_types");
            return Err(config.bad(
                key,
                format!("a list of {}", types.len()),
                format!("it needs {n_layers}"),
            ));
        }
        None => (0..n_layers).map(slides).collect(),
    };
    let Some(window) = window else {
        return Ok(vec![false; n_layers]);
    };
    spec.kv_groups = match (sliding.iter().any(|s| !s), sliding.iter().any(|s| *s)) {
        (true, true) => vec![None, Some(window)],
        (false, _) => vec![Some(window)],
        (true, false) => vec![None],
    };
    for (layer, &slides) in spec.layers.iter_mut().zip(&sliding) {
        layer.attention.kv_group = usize::from(slides).min(spec.kv_groups.len() - 1);
    }
    Ok(sliding)
}
