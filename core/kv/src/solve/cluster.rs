//! Layers alike enough to be decided, and measured, together.

use super::pareto::{Choice, pareto};
use super::sensitivity::{Candidate, Sensitivity};
use serde::{Deserialize, Serialize};

/// When two layers are alike: they have the same elements, window and Pareto set (formats, tokens
/// kept, bytes), and in each candidate of the set their losses differ by at most
/// `ratio * the larger one + floor`.
///
/// Clusters are made in the order of the layers: a layer joins the first cluster whose *first* layer
/// it is like, else it begins one. So no two members are further apart than twice the rule, and the
/// same measurements give the same clusters. (KVTuner, Li et al. 2025, clusters by density; it
/// depends on the order of a search.)
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterRule {
    /// Part of the larger loss, 0 to 1.
    pub ratio: f64,
    /// Loss, in nats, that is noise of the measurement.
    pub floor: f64,
}

impl Default for ClusterRule {
    fn default() -> Self {
        Self {
            ratio: 0.25,
            floor: 1e-6,
        }
    }
}

/// The candidates of a layer that no other dominates, by bytes of a block and loss; ascending bytes.
pub(crate) fn pareto_candidates(candidates: &[Candidate]) -> Vec<usize> {
    let choice = |(id, candidate): (usize, &Candidate)| Choice {
        cost: candidate.block_bytes,
        loss: candidate.loss,
        id,
    };
    let all: Vec<Choice> = candidates.iter().enumerate().map(choice).collect();
    pareto(&all).into_iter().map(|choice| choice.id).collect()
}

/// Groups alike layers, each group ascending and the groups by their first layer. With no rule every
/// layer is alone.
pub fn clusters(sensitivity: &Sensitivity, rule: Option<&ClusterRule>) -> Vec<Vec<usize>> {
    let Some(rule) = rule else {
        return (0..sensitivity.layers.len()).map(|l| vec![l]).collect();
    };
    let mut out: Vec<(Vec<Candidate>, Vec<usize>)> = Vec::new();
    for (l, layer) in sensitivity.layers.iter().enumerate() {
        let candidates = layer.candidates();
        let kept = pareto_candidates(&candidates);
        let set: Vec<Candidate> = kept.into_iter().map(|i| candidates[i].clone()).collect();
        let alike = |first: usize, other: &[Candidate]| {
            let first = &sensitivity.layers[first];
            first.elements_per_token == layer.elements_per_token
                && first.window == layer.window
                && other.len() == set.len()
                && other.iter().zip(&set).all(|(a, b)| {
                    let apart = (a.loss - b.loss).abs();
                    a.is_same_choice(b)
                        && a.block_bytes == b.block_bytes
                        && apart <= rule.ratio * a.loss.max(b.loss) + rule.floor
                })
        };
        match out
            .iter_mut()
            .find(|(other, members)| alike(members[0], other))
        {
            Some((_, members)) => members.push(l),
            None => out.push((set, vec![l])),
        }
    }
    out.into_iter().map(|(_, members)| members).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve::testing::{layer, sensitivity};

    #[test]
    fn alike_layers_join_the_first_that_they_are_like() {
        let like = |loss: f64| layer(&[(10, loss), (20, loss / 8.0), (30, loss)]);
        let mut all = sensitivity(vec![
            like(1.0),
            like(4.0),
            like(1.2),
            like(0.9),
            like(3.5),
            like(1.44),
        ]);
        let rule = ClusterRule {
            ratio: 0.2,
            floor: 0.0,
        };
        let found = clusters(&all, Some(&rule));
        // 1.44 is like 1.2 but not like 1.0, which decides.
        assert_eq!(found, [vec![0, 2, 3], vec![1, 4], vec![5]]);
        assert_eq!(clusters(&all, None).len(), 6);

        // Other elements, window, formats or bytes are another cluster, however close the losses.
        all.layers[3].elements_per_token = 9;
        all.layers[2].window = Some(64);
        all.layers[4].pairs[1].block_bytes = 21;
        let found = clusters(&all, Some(&rule));
        assert_eq!(found.len(), 6);
        all.layers[4].pairs[1].block_bytes = 20;
        all.layers[4].pairs[1].k = "other".to_owned();
        assert_eq!(clusters(&all, Some(&rule)).len(), 6);
        // Dominated candidates do not matter.
        all.layers[4].pairs[1].k = "f1".to_owned();
        all.layers[4].pairs[2].loss = 99.0;
        assert_eq!(clusters(&all, Some(&rule)).len(), 5);
    }

    #[test]
    fn what_is_measured_for_one_is_carried_to_the_others() {
        let coarse = |loss: f64| layer(&[(10, loss), (20, 0.0)]);
        let mut all = sensitivity(vec![layer(&[(10, 2.0), (20, 0.0), (15, 1.0)]), coarse(2.2)]);
        let first = all.clone();
        all.spread(&[vec![0, 1], vec![7, 8], vec![]]);
        assert_eq!(all.layers[0], first.layers[0]);
        let carried = &all.layers[1].pairs[2];
        assert_eq!((carried.k.as_str(), carried.block_bytes), ("f2", 15));
        assert!(carried.estimated && (carried.loss - 1.1).abs() < 1e-12);
        assert_eq!(all.layers[1].pairs[..2], first.layers[1].pairs[..]);
        assert_eq!(all.validate(), Ok(()));
    }
}
