//! The multiple-choice knapsack: one choice of each item, the least loss within a cost.
//!
//! Sinha and Zoltners, "The multiple-choice knapsack problem", Operations Research 27 (1979), for
//! the relaxation; Kellerer, Pferschy and Pisinger, "Knapsack Problems" (2004), chapter 11, for all.

use super::pareto::{Choice, hull, slope};

/// One choice is made of each item. [`pareto`](super::pareto::pareto) sets, none empty.
pub(crate) type Item = Vec<Choice>;

/// Most additions that the table is filled with.
const TABLE_WORK_MAX: u64 = 1 << 31;

/// What the relaxation, in which an item may be shared out between two choices, makes of a budget.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relaxed {
    /// Its loss: no whole choice within the budget loses less.
    pub(crate) loss: f64,
    /// Loss saved by the last byte: what one more byte would save.
    pub(crate) price: f64,
    /// The whole part: an index into each item.
    pub(crate) chosen: Vec<usize>,
}

/// A step from one corner of an item's hull to the next dearer one.
#[derive(Debug, Clone, Copy)]
struct Step {
    item: usize,
    from: usize,
    to: usize,
    slope: f64,
}

/// The steps of all items, steepest first; of equals the lower item first.
fn steps(items: &[Item]) -> Vec<Step> {
    let mut out = Vec::new();
    for (item, set) in items.iter().enumerate() {
        for pair in hull(set).windows(2) {
            let (from, to) = (pair[0], pair[1]);
            out.push(Step {
                item,
                from,
                to,
                slope: slope(&set[from], &set[to]),
            });
        }
    }
    out.sort_by(|a, b| b.slope.total_cmp(&a.slope).then(a.item.cmp(&b.item)));
    out
}

/// The least cost. `None` when it passes 64 bits.
pub(crate) fn least_cost(items: &[Item]) -> Option<u64> {
    items
        .iter()
        .try_fold(0u64, |sum, item| sum.checked_add(item[0].cost))
}

/// The cost of a choice of each item.
pub(crate) fn total_cost(items: &[Item], chosen: &[usize]) -> u64 {
    items
        .iter()
        .zip(chosen)
        .map(|(item, &i)| item[i].cost)
        .sum()
}

/// The loss of a choice of each item, added from the last item to the first as the table does.
pub(crate) fn total_loss(items: &[Item], chosen: &[usize]) -> f64 {
    let losses = items.iter().zip(chosen).map(|(item, &i)| item[i].loss);
    losses.rev().fold(0.0, |sum, loss| loss + sum)
}

/// Solves the relaxation: hull steps by descending slope until the budget ends, the last in part.
///
/// `budget` is at least [`least_cost`].
pub(crate) fn relax(items: &[Item], budget: u64) -> Relaxed {
    let mut chosen = vec![0; items.len()];
    let mut left = budget - total_cost(items, &chosen);
    for step in steps(items) {
        let item = &items[step.item];
        let cost = item[step.to].cost - item[step.from].cost;
        if cost > left {
            let loss = total_loss(items, &chosen) - step.slope * left as f64;
            return Relaxed {
                loss: loss.max(0.0),
                price: step.slope,
                chosen,
            };
        }
        left -= cost;
        chosen[step.item] = step.to;
    }
    Relaxed {
        loss: total_loss(items, &chosen),
        price: 0.0,
        chosen,
    }
}

/// The corners of the front's lower convex hull, cheapest first: each is the best there is for its
/// cost, and none between two lies below the line through them.
pub(crate) struct HullFront<'a> {
    items: &'a [Item],
    steps: Vec<Step>,
}

impl<'a> HullFront<'a> {
    pub(crate) fn new(items: &'a [Item]) -> Self {
        let steps = steps(items);
        Self { items, steps }
    }

    /// The cost of each corner.
    pub(crate) fn costs(&self) -> Vec<u64> {
        let mut cost = total_cost(self.items, &vec![0; self.items.len()]);
        let mut out = vec![cost];
        for step in &self.steps {
            let item = &self.items[step.item];
            cost += item[step.to].cost - item[step.from].cost;
            out.push(cost);
        }
        out
    }

    /// The choice of each item at a corner: an index into [`HullFront::costs`].
    pub(crate) fn chosen(&self, corner: usize) -> Vec<usize> {
        let mut out = vec![0; self.items.len()];
        for step in &self.steps[..corner] {
            out[step.item] = step.to;
        }
        out
    }
}

/// The best choice for every cost up to a budget.
pub(crate) struct Table<'a> {
    items: &'a [Item],
    /// Costs above the least, divided by what divides them all.
    unit: u64,
    /// `choices[item][cost]`: the choice of `item` when `cost` units are left for it and those after.
    choices: Vec<Vec<u16>>,
    /// The least loss of all items for each cost.
    loss: Vec<f64>,
}

impl<'a> Table<'a> {
    /// Fills the table for costs up to `budget`, which is at least [`least_cost`].
    ///
    /// With `d = (cost - least cost of the item) / unit`, from the last item to the first:
    /// `loss[c] = min over choices with d <= c of (loss of the choice + loss of later items [c - d])`.
    ///
    /// `None` when it would take more than `bytes_max` bytes, or very long.
    pub(crate) fn fill(items: &'a [Item], budget: u64, bytes_max: usize) -> Option<Self> {
        let above = |item: &Item, choice: &Choice| choice.cost - item[0].cost;
        let mut unit = 0;
        let mut range = 0u64;
        for item in items {
            let last = item.last()?;
            range = range.saturating_add(above(item, last));
            for choice in item {
                unit = gcd(unit, above(item, choice));
            }
        }
        let unit = unit.max(1);
        let room = budget.checked_sub(least_cost(items)?)?.min(range);
        let costs = usize::try_from(room / unit).ok()?.checked_add(1)?;
        let bytes = items
            .len()
            .checked_mul(2)?
            .checked_add(16)?
            .checked_mul(costs)?;
        let n_choices: usize = items.iter().map(Vec::len).sum();
        let work = (n_choices as u64).checked_mul(costs as u64)?;
        if bytes > bytes_max || work > TABLE_WORK_MAX {
            return None;
        }

        let mut loss = vec![0.0; costs];
        let mut next = vec![0.0; costs];
        let mut choices = vec![Vec::new(); items.len()];
        for (item, row) in items.iter().zip(&mut choices).rev() {
            row.resize(costs, 0u16);
            next.fill(f64::INFINITY);
            // From the dearest down: of equals, the item takes the higher precision.
            for (i, choice) in item.iter().enumerate().rev() {
                let Ok(d) = usize::try_from(above(item, choice) / unit) else {
                    continue;
                };
                if d >= costs {
                    continue;
                }
                let targets = next[d..].iter_mut().zip(&mut row[d..]);
                for ((best, chosen), later) in targets.zip(&loss) {
                    let total = choice.loss + later;
                    if total < *best {
                        *best = total;
                        *chosen = u16::try_from(i).ok()?;
                    }
                }
            }
            std::mem::swap(&mut loss, &mut next);
        }
        Some(Self {
            items,
            unit,
            choices,
            loss,
        })
    }

    /// The costs, in units, at which the loss falls: one for each plan of the front. Ascending.
    pub(crate) fn front(&self) -> Vec<usize> {
        let falls = |&c: &usize| c == 0 || self.loss[c] < self.loss[c - 1];
        (0..self.loss.len()).filter(falls).collect()
    }

    /// The choice of each item at a cost of [`Table::front`].
    pub(crate) fn chosen(&self, cost: usize) -> Vec<usize> {
        let mut left = cost;
        let mut out = Vec::with_capacity(self.items.len());
        for (item, row) in self.items.iter().zip(&self.choices) {
            let i = usize::from(row[left]);
            left -= ((item[i].cost - item[0].cost) / self.unit) as usize;
            out.push(i);
        }
        out
    }

    /// The least loss; of all choices with that the cheapest; of those the one that gives the lowest
    /// item the highest precision, then the next.
    pub(crate) fn best(&self) -> Vec<usize> {
        let least = self.loss[self.loss.len() - 1];
        // The losses never rise, so this finds the first as small as the last.
        self.chosen(self.loss.partition_point(|&loss| loss > least))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::solve::pareto::pareto;
    use proptest::prelude::*;

    /// Items whose losses are sums of few bits, so that adding them in any order is exact.
    pub(in crate::solve) fn items() -> impl Strategy<Value = Vec<Item>> {
        let choice = (0u64..40, 0u32..64);
        let item = prop::collection::vec(choice, 1..6);
        (
            prop::collection::vec(item, 1..6),
            prop::sample::select(vec![1u64, 4, 16]),
        )
            .prop_map(|(items, unit)| {
                let choice = |(id, (cost, loss)): (usize, (u64, u32))| Choice {
                    cost: cost * unit + 7,
                    loss: f64::from(loss) / 8.0,
                    id,
                };
                let item = |points: Vec<(u64, u32)>| -> Item {
                    let all: Vec<Choice> = points.into_iter().enumerate().map(choice).collect();
                    pareto(&all)
                };
                items.into_iter().map(item).collect()
            })
    }

    /// The best of all combinations: least loss, then least cost, then the highest precision from
    /// the first item on.
    pub(in crate::solve) fn brute_force(items: &[Item], budget: u64) -> Option<Vec<usize>> {
        let mut best: Option<(f64, u64, Vec<usize>)> = None;
        let mut chosen = vec![0; items.len()];
        loop {
            let (loss, cost) = (total_loss(items, &chosen), total_cost(items, &chosen));
            let better = |(l, c, other): &(f64, u64, Vec<usize>)| {
                loss < *l || loss == *l && (cost < *c || cost == *c && chosen > *other)
            };
            if cost <= budget && best.as_ref().is_none_or(better) {
                best = Some((loss, cost, chosen.clone()));
            }
            let Some(i) = (0..items.len()).find(|&i| chosen[i] + 1 < items[i].len()) else {
                return best.map(|(.., chosen)| chosen);
            };
            chosen[..i].fill(0);
            chosen[i] += 1;
        }
    }

    proptest! {
        #[test]
        fn the_table_is_exact(items in items(), room in 0u64..3000) {
            let budget = least_cost(&items).unwrap() + room;
            let table = Table::fill(&items, budget, 1 << 20).unwrap();
            let wanted = brute_force(&items, budget).unwrap();
            prop_assert_eq!(table.best(), wanted);
        }

        #[test]
        fn the_relaxation_is_a_bound(items in items(), room in 0u64..3000) {
            let budget = least_cost(&items).unwrap() + room;
            let relaxed = relax(&items, budget);
            let best = total_loss(&items, &brute_force(&items, budget).unwrap());
            prop_assert!(relaxed.loss <= best + 1e-9, "{} > {best}", relaxed.loss);
            prop_assert!(total_cost(&items, &relaxed.chosen) <= budget);
            prop_assert!(relaxed.loss <= total_loss(&items, &relaxed.chosen) + 1e-9);
            prop_assert!(relaxed.price >= 0.0);
        }

        #[test]
        fn the_front_is_every_best_choice(items in items()) {
            let least = least_cost(&items).unwrap();
            let table = Table::fill(&items, u64::MAX, 1 << 20).unwrap();
            let front: Vec<(u64, f64)> = table
                .front()
                .into_iter()
                .map(|cost| {
                    let chosen = table.chosen(cost);
                    (total_cost(&items, &chosen), total_loss(&items, &chosen))
                })
                .collect();
            prop_assert!(front.is_sorted_by(|a, b| a.0 < b.0 && a.1 > b.1));
            for budget in (least..least + 200).step_by(7) {
                let best = brute_force(&items, budget).unwrap();
                let on_front = front.iter().rev().find(|(cost, _)| *cost <= budget).unwrap();
                prop_assert_eq!(*on_front, (total_cost(&items, &best), total_loss(&items, &best)));
            }
            // The corners of the hull are on it.
            let corners = HullFront::new(&items);
            for (corner, cost) in corners.costs().into_iter().enumerate() {
                let chosen = corners.chosen(corner);
                let point = (total_cost(&items, &chosen), total_loss(&items, &chosen));
                prop_assert_eq!(point.0, cost);
                prop_assert!(front.contains(&point), "{point:?}");
            }
        }
    }

    #[test]
    fn a_table_too_large_is_not_made() {
        let choice = |cost, loss| Choice { cost, loss, id: 0 };
        let items = vec![vec![
            choice(1, 1.0),
            choice(1 << 30, 0.5),
            choice((1 << 30) + 1, 0.0),
        ]];
        assert!(Table::fill(&items, u64::MAX, 1 << 20).is_none());
        // No more than the choices can use is counted, nor more than the budget allows.
        assert!(Table::fill(&items, 1000, 1 << 20).is_some());
        assert!(Table::fill(&items[..0], u64::MAX, 1 << 20).is_some());
    }
}
