//! Gemma 2: scaled embeddings, norms before and after each part, soft caps, every other layer with
//! a window.

use super::{Architecture, dense, names};
use crate::config::{Config, Key};
use crate::error::ModelError;
use crate::spec::{ModelSpec, NormPlacement};
use kvant_device::Activation;

pub(super) const GEMMA2: Architecture = Architecture {
    name: "gemma2",
    gguf: &["gemma2"],
    hf: &["gemma2"],
    spec: |config| {
        let mut spec = dense::read(config, "gemma2")?;
        gemma_parts(config, &mut spec, 46)?;
        let attention_cap = cap(
            config,
            Key("attn_logit_softcapping", "attn_logit_softcapping"),
            50.0,
        )?;
        spec.logit_softcap = cap(
            config,
            Key("final_logit_softcapping", "final_logit_softcapping"),
            30.0,
        )?;
        for layer in &mut spec.layers {
            layer.attention.softcap = attention_cap;
        }
        let window = dense::window(config)?.or(Some(4096));
        dense::window_some_layers(config, &mut spec, window, |i| i % 2 == 0)?;
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
    spec.tied_embeddings = config
        .opt_bool(Key("", "tie_word_embeddings"))?
        .unwrap_or(true)
        || spec.tied_embeddings;
    let query_scale = config.opt_f32(Key("", "query_pre_attn_scalar"))?;
    for layer in &mut spec.layers {
        let attention = &mut layer.attention;
        let scalar = query_scale.unwrap_or(match config.is_gguf() && n_layers == largest {
            true => spec.d_model as f32 / attention.n_heads as f32,
            false => attention.head_dim as f32,
        });
        attention.scale = 1.0 / scalar.sqrt();
        layer.ffn.activation = Activation::GeluTanh;
        layer.norms = NormPlacement::SANDWICH;
    }
    Ok(())
}

/// A soft cap: `default` where GGUF has no key; absent where `config.json` says null.
fn cap(config: &Config<'_>, key: Key, default: f32) -> Result<Option<f32>, ModelError> {
    let default = config.is_gguf().then_some(default);
    match config.opt_f32(key)?.or(default) {
        Some(cap) if cap < 0.0 => Err(config.bad(key, cap.to_string(), "it must be above zero")),
        cap => Ok(cap.filter(|c| *c > 0.0)),
    }
}
