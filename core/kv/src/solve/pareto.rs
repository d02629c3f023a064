//! Which candidates are worth looking at.

/// A choice by what it costs and what it loses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    /// Bytes.
    pub(crate) cost: u64,
    /// Loss, in nats.
    pub(crate) loss: f64,
    /// What the caller calls it.
    pub(crate) id: usize,
}

/// The choices that no other dominates, by ascending cost and hence strictly descending loss.
///
/// One dominates another when it neither costs nor loses more, and costs or loses less or stands
/// earlier.
pub(crate) fn pareto(choices: &[Choice]) -> Vec<Choice> {
    let mut sorted = choices.to_vec();
    // Stable: of equals, the earliest comes first and remains.
    sorted.sort_by(|a, b| a.cost.cmp(&b.cost).then(a.loss.total_cmp(&b.loss)));
    let mut out: Vec<Choice> = Vec::new();
    for choice in sorted {
        if out.last().is_none_or(|last| choice.loss < last.loss) {
            out.push(choice);
        }
    }
    out
}

/// The indices of a Pareto set on its lower convex hull. Along them, the loss saved a byte
/// ([`slope`]) strictly falls.
pub(crate) fn hull(set: &[Choice]) -> Vec<usize> {
    let mut out: Vec<usize> = Vec::new();
    for (i, choice) in set.iter().enumerate() {
        while let [.., before, last] = out[..] {
            if slope(&set[before], &set[last]) > slope(&set[last], choice) {
                break;
            }
            out.pop();
        }
        out.push(i);
    }
    out
}

/// Loss saved a byte by going from one choice to a dearer one.
pub(crate) fn slope(from: &Choice, to: &Choice) -> f64 {
    (from.loss - to.loss) / (to.cost - from.cost) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn choices(points: &[(u64, f64)]) -> Vec<Choice> {
        let choice = |(id, &(cost, loss))| Choice { cost, loss, id };
        points.iter().enumerate().map(choice).collect()
    }

    fn ids(set: &[Choice]) -> Vec<usize> {
        set.iter().map(|choice| choice.id).collect()
    }

    #[test]
    fn the_dominated_go_and_the_earliest_of_equals_stays() {
        let all = choices(&[
            (10, 1.0),
            (10, 1.0),
            (5, 3.0),
            (7, 3.0),
            (12, 1.5),
            (5, 4.0),
        ]);
        assert_eq!(ids(&pareto(&all)), [2, 0]);
    }

    #[test]
    fn the_hull_leaves_out_what_lies_above_a_line() {
        let set = pareto(&choices(&[
            (0, 10.0),
            (1, 9.0),
            (2, 2.0),
            (3, 1.0),
            (4, 0.0),
        ]));
        // Three points on a line: the middle one is no corner.
        assert_eq!(hull(&set), [0, 2, 4]);
        assert_eq!(hull(&set[..1]), [0]);
        assert_eq!(hull(&[]), [0; 0]);
    }

    proptest! {
        #[test]
        fn pareto_is_what_the_definition_says(points in prop::collection::vec((0u64..12, 0u32..12), 0..20)) {
            let points: Vec<(u64, f64)> = points.iter().map(|&(c, l)| (c, f64::from(l))).collect();
            let all = choices(&points);
            let dominates = |a: &Choice, b: &Choice| {
                a.cost <= b.cost
                    && a.loss <= b.loss
                    && (a.cost < b.cost || a.loss < b.loss || a.id < b.id)
            };
            let mut wanted: Vec<&Choice> =
                all.iter().filter(|b| !all.iter().any(|a| dominates(a, b))).collect();
            wanted.sort_by_key(|choice| choice.cost);
            let set = pareto(&all);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), wanted);

            let corners = hull(&set);
            prop_assert_eq!(corners.first(), (!set.is_empty()).then_some(&0));
            prop_assert_eq!(corners.last().copied(), set.len().checked_sub(1));
            let slopes: Vec<f64> =
                corners.windows(2).map(|w| slope(&set[w[0]], &set[w[1]])).collect();
            prop_assert!(slopes.is_sorted_by(|a, b| a > b));
            // No choice lies below the hull.
            for w in corners.windows(2) {
                let (a, b) = (&set[w[0]], &set[w[1]]);
                for c in &set[w[0]..=w[1]] {
                    let line = a.loss - slope(a, b) * (c.cost - a.cost) as f64;
                    prop_assert!(c.loss >= line - 1e-9);
                }
            }
        }
    }
}
