//! OLMo 2: norms after each part instead of before, and norms over all query and all key columns.

use super::{Architecture, dense, names};
use crate::spec::{NormPlacement, QkNormSpec};

pub(super) const OLMO2: Architecture = Architecture {
    name: "olmo2",
    gguf: &["olmo2"],
    hf: &["olmo2"],
    spec: |config| {
        let mut spec = dense::read(config, "olmo2")?;
        for layer in &mut spec.layers {
            layer.norms = NormPlacement::POST;
            layer.attention.qk_norm = QkNormSpec::Whole;
        }
        Ok(spec)
    },
    source: names::four_norms,
};
