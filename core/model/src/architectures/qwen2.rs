//! Qwen 2 and 2.5: Llama with biases on queries, keys and values (found by their tensors).

use super::dense::{self, Defaults};
use super::{Architecture, names, windows};
use crate::config::{Config, Key};
use crate::error::ModelError;
use crate::rope::RopeKeys;
use crate::spec::ModelSpec;

pub(super) const DEFAULTS: Defaults = Defaults {
    n_kv_heads: Some(32),
    ..Defaults::LLAMA
};

pub(super) const QWEN2: Architecture = Architecture {
    name: "qwen2",
    gguf: &["qwen2"],
    hf: &["qwen2"],
    spec: |config| {
        let mut spec = dense::read(config, "qwen2", DEFAULTS, RopeKeys::SINGLE)?;
        upper_layers_slide(config, &mut spec)?;
        Ok(spec)
    },
    source: names::common,
};

/// With `use_sliding_window` the layers from `max_window_layers` on have a window, unless `layer_types`
/// says which. GGUF files have lost it.
pub(super) fn upper_layers_slide(
    config: &Config<'_>,
    spec: &mut ModelSpec,
) -> Result<(), ModelError> {
    if config.opt_bool(Key("", "use_sliding_window"))? != Some(true) {
        return Ok(());
    }
    let n_layers = spec.layers.len();
    let first = config
        .json_number("max_window_layers")
        .map_or(28, |layer| layer as usize);
    let sliding = match windows::layer_types(config, n_layers)? {
        Some(sliding) => sliding,
        None => (0..n_layers).map(|layer| layer >= first).collect(),
    };
    windows::apply(spec, windows::width(config, Some(4096))?, &sliding);
    Ok(())
}
