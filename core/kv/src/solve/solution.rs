//! The chosen plan, and why each of its layers is as it is.

use super::budget::KvBudget;
use super::error::{SolveError, UnknownLayerFormat};
use super::sensitivity::Candidate;
use crate::KvPlan;
use kvant_quant::{KvFormat, UnknownKvFormat};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A plan under a budget: plain data, for reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solution {
    /// The budget.
    pub budget: KvBudget,
    /// The budget in bytes of its measure ([`KvBudget::measure`]).
    pub limit_bytes: u64,
    /// What the plan takes of it.
    pub bytes: u64,
    /// Bytes that a token adds to a long sequence (layers that grow with it).
    pub bytes_per_token: f64,
    /// The same as bits an element, scales included.
    pub average_bits: f64,
    /// Predicted loss: the sum over layers of what each loses alone, in nats.
    pub loss: f64,
    /// No choice of these candidates within the budget has a smaller sum (bound of the linear
    /// relaxation). `loss - lower_bound` is the most that is given away.
    pub lower_bound: f64,
    /// Whether no choice of these candidates (one a cluster) within the budget has a smaller sum,
    /// for certain.
    pub exact: bool,
    /// The price at the budget: loss that one more byte of the measure would save.
    pub price: f64,
    /// Layers that were decided together.
    pub clusters: Vec<Vec<usize>>,
    /// One entry a layer.
    pub layers: Vec<LayerChoice>,
}

/// What one layer was given, and what it could have been.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerChoice {
    /// Its cluster: an index into [`Solution::clusters`].
    pub cluster: usize,
    /// What it was given.
    pub chosen: Candidate,
    /// All that was measured, in the order of the tables.
    pub considered: Vec<Considered>,
    /// Whether a price a byte exists at which it is the best choice; if not, it fills a gap that
    /// whole choices leave.
    pub at_a_price: bool,
    /// The next dearer choice that is not dominated.
    pub up: Option<ChoiceStep>,
    /// The next cheaper choice that is not dominated.
    pub down: Option<ChoiceStep>,
}

/// A candidate and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Considered {
    /// The candidate.
    pub candidate: Candidate,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Verdict {
    /// It is in the plan.
    Chosen,
    /// It is in the Pareto set of the layer.
    Kept,
    /// Another takes no more bytes and loses no more.
    Dominated {
        /// The other's [`Candidate::name`].
        by: String,
    },
}

/// From the choice made to another, for this layer alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceStep {
    /// The other.
    pub to: Candidate,
    /// Bytes a block that it takes more (below 0: less).
    pub block_bytes: i64,
    /// Loss that it has more (below 0: less), in nats.
    pub loss: f64,
    /// Loss a byte of a block: what the step up would save, or the step down would give back.
    pub price: f64,
}

/// The plan of the names of formats of keys and values, a layer each.
///
/// # Errors
/// A name that this program does not have.
pub fn plan_of_formats(formats: &[(String, String)]) -> Result<KvPlan, UnknownLayerFormat> {
    let mut plan = KvPlan::uniform(formats.len(), KvFormat::F16);
    for (layer, ((k, v), to)) in formats.iter().zip(&mut plan.layers).enumerate() {
        let format = |name: &str| {
            name.parse().map_err(|unknown: UnknownKvFormat| {
                let problem = unknown.to_string();
                UnknownLayerFormat { layer, problem }
            })
        };
        to.k = format(k)?;
        to.v = format(v)?;
    }
    Ok(plan)
}

impl Solution {
    /// The names of the formats of keys and values, a layer each.
    pub fn formats(&self) -> Vec<(String, String)> {
        let names = |layer: &LayerChoice| (layer.chosen.k.clone(), layer.chosen.v.clone());
        self.layers.iter().map(names).collect()
    }

    /// The plan.
    ///
    /// # Errors
    /// A format that this program does not have, or a layer that drops tokens.
    pub fn plan(&self) -> Result<KvPlan, SolveError> {
        for (l, layer) in self.layers.iter().enumerate() {
            let kept = layer.chosen.kept;
            if kept != 1.0 {
                return Err(SolveError::Retention { layer: l, kept });
            }
        }
        Ok(plan_of_formats(&self.formats())?)
    }

    /// Why a layer is as it is, in one line. `None` for a layer that is not there.
    pub fn reason(&self, layer: usize) -> Option<String> {
        let choice = self.layers.get(layer)?;
        let chosen = &choice.chosen;
        let mut out = format!(
            "layer {layer}: {}, {} bytes a block, loss {:.3e}",
            chosen.name(),
            chosen.block_bytes,
            chosen.loss
        );
        let count = |is: fn(&Verdict) -> bool| {
            let verdicts = choice.considered.iter().map(|one| &one.verdict);
            verdicts.filter(|verdict| is(verdict)).count()
        };
        let dominated = count(|verdict| matches!(verdict, Verdict::Dominated { .. }));
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "; {} considered, {dominated} dominated",
            choice.considered.len()
        );
        if let Some(up) = &choice.up {
            let _ = write!(
                out,
                "; up {} would take {} bytes more and save {:.3e}, {:.3e} a byte",
                up.to.name(),
                up.block_bytes,
                -up.loss,
                up.price
            );
        }
        if let Some(down) = &choice.down {
            let _ = write!(
                out,
                "; down {} would free {} bytes and lose {:.3e} more, {:.3e} a byte",
                down.to.name(),
                -down.block_bytes,
                down.loss,
                down.price
            );
        }
        if !choice.at_a_price {
            out.push_str("; it fills what whole choices leave of the budget");
        }
        if let [first, .., last] = self.clusters.get(choice.cluster)?[..] {
            let n = self.clusters[choice.cluster].len();
            let _ = write!(out, "; decided with {} like it, {first} to {last}", n - 1);
        }
        Some(out)
    }
}

/// A plan of the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontPoint {
    /// Bytes, in the front's measure.
    pub bytes: u64,
    /// Predicted loss, in nats.
    pub loss: f64,
    /// The choice of each layer, as an index into [`Front::candidates`] of the layer.
    pub chosen: Vec<usize>,
}

/// All plans of which none is both cheaper and better, or as many as were asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Front {
    /// Whether every plan between two points is known to be no better than the earlier one, where
    /// nothing was left out; if not, the points are corners of the front's lower convex hull.
    pub exact: bool,
    /// Plans of the whole front, before any were left out.
    pub n_plans: usize,
    /// The candidates of each layer that none dominates, by ascending bytes.
    pub candidates: Vec<Vec<Candidate>>,
    /// Ascending bytes, descending loss. The cheapest and the best are always there.
    pub points: Vec<FrontPoint>,
}

impl Front {
    /// The names of the formats of keys and values of a point, a layer each. `None` for a point that
    /// is not of this front.
    pub fn formats(&self, point: &FrontPoint) -> Option<Vec<(String, String)>> {
        if point.chosen.len() != self.candidates.len() {
            return None;
        }
        let names = |(set, &i): (&Vec<Candidate>, &usize)| {
            let candidate = set.get(i)?;
            Some((candidate.k.clone(), candidate.v.clone()))
        };
        self.candidates
            .iter()
            .zip(&point.chosen)
            .map(names)
            .collect()
    }
}
