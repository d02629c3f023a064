//! Qwen 3: a norm on each query and key head.

use super::dense::{self, Defaults};
use super::{Architecture, names, qwen2};
use crate::rope::RopeKeys;
use crate::spec::QkNormSpec;

pub(super) const QWEN3: Architecture = Architecture {
    name: "qwen3",
    gguf: &["qwen3"],
    hf: &["qwen3"],
    spec: |config| {
        let defaults = Defaults {
            head_dim: Some(128),
            ..qwen2::DEFAULTS
        };
        let mut spec = dense::read(config, "qwen3", defaults, RopeKeys::SINGLE)?;
        qwen2::upper_layers_slide(config, &mut spec)?;
        for layer in &mut spec.layers {
            layer.attention.qk_norm = QkNormSpec::PerHead;
        }
        Ok(spec)
    },
    source: names::common,
};
