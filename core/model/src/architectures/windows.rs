//! Sliding windows: how wide, and on which layers.

use crate::config::{Config, Key};
use crate::error::ModelError;
use crate::spec::ModelSpec;

const WIDTH: Key = Key("attention.sliding_window", "sliding_window");
const PATTERN: Key = Key("attention.sliding_window_pattern", "sliding_window_pattern");

/// The width of the window, in tokens; zero and null are none. `missing` is what a `config.json`
/// without the key means.
pub(super) fn width(
    config: &Config<'_>,
    missing: Option<usize>,
) -> Result<Option<usize>, ModelError> {
    match config.opt_f64(WIDTH)? {
        Some(0.0) => Ok(None),
        Some(_) => config.opt_count(WIDTH),
        None if config.json_is_null("sliding_window") => Ok(None),
        None => Ok(missing),
    }
}

/// Which layers slide. `layer_types` decides where there is one; else a list with one entry a layer, or
/// a number `n`: all but every `n`-th layer.
pub(super) fn sliding_layers(
    config: &Config<'_>,
    n_layers: usize,
    default_pattern: usize,
) -> Result<Vec<bool>, ModelError> {
    if let Some(layers) = layer_types(config, n_layers)? {
        return Ok(layers);
    }
    let pattern = match config.numbers(PATTERN)? {
        Some(list) if list.len() > 1 => {
            if list.len() != n_layers {
                let wanted = format!("it needs one entry for each of {n_layers} layers");
                return Err(config.bad(PATTERN, format!("a list of {}", list.len()), wanted));
            }
            return Ok(list.iter().map(|slides| *slides != 0.0).collect());
        }
        Some(list) if list == [0.0] => return Ok(vec![true; n_layers]),
        Some(_) => config.count(PATTERN)?,
        None => config
            .json_number("_sliding_window_pattern")
            .map_or(default_pattern, |n| (n as usize).max(1)),
    };
    Ok((0..n_layers)
        .map(|layer| (layer + 1) % pattern != 0)
        .collect())
}

/// The layers that `layer_types` of newer `config.json` files says slide.
pub(super) fn layer_types(
    config: &Config<'_>,
    n_layers: usize,
) -> Result<Option<Vec<bool>>, ModelError> {
    match config.json_strings("layer_types") {
        None => Ok(None),
        Some(types) if types.len() == n_layers => Ok(Some(
            types
                .iter()
                .map(|kind| *kind == "sliding_attention")
                .collect(),
        )),
        Some(types) => {
            let wanted = format!("it needs one entry for each of {n_layers} layers");
            Err(config.bad(
                Key("", "layer_types"),
                format!("a list of {}", types.len()),
                wanted,
            ))
        }
    }
}

/// Gives layers with and without a window groups of their own. Returns which layers have one.
pub(super) fn apply(spec: &mut ModelSpec, width: Option<usize>, sliding: &[bool]) -> Vec<bool> {
    let Some(width) = width else {
        return vec![false; sliding.len()];
    };
    let some_see_all = sliding.iter().any(|slides| !slides);
    let some_slide = sliding.iter().any(|slides| *slides);
    spec.kv_groups = match (some_see_all, some_slide) {
        (true, true) => vec![None, Some(width)],
        (false, _) => vec![Some(width)],
        (true, false) => vec![None],
    };
    for (layer, &slides) in spec.layers.iter_mut().zip(sliding) {
        layer.attention.kv_group = usize::from(slides && some_see_all);
    }
    sliding.to_vec()
}

/// Gives every layer the same window.
pub(super) fn apply_everywhere(spec: &mut ModelSpec, width: Option<usize>) {
    spec.kv_groups = vec![width];
}
