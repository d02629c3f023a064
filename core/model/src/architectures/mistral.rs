//! Mistral 7B: Llama with a sliding window. Its GGUF files are stored as `llama`.

use super::{Architecture, dense, names};

pub(super) const MISTRAL: Architecture = Architecture {
    name: "mistral",
    gguf: &["mistral"],
    hf: &["mistral"],
    spec: |config| {
        let mut spec = dense::read(config, "mistral")?;
        dense::adjacent_in_gguf(config, &mut spec);
        dense::window_everywhere(&mut spec, dense::window(config)?);
        Ok(spec)
    },
    source: names::common,
};
