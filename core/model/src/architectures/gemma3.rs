//! Gemma 3 (text): as Gemma 2 without caps, with norms of queries and keys, five layers with a window
//! to one without, and a rope of its own for each kind.

use super::{Architecture, dense, gemma2, names};
use crate::config::Key;
use crate::rope::{RopeKeys, read_rope};
use crate::spec::QkNormSpec;

const GLOBAL_ROPE: RopeKeys = RopeKeys {
    parameters: &["rope_parameters.full_attention"],
    theta: Key("rope.freq_base", "rope_theta"),
    scaled: true,
    default_theta: 1_000_000.0,
};
const LOCAL_ROPE: RopeKeys = RopeKeys {
    parameters: &["rope_parameters.sliding_attention"],
    theta: Key("rope.freq_base_swa", "rope_local_base_freq"),
    scaled: false,
    default_theta: 10_000.0,
};

pub(super) const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    gguf: &["gemma3"],
    hf: &["gemma3_text"],
    spec: |config| {
        let mut spec = dense::read(config, "gemma3")?;
        gemma2::gemma_parts(config, &mut spec, 62)?;
        let head_dim = spec.layers[0].attention.head_dim;
        spec.ropes = vec![
            read_rope(config, head_dim, GLOBAL_ROPE)?,
            read_rope(config, head_dim, LOCAL_ROPE)?,
        ];
        let pattern = config
            .opt_count(Key(
                "attention.sliding_window_pattern",
                "sliding_window_pattern",
            ))?
            .or(config.opt_count(Key("", "_sliding_window_pattern"))?)
            .unwrap_or(6);
        let window = dense::window(config)?.or(Some(4096));
        let sliding =
            dense::window_some_layers(config, &mut spec, window, |i| (i + 1) % pattern != 0)?;
        for (layer, slides) in spec.layers.iter_mut().zip(sliding) {
            layer.attention.qk_norm = QkNormSpec::PerHead;
            layer.attention.rope = usize::from(slides);
        }
        Ok(spec)
    },
    source: names::gemma,
};
