//! Granite: Llama with four multipliers.

use super::dense::{self, Defaults};
use super::{Architecture, names};
use crate::config::Key;
use crate::rope::RopeKeys;

pub(super) const GRANITE: Architecture = Architecture {
    name: "granite",
    gguf: &["granite"],
    hf: &["granite"],
    spec: |config| {
        let mut spec = dense::read(config, "granite", Defaults::LLAMA, RopeKeys::SINGLE)?;
        let rotates = Key("rope.scaling.finetuned", "");
        if config.opt_bool(rotates)? == Some(false) {
            return Err(config.bad(
                rotates,
                "false",
                "Granite without rotation is not among the known architectures",
            ));
        }
        dense::adjacent_in_gguf(config, &mut spec);
        spec.embedding_scale = config
            .opt_f32(Key("embedding_scale", "embedding_multiplier"))?
            .unwrap_or(1.0);
        let divisor = Key("logit_scale", "logits_scaling");
        spec.logit_scale = match config.opt_f32(divisor)? {
            Some(0.0) => return Err(config.bad(divisor, "0", "logits are divided by it")),
            Some(scale) => 1.0 / scale,
            None => 1.0,
        };
        let residual_scale = config
            .opt_f32(Key("residual_scale", "residual_multiplier"))?
            .unwrap_or(1.0);
        let scale = config.opt_f32(Key("attention.scale", "attention_multiplier"))?;
        let scale = scale.filter(|scale| !config.is_gguf() || *scale != 0.0);
        for layer in &mut spec.layers {
            layer.residual_scale = residual_scale;
            // Granite's configuration in Hugging Face folders means 1 where it is silent.
            let default = if config.is_gguf() {
                layer.attention.scale
            } else {
                1.0
            };
            layer.attention.scale = scale.unwrap_or(default);
        }
        Ok(spec)
    },
    source: names::common,
};
