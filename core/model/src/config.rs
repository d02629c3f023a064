//! One way to ask a model's configuration, whether it is GGUF metadata or `config.json`.

use crate::error::ModelError;
use kvant_format::Checkpoint;
use kvant_format::gguf::Value;
use std::collections::BTreeMap;

/// Values from another source that a spec needs: small tensors of rope divisors, read beforehand.
pub(crate) type RopeTensors = BTreeMap<String, Vec<f32>>;

/// The configuration of a model. Keys are given twice: as in GGUF, without the architecture's
/// prefix, and as in `config.json`.
pub(crate) struct Config<'a> {
    checkpoint: &'a Checkpoint,
    rope_tensors: &'a RopeTensors,
    /// Prefix of the keys in GGUF.
    gguf_architecture: &'a str,
}

/// A key's name in GGUF metadata and in `config.json`; empty where a format has no such key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key(pub(crate) &'static str, pub(crate) &'static str);

impl<'a> Config<'a> {
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        gguf_architecture: &'a str,
        rope_tensors: &'a RopeTensors,
    ) -> Self {
        Self {
            checkpoint,
            rope_tensors,
            gguf_architecture,
        }
    }

    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self.checkpoint, Checkpoint::Gguf(_))
    }

    /// What a Hugging Face folder puts before the names of tensors: models with vision nest the part
    /// that generates text.
    pub(crate) fn hf_prefix(&self) -> &'static str {
        ["model.", "language_model.model.", "model.language_model."]
            .into_iter()
            .find(|prefix| self.has_tensor(&format!("{prefix}embed_tokens.weight")))
            .unwrap_or("model.")
    }

    /// The object of `config.json` that describes the part that generates text.
    fn json_root(&self) -> Option<&'a serde_json::Value> {
        let Checkpoint::HfFolder(folder) = self.checkpoint else {
            return None;
        };
        Some(folder.config.get("text_config").unwrap_or(&folder.config))
    }

    /// The key as the file spells it.
    pub(crate) fn spelled(&self, key: Key) -> String {
        match self.checkpoint {
            Checkpoint::Gguf(_) => format!("{}.{}", self.gguf_architecture, key.0),
            Checkpoint::HfFolder(_) => key.1.to_owned(),
        }
    }

    fn absent(&self, key: Key) -> bool {
        if self.is_gguf() {
            key.0.is_empty()
        } else {
            key.1.is_empty()
        }
    }

    /// A number, or a list of them; `None` when the key is missing or null.
    pub(crate) fn numbers(&self, key: Key) -> Result<Option<Vec<f64>>, ModelError> {
        if self.absent(key) {
            return Ok(None);
        }
        match self.checkpoint {
            Checkpoint::Gguf(gguf) => {
                let Some(value) = gguf.metadata.value(&self.spelled(key)) else {
                    return Ok(None);
                };
                let bad = || self.bad(key, value.type_name(), "it must be a number");
                match value {
                    Value::Array(items) => (0..items.len())
                        .map(|i| items.get(i).as_ref().and_then(number).ok_or_else(bad))
                        .collect::<Result<_, _>>()
                        .map(Some),
                    _ => Ok(Some(vec![number(value).ok_or_else(bad)?])),
                }
            }
            Checkpoint::HfFolder(folder) => {
                let Some(value) = json_at(self.json_root().unwrap_or(&folder.config), key.1) else {
                    return Ok(None);
                };
                let bad = || self.bad(key, value.to_string(), "it must be a number");
                match value {
                    serde_json::Value::Array(items) => items
                        .iter()
                        .map(|v| v.as_f64().ok_or_else(bad))
                        .collect::<Result<_, _>>()
                        .map(Some),
                    _ => Ok(Some(vec![value.as_f64().ok_or_else(bad)?])),
                }
            }
        }
    }

    pub(crate) fn bad(
        &self,
        key: Key,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> ModelError {
        ModelError::BadValue {
            key: self.spelled(key),
            found: found.into(),
            wanted: wanted.into(),
        }
    }

    fn missing(&self, key: Key) -> ModelError {
        ModelError::MissingKey {
            key: self.spelled(key),
        }
    }

    pub(crate) fn opt_f64(&self, key: Key) -> Result<Option<f64>, ModelError> {
        let Some(values) = self.numbers(key)? else {
            return Ok(None);
        };
        match values.as_slice() {
            [value] if value.is_finite() => Ok(Some(*value)),
            _ => Err(self.bad(key, format!("{values:?}"), "it must be one finite number")),
        }
    }

    pub(crate) fn opt_f32(&self, key: Key) -> Result<Option<f32>, ModelError> {
        Ok(self.opt_f64(key)?.map(|v| v as f32))
    }

    /// A count of at least one and at most 2^31.
    pub(crate) fn opt_count(&self, key: Key) -> Result<Option<usize>, ModelError> {
        self.opt_f64(key)?
            .map(|v| self.to_count(key, v))
            .transpose()
    }

    pub(crate) fn count(&self, key: Key) -> Result<usize, ModelError> {
        self.opt_count(key)?.ok_or_else(|| self.missing(key))
    }

    /// One count a layer: the file may give one for all or a list.
    pub(crate) fn counts(
        &self,
        key: Key,
        n_layers: usize,
    ) -> Result<Option<Vec<usize>>, ModelError> {
        let Some(values) = self.numbers(key)? else {
            return Ok(None);
        };
        let counts: Vec<usize> = values
            .iter()
            .map(|&v| self.to_count(key, v))
            .collect::<Result<_, _>>()?;
        match counts.len() {
            1 => Ok(Some(vec![counts[0]; n_layers])),
            n if n == n_layers => Ok(Some(counts)),
            n => Err(self.bad(
                key,
                format!("a list of {n}"),
                format!("it needs one value for each of {n_layers} layers"),
            )),
        }
    }

    fn to_count(&self, key: Key, value: f64) -> Result<usize, ModelError> {
        if value.fract() == 0.0 && (1.0..=2_147_483_648.0).contains(&value) {
            Ok(value as usize)
        } else {
            Err(self.bad(
                key,
                value.to_string(),
                "it must be a whole number of at least 1",
            ))
        }
    }

    pub(crate) fn opt_bool(&self, key: Key) -> Result<Option<bool>, ModelError> {
        if self.absent(key) {
            return Ok(None);
        }
        match self.checkpoint {
            Checkpoint::Gguf(gguf) => Ok(gguf.metadata.find(&self.spelled(key))?),
            Checkpoint::HfFolder(folder) => {
                match json_at(self.json_root().unwrap_or(&folder.config), key.1) {
                    None => Ok(None),
                    Some(serde_json::Value::Bool(b)) => Ok(Some(*b)),
                    Some(other) => {
                        Err(self.bad(key, other.to_string(), "it must be true or false"))
                    }
                }
            }
        }
    }

    pub(crate) fn opt_str(&self, key: Key) -> Result<Option<&'a str>, ModelError> {
        if self.absent(key) {
            return Ok(None);
        }
        match self.checkpoint {
            Checkpoint::Gguf(gguf) => Ok(gguf.metadata.find(&self.spelled(key))?),
            Checkpoint::HfFolder(folder) => {
                match json_at(self.json_root().unwrap_or(&folder.config), key.1) {
                    None => Ok(None),
                    Some(serde_json::Value::String(s)) => Ok(Some(s)),
                    Some(other) => Err(self.bad(key, other.to_string(), "it must be a string")),
                }
            }
        }
    }

    /// Strings of a list in `config.json` (`layer_types`).
    pub(crate) fn json_strings(&self, key: &str) -> Option<Vec<&'a str>> {
        let Checkpoint::HfFolder(folder) = self.checkpoint else {
            return None;
        };
        json_at(self.json_root().unwrap_or(&folder.config), key)?
            .as_array()?
            .iter()
            .map(|v| v.as_str())
            .collect()
    }

    /// Numbers of a list in `config.json`, at a dotted path.
    pub(crate) fn json_numbers(&self, path: &str) -> Option<Vec<f32>> {
        let Checkpoint::HfFolder(folder) = self.checkpoint else {
            return None;
        };
        json_at(self.json_root().unwrap_or(&folder.config), path)?
            .as_array()?
            .iter()
            .map(|v| v.as_f64().map(|v| v as f32))
            .collect()
    }

    /// A number in `config.json` at a dotted path.
    pub(crate) fn json_number(&self, path: &str) -> Option<f64> {
        let Checkpoint::HfFolder(folder) = self.checkpoint else {
            return None;
        };
        json_at(self.json_root().unwrap_or(&folder.config), path)?.as_f64()
    }

    /// A string in `config.json` at a dotted path.
    pub(crate) fn json_str(&self, path: &str) -> Option<String> {
        let Checkpoint::HfFolder(folder) = self.checkpoint else {
            return None;
        };
        json_at(self.json_root().unwrap_or(&folder.config), path)?
            .as_str()
            .map(str::to_owned)
    }

    /// A boolean in `config.json` at a dotted path.
    pub(crate) fn json_bool(&self, path: &str) -> Option<bool> {
        let Checkpoint::HfFolder(folder) = self.checkpoint else {
            return None;
        };
        json_at(self.json_root().unwrap_or(&folder.config), path)?.as_bool()
    }

    /// Whether `config.json` says null at a dotted path.
    pub(crate) fn json_is_null(&self, path: &str) -> bool {
        let Checkpoint::HfFolder(_) = self.checkpoint else {
            return false;
        };
        let found = path
            .split('.')
            .try_fold(self.json_root(), |v, part| v?.get(part).map(Some));
        matches!(found, Some(Some(serde_json::Value::Null)))
    }

    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.checkpoint.tensor(name).is_some()
    }

    /// Rows of a tensor.
    pub(crate) fn tensor_rows(&self, name: &str) -> Option<usize> {
        self.checkpoint
            .tensor(name)
            .and_then(|t| t.shape.first().copied())
    }

    /// A small tensor of rope divisors.
    pub(crate) fn rope_tensor(&self, name: &str) -> Option<Vec<f32>> {
        self.rope_tensors.get(name).cloned()
    }
}

/// A GGUF value as a number; whole numbers are exact up to 2^53, a truth value is 0 or 1.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::F32(v) => Some(f64::from(*v)),
        Value::F64(v) => Some(*v),
        Value::Bool(v) => Some(f64::from(u8::from(*v))),
        other => other.as_integer().map(|v| v as f64),
    }
}

/// The value at a dotted path, unless it is null.
fn json_at<'v>(value: &'v serde_json::Value, path: &str) -> Option<&'v serde_json::Value> {
    path.split('.')
        .try_fold(value, |v, part| v.get(part))
        .filter(|v| !v.is_null())
}
