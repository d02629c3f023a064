//! Which format each layer's keys and values take.

use crate::error::KvError;
use kvant_quant::{KvFormat, KvFormats};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The formats of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPlan {
    /// Format of sealed keys.
    #[serde(with = "format_name")]
    pub k: KvFormat,
    /// Format of sealed values.
    #[serde(with = "format_name")]
    pub v: KvFormat,
    /// Blocks at the beginning of a sequence that stay open when full (attention sinks).
    #[serde(default)]
    pub open_first_blocks: u32,
    /// Full blocks at the end of a sequence that stay open beside the one that fills.
    #[serde(default)]
    pub open_last_blocks: u32,
}

/// The formats of every layer: plain data, JSON in and out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvPlan {
    /// One entry a layer, in the order of the program.
    pub layers: Vec<LayerPlan>,
}

impl LayerPlan {
    /// The formats.
    pub fn formats(&self) -> KvFormats {
        KvFormats {
            k: self.k,
            v: self.v,
        }
    }
}

impl KvPlan {
    /// The same formats in all layers, nothing kept open. One format alone is that of keys and values.
    pub fn uniform(n_layers: usize, formats: impl Into<KvFormats>) -> Self {
        let KvFormats { k, v } = formats.into();
        let layer = LayerPlan {
            k,
            v,
            open_first_blocks: 0,
            open_last_blocks: 0,
        };
        Self {
            layers: vec![layer; n_layers],
        }
    }

    /// Checks that the plan is for a model of `n_layers` layers.
    pub fn validate(&self, n_layers: usize) -> Result<(), KvError> {
        if self.layers.len() != n_layers {
            return Err(KvError::Count {
                what: "layers of the KV plan",
                got: self.layers.len(),
                wanted: n_layers,
            });
        }
        Ok(())
    }
}

/// A summary for people: runs of equal layers, as `0-29:f16`; keys and values apart where they
/// differ, and blocks kept open where there are any, as `0-1:f16/int8 open 1+2`.
impl fmt::Display for KvPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = 0;
        for run in self.layers.chunk_by(|a, b| a == b) {
            let (layer, last) = (run[0], first + run.len() - 1);
            if first > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            write!(f, ":{}", layer.formats())?;
            if layer.open_first_blocks > 0 || layer.open_last_blocks > 0 {
                write!(
                    f,
                    " open {}+{}",
                    layer.open_first_blocks, layer.open_last_blocks
                )?;
            }
            first = last + 1;
        }
        Ok(())
    }
}

mod format_name {
    use super::*;
    use serde::de::Error;

    pub(super) fn serialize<S: Serializer>(format: &KvFormat, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(format.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<KvFormat, D::Error> {
        let name = String::deserialize(input)?;
        name.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_goes_round() {
        let mut plan = KvPlan::uniform(3, KvFormat::F16);
        plan.layers[1].open_last_blocks = 2;
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<KvPlan>(&text).unwrap(), plan);
        let short: KvPlan = serde_json::from_str(r#"{"layers":[{"k":"f16","v":"f16"}]}"#).unwrap();
        assert_eq!(short, KvPlan::uniform(1, KvFormat::F16));
    }

    #[test]
    fn keys_and_values_may_differ() {
        let formats: KvFormats = "f32/f16".parse().unwrap();
        let mut plan = KvPlan::uniform(4, formats);
        assert_eq!(plan.layers[3].formats(), formats);
        assert_eq!(plan.to_string(), "0-3:f32/f16");
        plan.layers[0].k = KvFormat::F16;
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<KvPlan>(&text).unwrap(), plan);
        assert_eq!(plan.to_string(), "0:f16 1-3:f32/f16");
    }

    #[test]
    fn unknown_formats_and_fields_are_errors() {
        let error = serde_json::from_str::<KvPlan>(r#"{"layers":[{"k":"f17","v":"f16"}]}"#)
            .unwrap_err()
            .to_string();
        assert!(error.contains("f17") && error.contains("f16"), "{error}");
        assert!(serde_json::from_str::<KvPlan>(r#"{"layers":[],"x":1}"#).is_err());
        assert!(
            serde_json::from_str::<KvPlan>(r#"{"layers":[{"k":"f16","v":"f16","w":1}]}"#).is_err()
        );
    }

    #[test]
    fn the_summary_joins_equal_layers() {
        let mut plan = KvPlan::uniform(30, KvFormat::F16);
        assert_eq!(plan.to_string(), "0-29:f16");
        plan.layers[0].open_first_blocks = 1;
        assert_eq!(plan.to_string(), "0:f16 open 1+0 1-29:f16");
        assert_eq!(KvPlan::uniform(0, KvFormat::F16).to_string(), "");
    }

    #[test]
    fn a_plan_for_another_model_is_refused() {
        assert!(KvPlan::uniform(3, KvFormat::F16).validate(4).is_err());
    }
}
