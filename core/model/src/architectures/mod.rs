//! One short file an architecture: it fills a [`ModelSpec`] and says which tensor plays which role.

mod dense;
mod gemma2;
mod gemma3;
mod granite;
mod llama;
mod mistral;
mod names;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod windows;

use crate::config::Config;
use crate::error::ModelError;
use crate::roles::{WeightRole, WeightSource};
use crate::spec::ModelSpec;

/// What sets one architecture apart.
pub(crate) struct Architecture {
    /// Its name with us.
    pub(crate) name: &'static str,
    /// Values of `general.architecture` in GGUF.
    pub(crate) gguf: &'static [&'static str],
    /// Values of `model_type` in `config.json`.
    pub(crate) hf: &'static [&'static str],
    /// Reads the configuration.
    pub(crate) spec: fn(&Config<'_>) -> Result<ModelSpec, ModelError>,
    /// The tensor for a role.
    pub(crate) source: fn(&Config<'_>, &ModelSpec, WeightRole) -> WeightSource,
}

const ALL: &[&Architecture] = &[
    &llama::LLAMA,
    &mistral::MISTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &phi3::PHI3,
    &granite::GRANITE,
    &olmo2::OLMO2,
];

/// Names of every architecture.
pub fn known_architectures() -> Vec<&'static str> {
    ALL.iter().map(|a| a.name).collect()
}

/// The architecture that a file names.
pub(crate) fn find(gguf: bool, name: &str) -> Result<&'static Architecture, ModelError> {
    ALL.iter()
        .copied()
        .find(|a| if gguf { a.gguf } else { a.hf }.contains(&name))
        .ok_or_else(|| ModelError::UnknownArchitecture {
            found: name.to_owned(),
            known: known_architectures(),
        })
}
