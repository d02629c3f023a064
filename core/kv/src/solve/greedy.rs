//! A good choice where the table would be too large: hull steps by slope, then exchanges.

use super::knapsack::{Item, relax, total_cost};
use super::pareto::hull;

/// Most exchanges.
const ROUNDS: usize = 256;

/// A choice of each item within the budget, which is at least the least cost.
///
/// 1. What the relaxation chooses whole ([`relax`]).
/// 2. Exchanges, as long as the loss falls: another choice of one item, or of two of which one frees
///    what the other takes; each time the one that saves most. Of equals the lower item first, then
///    the higher precision.
pub(crate) fn greedy(items: &[Item], budget: u64) -> Vec<usize> {
    let mut chosen = relax(items, budget).chosen;
    let mut slack = budget - total_cost(items, &chosen);
    for _ in 0..ROUNDS {
        let Some(exchange) = best_exchange(items, &chosen, slack) else {
            break;
        };
        for Move { item, to, .. } in exchange.into_iter().flatten() {
            chosen[item] = to;
        }
        slack = budget - total_cost(items, &chosen);
    }
    chosen
}

/// Another choice of one item.
#[derive(Debug, Clone, Copy)]
struct Move {
    item: usize,
    to: usize,
    cost: i128,
    loss: f64,
}

/// The move, or the two, that save most within the slack.
fn best_exchange(items: &[Item], chosen: &[usize], slack: u64) -> Option<[Option<Move>; 2]> {
    let mut moves = Vec::new();
    for (item, (set, &from)) in items.iter().zip(chosen).enumerate() {
        for (to, choice) in set.iter().enumerate().rev() {
            if to != from {
                moves.push(Move {
                    item,
                    to,
                    cost: i128::from(choice.cost) - i128::from(set[from].cost),
                    loss: choice.loss - set[from].loss,
                });
            }
        }
    }
    // `best[i]`: the moves of two different items that save most among the `i + 1` cheapest.
    moves.sort_by_key(|one| one.cost);
    let mut best: Vec<[Option<Move>; 2]> = Vec::with_capacity(moves.len());
    for &one in &moves {
        let mut top = best.last().copied().unwrap_or_default();
        let beats = |than: Option<Move>| than.is_none_or(|than| saves_more(&one, &than));
        if top[0].is_some_and(|first| first.item == one.item) {
            if beats(top[0]) {
                top[0] = Some(one);
            }
        } else if beats(top[0]) {
            top = [Some(one), top[0]];
        } else if beats(top[1]) {
            top[1] = Some(one);
        }
        best.push(top);
    }

    let mut found: Option<(f64, [Option<Move>; 2])> = None;
    let mut consider = |loss: f64, exchange| {
        if loss < 0.0 && found.is_none_or(|(least, _)| loss < least) {
            found = Some((loss, exchange));
        }
    };
    let slack = i128::from(slack);
    let within = |room: i128| moves.partition_point(|one| one.cost <= room);
    if let Some(last) = within(slack).checked_sub(1)
        && let [Some(one), _] = best[last]
    {
        consider(one.loss, [Some(one), None]);
    }
    for &frees in moves.iter().take_while(|one| one.cost < 0) {
        let Some(last) = within(slack - frees.cost).checked_sub(1) else {
            continue;
        };
        let other = best[last]
            .into_iter()
            .flatten()
            .find(|other| other.item != frees.item);
        if let Some(takes) = other {
            consider(frees.loss + takes.loss, [Some(frees), Some(takes)]);
        }
    }
    found.map(|(_, exchange)| exchange)
}

/// Whether `one` saves more than `than`, or as much in a lower item, or there at a higher precision.
fn saves_more(one: &Move, than: &Move) -> bool {
    one.loss
        .total_cmp(&than.loss)
        .then(one.item.cmp(&than.item))
        .then(than.to.cmp(&one.to))
        .is_lt()
}

/// Whether a choice is a corner of its item's hull, so that some price makes it the best.
pub(crate) fn is_corner(item: &Item, index: usize) -> bool {
    hull(item).contains(&index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve::knapsack::tests::{brute_force, items};
    use crate::solve::knapsack::{least_cost, total_loss};
    use crate::solve::pareto::Choice;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_greedy_choice_is_within_the_gap(items in items(), room in 0u64..3000) {
            let budget = least_cost(&items).unwrap() + room;
            let chosen = greedy(&items, budget);
            prop_assert!(total_cost(&items, &chosen) <= budget);
            let bound = relax(&items, budget).loss;
            let best = total_loss(&items, &brute_force(&items, budget).unwrap());
            let loss = total_loss(&items, &chosen);
            prop_assert!(loss - best <= loss - bound + 1e-9);
            prop_assert!(loss >= best);
        }

        #[test]
        fn no_exchange_is_left(items in items(), room in 0u64..3000) {
            let budget = least_cost(&items).unwrap() + room;
            let chosen = greedy(&items, budget);
            let loss = total_loss(&items, &chosen);
            // Every pair of moves, by plain search.
            for a in 0..items.len() {
                for b in 0..items.len() {
                    for i in 0..items[a].len() {
                        for j in 0..items[b].len() {
                            let mut other = chosen.clone();
                            other[a] = i;
                            other[b] = j;
                            let fits = total_cost(&items, &other) <= budget;
                            prop_assert!(!fits || total_loss(&items, &other) >= loss);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn exchanges_find_what_steps_by_slope_miss() {
        let item = |points: &[(u64, f64)]| -> Item {
            let choice = |(id, &(cost, loss)): (usize, &(u64, f64))| Choice { cost, loss, id };
            points.iter().enumerate().map(choice).collect()
        };
        // By slope the first goes to 6 and leaves 4; best is the second at 10.
        let items = [item(&[(0, 7.0), (6, 0.0)]), item(&[(0, 10.0), (10, 0.0)])];
        assert_eq!(relax(&items, 10).chosen, [1, 0]);
        assert_eq!(greedy(&items, 10), [0, 1]);
    }
}
