//! Llama 2 and 3, SmolLM2, and what else is stored as `llama`.

use super::dense::{self, Defaults};
use super::{Architecture, names};
use crate::rope::RopeKeys;

pub(super) const LLAMA: Architecture = Architecture {
    name: "llama",
    gguf: &["llama"],
    hf: &["llama"],
    spec: |config| {
        let mut spec = dense::read(config, "llama", Defaults::LLAMA, RopeKeys::SINGLE)?;
        dense::adjacent_in_gguf(config, &mut spec);
        Ok(spec)
    },
    source: names::common,
};
