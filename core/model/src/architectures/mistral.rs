//! Mistral 7B: Llama with a sliding window. Its GGUF files are stored as `llama`, without the window.

use super::dense::{self, Defaults};
use super::{Architecture, names, windows};
use crate::rope::RopeKeys;

pub(super) const MISTRAL: Architecture = Architecture {
    name: "mistral",
    gguf: &["mistral"],
    hf: &["mistral"],
    spec: |config| {
        let defaults = Defaults {
            n_kv_heads: Some(8),
            ..Defaults::LLAMA
        };
        let mut spec = dense::read(config, "mistral", defaults, RopeKeys::SINGLE)?;
        dense::adjacent_in_gguf(config, &mut spec);
        let missing = (!config.is_gguf()).then_some(4096);
        windows::apply_everywhere(&mut spec, windows::width(config, missing)?);
        Ok(spec)
    },
    source: names::common,
};
