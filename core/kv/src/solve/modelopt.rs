//! ModelOpt's metadata of KV caches, one format a layer: read and written.
//!
//! An export of NVIDIA's ModelOpt carries `hf_quant_config.json`, whose `quantization` object is
//! repeated as `quantization_config` of `config.json`. Of keys and values they say
//! (github.com/NVIDIA/Model-Optimizer, `modelopt/torch/export`, and its pull request 2272):
//!
//! - `kv_cache_quant_algo`: `FP8`, `INT8`, `NVFP4`, `NVFP4_AFFINE`, `FP8_K_NVFP4_V`,
//!   `MIXED_PRECISION`, or null where they are not quantised;
//! - `kv_cache_quantized_layers`: the algorithm of each attention module,
//!   `{"model.layers.0.self_attn": {"quant_algo": "FP8"}, …}`; modules that are not listed are not
//!   quantised;
//! - `kv_cache_schema_version`: 1;
//! - `kv_cache_scheme` (in `config.json`, where all layers are alike): a name, or
//!   `{"num_bits": 8, "type": "float", "dynamic": false}`.
//!
//! An algorithm names codes and groups; its scales are tensors of the checkpoint. Here scales are
//! taken from the block that is encoded, so a name alone is enough.

use super::error::ModelOptError;
use super::solution::plan_of_formats;
use crate::KvPlan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of `kv_cache_quantized_layers` that is known.
const SCHEMA_VERSION: u64 = 1;

/// The algorithm of a model whose layers differ.
const MIXED: &str = "MIXED_PRECISION";

/// Format of layers that are not quantised.
const NOT_QUANTISED: &str = "f16";

/// An algorithm's name, its formats of keys and values here, and its group size where it has one.
struct Algorithm {
    name: &'static str,
    k: &'static str,
    v: &'static str,
    group_size: Option<u64>,
}

const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "FP8",
        k: "fp8",
        v: "fp8",
        group_size: None,
    },
    Algorithm {
        name: "INT8",
        k: "int8",
        v: "int8",
        group_size: None,
    },
    Algorithm {
        name: "NVFP4",
        k: "nvfp4",
        v: "nvfp4",
        group_size: Some(16),
    },
    Algorithm {
        name: "FP8_K_NVFP4_V",
        k: "fp8",
        v: "nvfp4",
        group_size: Some(16),
    },
];

/// The algorithms that have a counterpart, for messages.
pub(crate) fn known_algorithms() -> String {
    let names: Vec<&str> = ALGORITHMS.iter().map(|one| one.name).collect();
    names.join(", ")
}

/// The formats that have a name, for messages.
pub(crate) fn known_pairs() -> String {
    let pairs: Vec<String> = ALGORITHMS
        .iter()
        .map(|one| format!("{}/{} ({})", one.k, one.v, one.name))
        .collect();
    format!("f16 and bf16 (not listed), {}", pairs.join(", "))
}

/// `hf_quant_config.json`, or the part of `config.json` that repeats it. Other fields are about
/// weights and are passed over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelOptFile {
    /// What wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<ModelOptProducer>,
    /// In `hf_quant_config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<ModelOptKv>,
    /// In `config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization_config: Option<ModelOptKv>,
}

/// What wrote a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelOptProducer {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// What is said of keys and values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelOptKv {
    /// The algorithm of all layers, or `MIXED_PRECISION`.
    #[serde(default)]
    pub kv_cache_quant_algo: Option<String>,
    /// The algorithm of each attention module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_quantized_layers: Option<BTreeMap<String, ModelOptLayer>>,
    /// The version of that list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_schema_version: Option<u64>,
    /// The algorithm of all layers in another form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache_scheme: Option<ModelOptScheme>,
}

/// The algorithm of one attention module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelOptLayer {
    /// Its name.
    pub quant_algo: String,
    /// Elements that share a scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u64>,
}

/// The algorithm of all layers in the form of `config.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ModelOptScheme {
    /// By name.
    Name(String),
    /// By the form of its codes.
    Codes {
        /// Bits of a code.
        num_bits: u64,
        /// `float` or `int`.
        #[serde(rename = "type")]
        kind: String,
    },
}

impl ModelOptFile {
    /// What it says of keys and values, if anything.
    pub fn kv(&self) -> Option<&ModelOptKv> {
        self.quantization
            .as_ref()
            .or(self.quantization_config.as_ref())
    }
}

impl ModelOptKv {
    /// The names of the formats of keys and values of each layer; `f16` where nothing is said.
    ///
    /// `FP8` becomes `fp8` (a scale a block and head), which takes in whatever the checkpoint's
    /// scales would.
    ///
    /// # Errors
    /// Whatever has no counterpart or contradicts itself, by name.
    pub fn formats(&self, n_layers: usize) -> Result<Vec<(String, String)>, ModelOptError> {
        if let Some(got) = self.kv_cache_schema_version
            && got != SCHEMA_VERSION
        {
            return Err(ModelOptError::SchemaVersion { got });
        }
        let whole = self.whole()?;
        let Some(modules) = &self.kv_cache_quantized_layers else {
            return match whole {
                Some(MIXED) => Err(ModelOptError::NoLayers),
                Some(name) => {
                    let algorithm = algorithm("kv_cache_quant_algo", name)?;
                    let formats = (algorithm.k.to_owned(), algorithm.v.to_owned());
                    Ok(vec![formats; n_layers])
                }
                None => Ok(vec![not_quantised(); n_layers]),
            };
        };
        let mut seen: BTreeMap<usize, &str> = BTreeMap::new();
        let mut out = vec![not_quantised(); n_layers];
        for (module, entry) in modules {
            let layer = layer_number(module).ok_or_else(|| ModelOptError::NoLayerNumber {
                module: module.clone(),
            })?;
            let Some(formats) = out.get_mut(layer) else {
                return Err(ModelOptError::OutOfRange {
                    module: module.clone(),
                    layer,
                    n_layers,
                });
            };
            if let Some(other) = seen.insert(layer, module) {
                return Err(ModelOptError::Twice {
                    module: module.clone(),
                    other: other.to_owned(),
                    layer,
                });
            }
            let name = entry.quant_algo.as_str();
            let algorithm = algorithm(module, name)?;
            if let Some(whole) = whole.filter(|&whole| whole != MIXED && whole != name) {
                return Err(ModelOptError::Contradiction {
                    module: module.clone(),
                    layer: name.to_owned(),
                    whole: whole.to_owned(),
                });
            }
            if let (Some(group_size), Some(wanted)) = (entry.group_size, algorithm.group_size)
                && group_size != wanted
            {
                return Err(ModelOptError::GroupSize {
                    module: module.clone(),
                    algorithm: name.to_owned(),
                    group_size,
                    wanted,
                });
            }
            *formats = (algorithm.k.to_owned(), algorithm.v.to_owned());
        }
        Ok(out)
    }

    /// The plan.
    ///
    /// # Errors
    /// As [`ModelOptKv::formats`], and a format that this program does not have.
    pub fn plan(&self, n_layers: usize) -> Result<KvPlan, ModelOptError> {
        Ok(plan_of_formats(&self.formats(n_layers)?)?)
    }

    /// Says it of the formats of keys and values of each layer; `module` names a layer's attention
    /// module, as `model.layers.3.self_attn`.
    ///
    /// Layers in f16 or bf16 are not listed. `fp8s1` is written as `FP8`: its scale is the
    /// checkpoint's.
    ///
    /// # Errors
    /// Formats that ModelOpt has no name for.
    pub fn of_formats(
        formats: &[(String, String)],
        module: impl Fn(usize) -> String,
    ) -> Result<Self, ModelOptError> {
        let without_scale = |name: &str| if name == "fp8s1" { "fp8" } else { name }.to_owned();
        let mut modules = BTreeMap::new();
        for (layer, (k, v)) in formats.iter().enumerate() {
            if k == v && (k == "f16" || k == "bf16") {
                continue;
            }
            let (same_k, same_v) = (without_scale(k), without_scale(v));
            let Some(algorithm) = ALGORITHMS
                .iter()
                .find(|one| one.k == same_k && one.v == same_v)
            else {
                return Err(ModelOptError::NoName {
                    layer,
                    k: k.clone(),
                    v: v.clone(),
                });
            };
            let entry = ModelOptLayer {
                quant_algo: algorithm.name.to_owned(),
                group_size: None,
            };
            if modules.insert(module(layer), entry).is_some() {
                return Err(ModelOptError::Twice {
                    module: module(layer),
                    other: module(layer),
                    layer,
                });
            }
        }
        let Some(first) = modules.values().next() else {
            return Ok(Self::default());
        };
        // A reader that knows nothing of the list would give a single name to every layer.
        let uniform = modules.len() == formats.len() && modules.values().all(|one| one == first);
        let whole = if uniform { &first.quant_algo } else { MIXED };
        Ok(Self {
            kv_cache_quant_algo: Some(whole.to_owned()),
            kv_cache_schema_version: Some(SCHEMA_VERSION),
            kv_cache_quantized_layers: Some(modules),
            kv_cache_scheme: None,
        })
    }

    /// The algorithm said of all layers, by either field.
    fn whole(&self) -> Result<Option<&str>, ModelOptError> {
        let scheme = match &self.kv_cache_scheme {
            None => None,
            Some(ModelOptScheme::Name(name)) => Some(name.as_str()),
            Some(ModelOptScheme::Codes { num_bits, kind }) => match (num_bits, kind.as_str()) {
                (8, "float") => Some("FP8"),
                (8, "int") => Some("INT8"),
                _ => {
                    return Err(ModelOptError::UnknownScheme {
                        num_bits: *num_bits,
                        kind: kind.clone(),
                    });
                }
            },
        };
        match (self.kv_cache_quant_algo.as_deref(), scheme) {
            (Some(whole), Some(scheme)) if whole != scheme => Err(ModelOptError::Contradiction {
                module: "kv_cache_scheme".to_owned(),
                layer: scheme.to_owned(),
                whole: whole.to_owned(),
            }),
            (whole, scheme) => Ok(whole.or(scheme)),
        }
    }
}

fn not_quantised() -> (String, String) {
    (NOT_QUANTISED.to_owned(), NOT_QUANTISED.to_owned())
}

fn algorithm(place: &str, name: &str) -> Result<&'static Algorithm, ModelOptError> {
    ALGORITHMS
        .iter()
        .find(|one| one.name == name)
        .ok_or_else(|| ModelOptError::UnknownAlgorithm {
            place: place.to_owned(),
            name: name.to_owned(),
        })
}

/// The number after the first `layers`, `h` or `blocks` of a module's path.
fn layer_number(module: &str) -> Option<usize> {
    let parts: Vec<&str> = module.split('.').collect();
    parts.windows(2).find_map(|pair| {
        let digits = pair[1].bytes().all(|byte| byte.is_ascii_digit());
        let list = matches!(pair[0], "layers" | "h" | "blocks");
        (list && digits).then(|| pair[1].parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, ModelOptError> {
        let file: ModelOptFile = serde_json::from_str(text).unwrap();
        let formats = file.kv().unwrap().formats(3)?;
        Ok(formats
            .into_iter()
            .map(|(k, v)| format!("{k}/{v}"))
            .collect())
    }

    fn refused(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn each_layer_has_what_is_said_of_it() {
        let mixed = r#"{"producer": {"name": "modelopt", "version": "0.46.0"}, "quantization": {
            "quant_algo": null, "quantized_layers": {}, "exclude_modules": ["lm_head"],
            "kv_cache_quant_algo": "MIXED_PRECISION",
            "kv_cache_quantized_layers": {
                "model.layers.2.self_attn": {"quant_algo": "NVFP4", "group_size": 16},
                "model.layers.0.self_attn": {"quant_algo": "FP8_K_NVFP4_V"}},
            "kv_cache_schema_version": 1}}"#;
        assert_eq!(
            read(mixed).unwrap(),
            ["fp8/nvfp4", "f16/f16", "nvfp4/nvfp4"]
        );
        let whole = r#"{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}"#;
        assert_eq!(read(whole).unwrap(), ["fp8/fp8"; 3]);
        let none = r#"{"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null}}"#;
        assert_eq!(read(none).unwrap(), ["f16/f16"; 3]);
        let config = r#"{"model_type": "llama", "quantization_config": {"quant_method": "modelopt",
            "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"}}}"#;
        assert_eq!(read(config).unwrap(), ["fp8/fp8"; 3]);
        let named = r#"{"quantization_config": {"kv_cache_scheme": "NVFP4"}}"#;
        assert_eq!(read(named).unwrap(), ["nvfp4/nvfp4"; 3]);
        let part = r#"{"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "int"},
            "kv_cache_quantized_layers": {"transformer.h.1.attn": {"quant_algo": "INT8"}}}}"#;
        assert_eq!(read(part).unwrap(), ["f16/f16", "int8/int8", "f16/f16"]);
    }

    #[test]
    fn what_has_no_counterpart_is_refused_by_name() {
        let whole = |fields: &str| refused(&format!(r#"{{"quantization": {{{fields}}}}}"#));
        let layers = |layers: &str| {
            whole(&format!(
                r#""kv_cache_quant_algo": "MIXED_PRECISION", "kv_cache_quantized_layers": {{{layers}}}"#
            ))
        };
        let cases = [
            (
                whole(r#""kv_cache_quant_algo": "NVFP4_AFFINE""#),
                "kv_cache_quant_algo: the KV algorithm \"NVFP4_AFFINE\"",
            ),
            (
                whole(r#""kv_cache_quant_algo": "MIXED_PRECISION""#),
                "no kv_cache_quantized_layers",
            ),
            (
                whole(r#""kv_cache_schema_version": 2"#),
                "kv_cache_schema_version 2",
            ),
            (
                whole(r#""kv_cache_scheme": {"num_bits": 4, "type": "float"}"#),
                "4 bits and type \"float\"",
            ),
            (
                whole(r#""kv_cache_quant_algo": "FP8", "kv_cache_scheme": "NVFP4""#),
                "kv_cache_scheme: NVFP4 contradicts kv_cache_quant_algo FP8",
            ),
            (
                whole(
                    r#""kv_cache_quant_algo": "FP8",
                    "kv_cache_quantized_layers": {"layers.0": {"quant_algo": "NVFP4"}}"#,
                ),
                "layers.0: NVFP4 contradicts",
            ),
            (
                layers(r#""model.layers.1.self_attn": {"quant_algo": "FP4"}"#),
                "model.layers.1.self_attn: the KV algorithm \"FP4\" has no counterpart here; known are FP8",
            ),
            (
                layers(r#""model.layers.1.self_attn": {"quant_algo": "NVFP4", "group_size": 32}"#),
                "NVFP4 with groups of 32",
            ),
            (
                layers(r#""attn0": {"quant_algo": "FP8"}"#),
                "\"attn0\" does not say which layer",
            ),
            (
                layers(r#""layers.x": {"quant_algo": "FP8"}"#),
                "does not say which layer",
            ),
            (
                layers(r#""a.layers.3.b": {"quant_algo": "FP8"}"#),
                "layer 3, the model has 3",
            ),
            (
                layers(
                    r#""a.layers.1.b": {"quant_algo": "FP8"}, "c.layers.1.b": {"quant_algo": "FP8"}"#,
                ),
                "are both layer 1",
            ),
        ];
        for (error, message) in cases {
            assert!(error.contains(message), "{error} does not say {message}");
        }
        let unknown = r#"{"quantization": {"kv_cache_quantized_layers":
            {"layers.0": {"quant_algo": "FP8", "axis": 1}}}}"#;
        assert!(serde_json::from_str::<ModelOptFile>(unknown).is_err());
    }

    fn pairs(names: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        names.iter().map(owned).collect()
    }

    fn module(layer: usize) -> String {
        format!("model.layers.{layer}.self_attn")
    }

    #[test]
    fn what_has_a_name_goes_round() {
        for formats in [
            pairs(&[
                ("f16", "f16"),
                ("fp8", "fp8"),
                ("nvfp4", "nvfp4"),
                ("fp8", "nvfp4"),
            ]),
            pairs(&[("int8", "int8"); 12]),
            pairs(&[("f16", "f16"); 2]),
            pairs(&[("f16", "f16"), ("fp8", "fp8")]),
        ] {
            let kv = ModelOptKv::of_formats(&formats, module).unwrap();
            let file = ModelOptFile {
                quantization: Some(kv),
                ..ModelOptFile::default()
            };
            let text = serde_json::to_string(&file).unwrap();
            let read: ModelOptFile = serde_json::from_str(&text).unwrap();
            assert_eq!(read, file);
            assert_eq!(read.kv().unwrap().formats(formats.len()).unwrap(), formats);
        }
    }

    #[test]
    fn one_name_for_all_only_where_all_have_it() {
        let whole = |formats: &[(&str, &str)]| {
            let kv = ModelOptKv::of_formats(&pairs(formats), module).unwrap();
            kv.kv_cache_quant_algo
        };
        assert_eq!(
            whole(&[("fp8", "fp8"), ("fp8s1", "fp8s1")]).as_deref(),
            Some("FP8")
        );
        assert_eq!(
            whole(&[("fp8", "fp8"), ("bf16", "bf16")]).as_deref(),
            Some(MIXED)
        );
        assert_eq!(whole(&[("f16", "f16")]), None);
    }

    #[test]
    fn formats_without_a_name_are_refused() {
        let formats = pairs(&[("f16", "f16"), ("fp8", "int4")]);
        let error = ModelOptKv::of_formats(&formats, module)
            .unwrap_err()
            .to_string();
        assert!(error.contains("layer 1") && error.contains("keys in fp8 with values in int4"));
        assert!(error.contains("fp8/nvfp4 (FP8_K_NVFP4_V)"), "{error}");
        assert!(ModelOptKv::of_formats(&pairs(&[("f16", "f32")]), module).is_err());
        let same = ModelOptKv::of_formats(&pairs(&[("fp8", "fp8"); 2]), |_| "m".to_owned());
        assert!(matches!(same, Err(ModelOptError::Twice { layer: 1, .. })));
    }

    #[test]
    fn a_plan_has_the_formats() {
        let none = ModelOptKv::default();
        assert_eq!(
            none.plan(2).unwrap(),
            KvPlan::uniform(2, crate::KvFormat::F16)
        );
    }
}
