//! From measurements and a budget to a plan, and to the whole front of plans.

use super::budget::{KvBudget, KvMeasure, counted_elements};
use super::cluster::{ClusterRule, clusters, pareto_candidates};
use super::error::SolveError;
use super::greedy::{greedy, is_corner};
use super::knapsack::{HullFront, Item, Table, least_cost, relax, total_cost, total_loss};
use super::pareto::{Choice, pareto};
use super::sensitivity::{Candidate, Sensitivity};
use super::solution::{ChoiceStep, Considered, Front, FrontPoint, LayerChoice, Solution, Verdict};
use crate::KV_BLOCK_TOKENS;

/// How to solve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SolveOptions {
    /// When layers are decided together; `None`: each alone.
    pub clusters: Option<ClusterRule>,
    /// Most bytes of the table that finds the exact optimum. Where it would be larger, the choice is
    /// made by slopes and exchanges, and [`Solution::lower_bound`] says how far off it may be.
    pub table_bytes_max: usize,
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self {
            clusters: None,
            table_bytes_max: 64 << 20,
        }
    }
}

/// A layer's candidates and which of them none dominates.
struct Layer {
    candidates: Vec<Candidate>,
    /// Indices into `candidates`, ascending bytes.
    set: Vec<usize>,
}

/// The knapsack that a sensitivity makes in one measure.
struct Problem {
    layers: Vec<Layer>,
    clusters: Vec<Vec<usize>>,
    /// One a cluster; a choice's `id` is an index into the `set` of each member.
    items: Vec<Item>,
}

impl Problem {
    fn new(
        sensitivity: &Sensitivity,
        measure: KvMeasure,
        rule: Option<&ClusterRule>,
    ) -> Result<Self, SolveError> {
        let blocks = measure.blocks(sensitivity);
        let layer = |entry: &super::LayerSensitivity| {
            let candidates = entry.candidates();
            let set = pareto_candidates(&candidates);
            Layer { candidates, set }
        };
        let layers: Vec<Layer> = sensitivity.layers.iter().map(layer).collect();
        let clusters = clusters(sensitivity, rule);
        let mut dearest = 0u64;
        let mut items = Vec::with_capacity(clusters.len());
        for members in &clusters {
            let mut choices = Vec::new();
            for id in 0..layers[members[0]].set.len() {
                let (mut cost, mut loss) = (0u64, 0.0);
                for &l in members {
                    let candidate = &layers[l].candidates[layers[l].set[id]];
                    let bytes = candidate.block_bytes.checked_mul(blocks[l]);
                    cost = bytes
                        .and_then(|bytes| cost.checked_add(bytes))
                        .ok_or(SolveError::Overflow)?;
                    loss += candidate.loss;
                }
                choices.push(Choice { cost, loss, id });
            }
            let item = pareto(&choices);
            let last = item.last().map_or(0, |choice| choice.cost);
            dearest = dearest.checked_add(last).ok_or(SolveError::Overflow)?;
            items.push(item);
        }
        Ok(Self {
            layers,
            clusters,
            items,
        })
    }

    /// The choice of each layer, as an index into its `set`.
    fn by_layer(&self, chosen: &[usize]) -> Vec<usize> {
        let mut out = vec![0; self.layers.len()];
        for ((members, item), &i) in self.clusters.iter().zip(&self.items).zip(chosen) {
            for &l in members {
                out[l] = item[i].id;
            }
        }
        out
    }
}

/// The candidates that make the sum of losses least within a budget.
///
/// Minimise `Σ loss of the chosen candidate` over layers (or clusters, [`ClusterRule`]) subject to
/// `Σ bytes <= budget`, one candidate each: a multiple-choice knapsack. Losses of layers are taken to
/// add up. Of plans with equal loss the cheapest is chosen, of those the one that gives the lowest
/// layer the most bytes, then the next; of equal candidates the one measured first.
///
/// # Errors
/// Measurements or a budget that cannot be used; a budget below the cheapest plan, with what that
/// takes.
pub fn solve(
    sensitivity: &Sensitivity,
    budget: KvBudget,
    options: &SolveOptions,
) -> Result<Solution, SolveError> {
    sensitivity.validate()?;
    let limit_bytes = budget.limit_bytes(sensitivity)?;
    let measure = budget.measure();
    let problem = Problem::new(sensitivity, measure, options.clusters.as_ref())?;
    let items = &problem.items;
    let least_bytes = least_cost(items).ok_or(SolveError::Overflow)?;
    if limit_bytes < least_bytes {
        return Err(SolveError::Infeasible {
            given: budget.to_string(),
            limit_bytes,
            what: measure.to_string(),
            least_bytes,
            least: budget.with_bytes(least_bytes, sensitivity).to_string(),
        });
    }
    let table = Table::fill(items, limit_bytes, options.table_bytes_max);
    let chosen = match &table {
        Some(table) => table.best(),
        None => greedy(items, limit_bytes),
    };
    let relaxed = relax(items, limit_bytes);
    let loss = total_loss(items, &chosen);
    let lower_bound = relaxed.loss.min(loss);

    let by_layer = problem.by_layer(&chosen);
    let mut cluster_of = vec![0; by_layer.len()];
    for (cluster, members) in problem.clusters.iter().enumerate() {
        for &l in members {
            cluster_of[l] = cluster;
        }
    }
    let mut layers = Vec::with_capacity(by_layer.len());
    for (l, layer) in problem.layers.iter().enumerate() {
        let cluster = cluster_of[l];
        let at_a_price = is_corner(&items[cluster], chosen[cluster]);
        layers.push(explain(layer, by_layer[l], cluster, at_a_price));
    }
    let per_block: u64 = KvMeasure::Block
        .blocks(sensitivity)
        .iter()
        .zip(&layers)
        .map(|(&blocks, layer)| blocks * layer.chosen.block_bytes)
        .sum();
    Ok(Solution {
        budget,
        limit_bytes,
        bytes: total_cost(items, &chosen),
        bytes_per_token: per_block as f64 / KV_BLOCK_TOKENS as f64,
        average_bits: per_block as f64 * 8.0 / counted_elements(sensitivity) as f64,
        loss,
        lower_bound,
        exact: table.is_some() || loss <= lower_bound,
        price: relaxed.price,
        clusters: problem.clusters,
        layers,
    })
}

/// What a layer was given and what else there was. `chosen` is an index into the layer's `set`.
fn explain(layer: &Layer, chosen: usize, cluster: usize, at_a_price: bool) -> LayerChoice {
    let Layer { candidates, set } = layer;
    let of_set = |i: usize| &candidates[set[i]];
    let mut place = vec![None; candidates.len()];
    for (kept, &i) in set.iter().enumerate() {
        place[i] = Some(kept);
    }
    let considered = |(i, candidate): (usize, &Candidate)| {
        let verdict = match place[i] {
            Some(kept) if kept == chosen => Verdict::Chosen,
            Some(_) => Verdict::Kept,
            None => {
                // The dearest that costs no more has the least loss of those.
                let dearer = |&kept: &usize| candidates[kept].block_bytes <= candidate.block_bytes;
                let by = set.partition_point(dearer).saturating_sub(1);
                Verdict::Dominated {
                    by: of_set(by).name(),
                }
            }
        };
        Considered {
            candidate: candidate.clone(),
            verdict,
        }
    };
    let step = |to: usize| {
        let (from, to) = (of_set(chosen), of_set(to));
        let block_bytes = to.block_bytes as i64 - from.block_bytes as i64;
        let loss = to.loss - from.loss;
        ChoiceStep {
            to: to.clone(),
            block_bytes,
            loss,
            price: -loss / block_bytes as f64,
        }
    };
    LayerChoice {
        cluster,
        chosen: of_set(chosen).clone(),
        considered: candidates.iter().enumerate().map(considered).collect(),
        at_a_price,
        up: (chosen + 1 < set.len()).then(|| step(chosen + 1)),
        down: chosen.checked_sub(1).map(step),
    }
}

/// All plans of which none is both cheaper and better, at most `points_max` of them spread evenly
/// over the bytes. Nothing is measured again.
///
/// Where the table ([`SolveOptions::table_bytes_max`]) is small enough these are all there are; else
/// the corners of their lower convex hull, each of which is the best plan for its bytes.
///
/// # Errors
/// Measurements that cannot be used.
pub fn front(
    sensitivity: &Sensitivity,
    measure: KvMeasure,
    options: &SolveOptions,
    points_max: usize,
) -> Result<Front, SolveError> {
    sensitivity.validate()?;
    let tokens = match measure {
        KvMeasure::Block => 1,
        KvMeasure::Sequence { tokens } => tokens,
    };
    // A sequence has to be one that a budget can be given for.
    KvBudget::Sequence { tokens, bytes: 0 }.limit_bytes(sensitivity)?;
    let problem = Problem::new(sensitivity, measure, options.clusters.as_ref())?;
    let items = &problem.items;
    let point = |chosen: &[usize]| FrontPoint {
        bytes: total_cost(items, chosen),
        loss: total_loss(items, chosen),
        chosen: problem.by_layer(chosen),
    };
    let (exact, n_plans, points) = match Table::fill(items, u64::MAX, options.table_bytes_max) {
        Some(table) => {
            let costs = table.front();
            let bytes: Vec<u64> = costs.iter().map(|&cost| cost as u64).collect();
            let at = |i: usize| point(&table.chosen(costs[i]));
            let points = thin(&bytes, points_max).into_iter().map(at).collect();
            (true, costs.len(), points)
        }
        None => {
            let corners = HullFront::new(items);
            let bytes = corners.costs();
            let at = |i: usize| point(&corners.chosen(i));
            let points = thin(&bytes, points_max).into_iter().map(at).collect();
            (false, bytes.len(), points)
        }
    };
    let candidates = problem.layers.iter().map(|layer| {
        let of_set = |&i: &usize| layer.candidates[i].clone();
        layer.set.iter().map(of_set).collect()
    });
    Ok(Front {
        exact,
        n_plans,
        candidates: candidates.collect(),
        points,
    })
}

/// At most `max` (but 2) of ascending numbers, evenly spread: the first, the last, and of each goal
/// between the largest that does not pass it.
fn thin(bytes: &[u64], max: usize) -> Vec<usize> {
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else {
        return Vec::new();
    };
    let max = max.max(2);
    if bytes.len() <= max {
        return (0..bytes.len()).collect();
    }
    let goal = |i: usize| {
        let part = u128::from(last - first) * i as u128 / (max - 1) as u128;
        first + part as u64
    };
    let at = |i: usize| bytes.partition_point(|&b| b <= goal(i)) - 1;
    let mut out: Vec<usize> = (0..max).map(at).collect();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_both_ends_and_spreads_the_rest() {
        let bytes: Vec<u64> = vec![0, 1, 2, 3, 4, 50, 100];
        assert_eq!(thin(&bytes, 100), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(thin(&bytes, 3), [0, 5, 6]);
        assert_eq!(thin(&bytes, 0), [0, 6]);
        assert_eq!(thin(&bytes, 5), [0, 4, 5, 6]);
        assert_eq!(thin(&[], 5), [0; 0]);
        assert_eq!(thin(&[7], 5), [0]);
    }
}
