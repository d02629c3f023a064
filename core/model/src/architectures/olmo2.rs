//! OLMo 2: norms after each part instead of before, and norms over all query and all key columns.

use super::dense::{self, Defaults};
use super::{Architecture, names};
use crate::config::Key;
use crate::rope::RopeKeys;
use crate::spec::{NormPlacement, QkNormSpec};

const DEFAULTS: Defaults = Defaults {
    norm_eps: 1e-5,
    ..Defaults::LLAMA
};

pub(super) const OLMO2: Architecture = Architecture {
    name: "olmo2",
    gguf: &["olmo2"],
    hf: &["olmo2"],
    spec: |config| {
        let mut spec = dense::read(config, "olmo2", DEFAULTS, RopeKeys::SINGLE)?;
        if config
            .opt_f64(Key("attention.sliding_window", "sliding_window"))?
            .is_some_and(|width| width > 0.0)
        {
            let key = Key("attention.sliding_window", "sliding_window");
            return Err(config.bad(
                key,
                "set",
                "OLMo 3, which has windows, is not among the known architectures",
            ));
        }
        for layer in &mut spec.layers {
            layer.norms = NormPlacement::POST;
            layer.attention.qk_norm = QkNormSpec::Whole;
        }
        Ok(spec)
    },
    source: names::four_norms,
};
