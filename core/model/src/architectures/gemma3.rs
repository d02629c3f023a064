//! Gemma 3 (text): as Gemma 2 without caps, with norms of queries and keys, five layers with a window
//! to one without, and a rope of its own for each kind.

use super::{Architecture, dense, gemma2, names, windows};
use crate::config::Key;
use crate::rope::{RopeKeys, read_rope};
use crate::spec::QkNormSpec;

const GLOBAL_ROPE: RopeKeys = RopeKeys {
    parameters: &["rope_parameters.full_attention"],
    theta: Key("rope.freq_base", "rope_theta"),
    default_theta: 1_000_000.0,
    ..RopeKeys::SINGLE
};
const LOCAL_ROPE: RopeKeys = RopeKeys {
    parameters: &["rope_parameters.sliding_attention"],
    theta: Key("rope.freq_base_swa", "rope_local_base_freq"),
    scaled: false,
    ..RopeKeys::SINGLE
};

pub(super) const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    gguf: &["gemma3"],
    hf: &["gemma3_text", "gemma3"],
    spec: |config| {
        if config.opt_bool(Key("", "use_bidirectional_attention"))? == Some(true) {
            let key = Key("", "use_bidirectional_attention");
            return Err(config.bad(
                key,
                "true",
                "encoders cannot be run, only models that generate",
            ));
        }
        let mut spec = dense::read(config, "gemma3", gemma2::DEFAULTS, GLOBAL_ROPE)?;
        gemma2::gemma_parts(config, &mut spec, 62)?;
        let cap = Key("final_logit_softcapping", "final_logit_softcapping");
        spec.logit_softcap = gemma2::cap(config, cap, None)?;
        spec.ropes
            .push(read_rope(config, spec.ropes[0].rotary_dim, LOCAL_ROPE)?);
        let sliding = windows::sliding_layers(config, spec.layers.len(), 6)?;
        let sliding = windows::apply(&mut spec, windows::width(config, Some(4096))?, &sliding);
        for (layer, slides) in spec.layers.iter_mut().zip(sliding) {
            layer.attention.qk_norm = QkNormSpec::PerHead;
            layer.attention.rope = usize::from(slides);
        }
        Ok(spec)
    },
    source: names::gemma,
};
