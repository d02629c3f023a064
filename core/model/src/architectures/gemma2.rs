//! Gemma 2: scaled embeddings, norms before and after each part, soft caps, every other layer with
//! a window.

use super::dense::{self, Defaults};
use super::{Architecture, names, windows};
use crate::config::{Config, Key};
use crate::error::ModelError;
use crate::rope::RopeKeys;
use crate::spec::{ModelSpec, NormPlacement};
use kvant_device::Activation;

/// What Gemma's `config.json` means where it is silent.
pub(super) const DEFAULTS: Defaults = Defaults {
    n_kv_heads: Some(4),
    head_dim: Some(256),
    norm_eps: 1e-6,
    tied_embeddings: true,
};

pub(super) const GEMMA2: Architecture = Architecture {
    name: "gemma2",
    gguf: &["gemma2"],
    hf: &["gemma2"],
    spec: |config| {
        let mut spec = dense::read(config, "gemma2", DEFAULTS, RopeKeys::SINGLE)?;
        gemma_parts(config, &mut spec, 46)?;
        let attention_cap = cap(
            config,
            Key("attn_logit_softcapping", "attn_logit_softcapping"),
            Some(50.0),
        )?;
        spec.logit_softcap = cap(
            config,
            Key("final_logit_softcapping", "final_logit_softcapping"),
            Some(30.0),
        )?;
        for layer in &mut spec.layers {
            layer.attention.softcap = attention_cap;
        }
        let sliding = windows::sliding_layers(config, spec.layers.len(), 2)?;
        windows::apply(&mut spec, windows::width(config, Some(4096))?, &sliding);
        Ok(spec)
    },
    source: names::gemma,
};

/// What Gemma 2 and 3 share. GGUF does not say how queries are scaled: all sizes use the head's
/// width but the largest, of `largest` layers, which uses `d_model / n_heads`.
pub(super) fn gemma_parts(
    config: &Config<'_>,
    spec: &mut ModelSpec,
    largest: usize,
) -> Result<(), ModelError> {
    let n_layers = spec.layers.len();
    spec.embedding_scale = (spec.d_model as f32).sqrt();
    let query_scale = match config.opt_f32(Key("", "query_pre_attn_scalar"))? {
        None if !config.is_gguf() => Some(256.0),
        scale => scale,
    };
    let activation = dense::activation(config, Key("", "hidden_activation"))?;
    for layer in &mut spec.layers {
        let attention = &mut layer.attention;
        let scalar = query_scale.unwrap_or(match config.is_gguf() && n_layers == largest {
            true => spec.d_model as f32 / attention.n_heads as f32,
            false => attention.head_dim as f32,
        });
        attention.scale = 1.0 / scalar.sqrt();
        layer.ffn.activation = activation.unwrap_or(Activation::GeluTanh);
        layer.norms = NormPlacement::SANDWICH;
    }
    Ok(())
}

/// A soft cap: `missing` where there is no key, none where it says null or zero.
pub(super) fn cap(
    config: &Config<'_>,
    key: Key,
    missing: Option<f32>,
) -> Result<Option<f32>, ModelError> {
    let missing = if config.json_is_null(key.1) {
        None
    } else {
        missing
    };
    match config.opt_f32(key)?.or(missing) {
        Some(cap) if cap < 0.0 => Err(config.bad(key, cap.to_string(), "it must be above zero")),
        cap => Ok(cap.filter(|c| *c > 0.0)),
    }
}
