//! What was measured: how much a model's predictions change for each format of each layer.

use super::error::SensitivityError;
use serde::{Deserialize, Serialize};

/// The version of [`Sensitivity`] that this crate reads and writes.
pub const SENSITIVITY_VERSION: u32 = 1;

/// Most layers of a [`Sensitivity`].
pub const MAX_LAYERS: usize = 4096;

/// Most candidates of a layer: every key format with every value format, and pairs.
pub const MAX_CANDIDATES: usize = 4096;

/// Largest loss that is taken for a measurement, in nats.
const MAX_LOSS: f64 = 1e9;

/// Most bytes of one layer's block.
const MAX_BLOCK_BYTES: u64 = 1 << 40;

/// The loss of every candidate format of every layer: plain data, JSON in and out.
///
/// A loss is the mean over predicted tokens of `KL(p || q) = Σ p ln(p / q)` in nats, where `p` is the
/// distribution of the next token with f16 blocks in all layers and `q` that with one layer's blocks
/// in the candidate's format. Zero where nothing changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitivity {
    /// [`SENSITIVITY_VERSION`].
    pub version: u32,
    /// Which model was measured.
    pub model: MeasuredModel,
    /// Name of the text that was measured on.
    pub text: String,
    /// Predicted tokens that the means are over.
    pub tokens: u64,
    /// One entry a layer that keeps keys and values, in the order of the program.
    pub layers: Vec<LayerSensitivity>,
}

/// A model by name and content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredModel {
    /// Its name, for people.
    pub name: String,
    /// Hash of its content, hexadecimal. A plan for other weights is another plan.
    pub hash: String,
}

/// What one layer loses.
///
/// Its candidates are every format of `keys` with every format of `values`, their losses added, and
/// the `pairs`. A pair measured with all tokens kept replaces the sum of its sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSensitivity {
    /// Elements of keys and values a token: `n_kv_heads * (head_dim_k + head_dim_v)`.
    pub elements_per_token: u64,
    /// Tokens that a position sees, itself included; absent when it sees all before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Formats of keys, measured with values in f16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<SideLoss>,
    /// Formats of values, measured with keys in f16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<SideLoss>,
    /// Formats of both, measured together, and of fewer tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairLoss>,
}

/// The loss of one format of keys, or of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideLoss {
    /// Name of the format.
    pub format: String,
    /// Bytes of a sealed block of [`KV_BLOCK_TOKENS`](crate::KV_BLOCK_TOKENS) tokens, scales included.
    pub block_bytes: u64,
    /// Loss, in nats.
    pub loss: f64,
    /// Carried over from a similar layer ([`Sensitivity::spread`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub estimated: bool,
}

/// The loss of a format of keys and one of values together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairLoss {
    /// Name of the keys' format.
    pub k: String,
    /// Name of the values' format.
    pub v: String,
    /// Part of the tokens that is kept, above 0 and at most 1.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub kept: f64,
    /// Bytes of keys and values for [`KV_BLOCK_TOKENS`](crate::KV_BLOCK_TOKENS) tokens of text:
    /// those of a block where all are kept, the mean where not ([`kept_bytes`]).
    pub block_bytes: u64,
    /// Loss, in nats.
    pub loss: f64,
    /// Carried over from a similar layer ([`Sensitivity::spread`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub estimated: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn all() -> f64 {
    1.0
}

fn is_all(kept: &f64) -> bool {
    *kept == 1.0
}

/// Mean bytes of `block_bytes` when the part `kept` of all tokens is kept, rounded up.
pub fn kept_bytes(block_bytes: u64, kept: f64) -> u64 {
    if kept >= 1.0 {
        return block_bytes;
    }
    ((block_bytes as f64 * kept).ceil() as u64).min(block_bytes)
}

/// What a layer may be given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Name of the keys' format.
    pub k: String,
    /// Name of the values' format.
    pub v: String,
    /// Part of the tokens that is kept.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub kept: f64,
    /// Bytes of this layer's keys and values for [`KV_BLOCK_TOKENS`](crate::KV_BLOCK_TOKENS) tokens.
    pub block_bytes: u64,
    /// Loss of this layer alone, in nats.
    pub loss: f64,
    /// Where the loss is from.
    pub source: LossSource,
}

/// Where a candidate's loss is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossSource {
    /// Keys and values were measured together.
    Pair,
    /// Keys and values were measured apart; the losses are added.
    Sum,
    /// At least one part is carried over from a similar layer.
    Estimate,
}

impl Candidate {
    /// `fp8/int4`, with the part of tokens that is kept: `fp8/int4 of 50 %`.
    pub fn name(&self) -> String {
        let mut name = if self.k == self.v {
            self.k.clone()
        } else {
            format!("{}/{}", self.k, self.v)
        };
        if self.kept != 1.0 {
            name.push_str(&format!(" of {} %", self.kept * 100.0));
        }
        name
    }

    /// Whether both are the same choice, whatever it costs.
    pub(crate) fn is_same_choice(&self, other: &Self) -> bool {
        self.k == other.k && self.v == other.v && self.kept == other.kept
    }
}

impl LayerSensitivity {
    /// Every candidate, in the order of the tables: keys, then values, then pairs.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut out = Vec::with_capacity(self.count().unwrap_or(0).min(MAX_CANDIDATES));
        for k in &self.keys {
            for v in &self.values {
                out.push(Candidate {
                    k: k.format.clone(),
                    v: v.format.clone(),
                    kept: 1.0,
                    block_bytes: k.block_bytes.saturating_add(v.block_bytes),
                    loss: k.loss + v.loss,
                    source: if k.estimated || v.estimated {
                        LossSource::Estimate
                    } else {
                        LossSource::Sum
                    },
                });
            }
        }
        let sums = out.len();
        for pair in &self.pairs {
            let pair = Candidate {
                k: pair.k.clone(),
                v: pair.v.clone(),
                kept: pair.kept,
                block_bytes: pair.block_bytes,
                loss: pair.loss,
                source: if pair.estimated {
                    LossSource::Estimate
                } else {
                    LossSource::Pair
                },
            };
            match out[..sums].iter_mut().find(|sum| sum.is_same_choice(&pair)) {
                // An estimate is no better than a sum of measurements.
                Some(sum) if pair.source == LossSource::Pair => *sum = pair,
                Some(_) => {}
                None => out.push(pair),
            }
        }
        out
    }

    fn count(&self) -> Option<usize> {
        self.keys
            .len()
            .checked_mul(self.values.len())?
            .checked_add(self.pairs.len())
    }

    fn validate(&self, layer: usize) -> Result<(), SensitivityError> {
        let range = |what: &str, value: u64, max: u64| {
            if (1..=max).contains(&value) {
                return Ok(());
            }
            Err(SensitivityError::Number {
                layer,
                what: what.to_owned(),
                value: value as f64,
                wanted: format!("1 to {max}"),
            })
        };
        range(
            "elements_per_token",
            self.elements_per_token,
            MAX_BLOCK_BYTES,
        )?;
        if let Some(window) = self.window {
            range("window", window, u64::from(u32::MAX))?;
        }
        let count = self.count().unwrap_or(usize::MAX);
        if count > MAX_CANDIDATES {
            return Err(SensitivityError::TooMany {
                what: format!("candidates of layer {layer}"),
                got: count,
                max: MAX_CANDIDATES,
            });
        }
        if count == 0 {
            return Err(SensitivityError::NoCandidates { layer });
        }
        let loss = |what: String, loss: f64| {
            if (0.0..=MAX_LOSS).contains(&loss) {
                return Ok(());
            }
            Err(SensitivityError::Number {
                layer,
                what,
                value: loss,
                wanted: format!("0 to {MAX_LOSS:e} nats"),
            })
        };
        for (side, table) in [("keys", &self.keys), ("values", &self.values)] {
            for (i, entry) in table.iter().enumerate() {
                let name = format!("{side} {:?}", entry.format);
                if table[..i].iter().any(|other| other.format == entry.format) {
                    return Err(SensitivityError::Twice { layer, what: name });
                }
                range(
                    &format!("block_bytes of {name}"),
                    entry.block_bytes,
                    MAX_BLOCK_BYTES,
                )?;
                loss(format!("loss of {name}"), entry.loss)?;
            }
        }
        for (i, pair) in self.pairs.iter().enumerate() {
            let name = format!("pair {:?}/{:?}", pair.k, pair.v);
            let same = |other: &PairLoss| {
                other.k == pair.k && other.v == pair.v && other.kept == pair.kept
            };
            if self.pairs[..i].iter().any(same) {
                return Err(SensitivityError::Twice { layer, what: name });
            }
            range(
                &format!("block_bytes of {name}"),
                pair.block_bytes,
                MAX_BLOCK_BYTES,
            )?;
            loss(format!("loss of {name}"), pair.loss)?;
            if !(pair.kept > 0.0 && pair.kept <= 1.0) {
                return Err(SensitivityError::Number {
                    layer,
                    what: format!("kept of {name}"),
                    value: pair.kept,
                    wanted: "above 0 and at most 1".to_owned(),
                });
            }
        }
        Ok(())
    }
}

impl Sensitivity {
    /// Checks the version and every number.
    ///
    /// # Errors
    /// The first thing that is wrong, with its layer and what would do.
    pub fn validate(&self) -> Result<(), SensitivityError> {
        if self.version != SENSITIVITY_VERSION {
            return Err(SensitivityError::Version { got: self.version });
        }
        if self.layers.is_empty() {
            return Err(SensitivityError::NoLayers);
        }
        if self.layers.len() > MAX_LAYERS {
            return Err(SensitivityError::TooMany {
                what: "layers".to_owned(),
                got: self.layers.len(),
                max: MAX_LAYERS,
            });
        }
        for (layer, entry) in self.layers.iter().enumerate() {
            entry.validate(layer)?;
        }
        Ok(())
    }

    /// Gives each layer of a cluster what was measured only for the cluster's first, so that a
    /// screening of all layers by a few formats, and one layer a cluster by the others, is enough.
    ///
    /// A loss is carried over times `Σ loss of the layer / Σ loss of the first`, both over what was
    /// measured for the two, or times 1 where that is nothing; it is marked as estimated.
    pub fn spread(&mut self, clusters: &[Vec<usize>]) {
        for cluster in clusters {
            let Some((&first, rest)) = cluster.split_first() else {
                continue;
            };
            let Some(source) = self.layers.get(first).cloned() else {
                continue;
            };
            for &layer in rest {
                if let Some(layer) = self.layers.get_mut(layer) {
                    spread_table(&source.keys, &mut layer.keys);
                    spread_table(&source.values, &mut layer.values);
                    spread_table(&source.pairs, &mut layer.pairs);
                }
            }
        }
    }
}

/// A row of a table of losses.
trait Row: Clone {
    fn is_same(&self, other: &Self) -> bool;
    fn loss(&self) -> f64;
    fn estimate(&self, loss: f64) -> Self;
}

impl Row for SideLoss {
    fn is_same(&self, other: &Self) -> bool {
        self.format == other.format
    }
    fn loss(&self) -> f64 {
        self.loss
    }
    fn estimate(&self, loss: f64) -> Self {
        Self {
            loss,
            estimated: true,
            ..self.clone()
        }
    }
}

impl Row for PairLoss {
    fn is_same(&self, other: &Self) -> bool {
        self.k == other.k && self.v == other.v && self.kept == other.kept
    }
    fn loss(&self) -> f64 {
        self.loss
    }
    fn estimate(&self, loss: f64) -> Self {
        Self {
            loss,
            estimated: true,
            ..self.clone()
        }
    }
}

fn spread_table<R: Row>(source: &[R], table: &mut Vec<R>) {
    let (mut own, mut other) = (0.0, 0.0);
    for row in source {
        if let Some(mine) = table.iter().find(|mine| mine.is_same(row)) {
            own += mine.loss();
            other += row.loss();
        }
    }
    let scale = if other > 0.0 { own / other } else { 1.0 };
    for row in source {
        if !table.iter().any(|mine| mine.is_same(row)) {
            table.push(row.estimate((row.loss() * scale).min(MAX_LOSS)));
        }
    }
}
