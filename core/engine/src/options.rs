//! How an engine is sized.

use crate::error::EngineError;
use kvant_kv::{KvFormat, KvPlan};

/// Sizes of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOptions {
    /// Most tokens a sequence, prompt and answer together.
    pub context_len: usize,
    /// Most sequences at a time.
    pub max_sequences: usize,
    /// Most tokens a step: a longer prompt is computed in chunks of this.
    pub max_step_tokens: usize,
    /// Most rows of one step whose logits can be read. At least `max_sequences`.
    pub max_outputs: usize,
    /// Formats of keys and values; f16 everywhere when absent.
    pub kv_plan: Option<KvPlan>,
    /// Same bits for a sequence whatever runs beside it.
    pub deterministic: bool,
}

impl EngineOptions {
    /// One conversation of up to `context_len` tokens.
    pub fn single(context_len: usize) -> Self {
        Self {
            context_len,
            max_sequences: 1,
            max_step_tokens: 512,
            max_outputs: 1,
            kv_plan: None,
            deterministic: false,
        }
    }

    /// The plan in use for a model of `n_layers` layers.
    pub fn plan(&self, n_layers: usize) -> KvPlan {
        self.kv_plan
            .clone()
            .unwrap_or_else(|| KvPlan::uniform(n_layers, KvFormat::F16))
    }

    /// Checks every number.
    ///
    /// # Errors
    /// [`EngineError::Option`] naming the field.
    pub fn validate(&self) -> Result<(), EngineError> {
        let fields = [
            ("context_len", self.context_len),
            ("max_sequences", self.max_sequences),
            ("max_step_tokens", self.max_step_tokens),
        ];
        for (field, value) in fields {
            if value == 0 {
                return Err(EngineError::Option {
                    field,
                    value,
                    wanted: "it must be at least 1",
                });
            }
        }
        if self.max_outputs < self.max_sequences {
            let (field, value) = ("max_outputs", self.max_outputs);
            return Err(EngineError::Option {
                field,
                value,
                wanted: "it must be at least max_sequences",
            });
        }
        Ok(())
    }
}
