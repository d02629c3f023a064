//! Qwen 2 and 2.5: Llama with biases on queries, keys and values (found by their tensors).

use super::{Architecture, dense, names};
use crate::config::{Config, Key};
use crate::error::ModelError;
use crate::spec::ModelSpec;

pub(super) const QWEN2: Architecture = Architecture {
    name: "qwen2",
    gguf: &["qwen2"],
    hf: &["qwen2"],
    spec: |config| {
        let mut spec = dense::read(config, "qwen2")?;
        upper_layers_slide(config, &mut spec)?;
        Ok(spec)
    },
    source: names::common,
};

/// With `use_sliding_window` the layers from `max_window_layers` on have a window.
pub(super) fn upper_layers_slide(
    config: &Config<'_>,
    spec: &mut ModelSpec,
) -> Result<(), ModelError> {
    if config.opt_bool(Key("", "use_sliding_window"))? != Some(true) {
        return Ok(());
    }
    let window = dense::window(config)?;
    let first = config
        .json_number("max_window_layers")
        .map_or(28, |v| v as usize);
    dense::window_some_layers(config, spec, window, |i| i >= first)?;
    Ok(())
}
