//! The tiles of a step.

use super::{Method, SPLIT_TOKENS};
use kvant_device::{HeadShape, StepInput};
use std::ops::Range;

/// What attention nodes must share to share a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanKey {
    pub(crate) method: Method,
    pub(crate) heads: HeadShape,
    pub(crate) window: Option<usize>,
}

/// A unit of work: one key head, some query tokens of a sequence, all or one of their splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    /// Index of the sequence in the step.
    pub(crate) sequence: usize,
    /// First row of the step, and rows.
    pub(crate) first_row: usize,
    pub(crate) n_tokens: usize,
    pub(crate) kv_head: usize,
    /// Splits `first_split..first_split + n_splits`.
    pub(crate) first_split: usize,
    pub(crate) n_splits: usize,
    /// Where the partials go when other items have the tile's other splits.
    pub(crate) slot: Option<usize>,
    /// Whether the tile's last token lies in the last of these splits.
    pub(crate) is_last: bool,
}

/// Partials that become one tile's result: `n_splits` runs of `n_tokens * group` slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merge {
    pub(crate) first_row: usize,
    pub(crate) n_tokens: usize,
    pub(crate) kv_head: usize,
    pub(crate) slot: usize,
    pub(crate) n_splits: usize,
}

/// The items of a step for one [`PlanKey`].
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) key: PlanKey,
    pub(crate) items: Vec<Item>,
    pub(crate) merges: Vec<Merge>,
    /// Slots for partials, one a row and split.
    n_slots: usize,
}

impl Plan {
    /// With room for any step of `max_tokens`; `None` on overflow.
    pub(crate) fn new(key: PlanKey, max_tokens: usize, n_slots: usize) -> Option<Self> {
        let (items, merges) = Self::capacity(key, max_tokens, n_slots)?;
        Some(Self {
            key,
            items: Vec::with_capacity(items),
            merges: Vec::with_capacity(merges),
            n_slots,
        })
    }

    /// The most items and merges of a step; `None` on overflow.
    pub(crate) fn capacity(
        key: PlanKey,
        max_tokens: usize,
        n_slots: usize,
    ) -> Option<(usize, usize)> {
        let group = key.heads.n_heads / key.heads.n_kv_heads;
        // Each tile has a token at least, and each of its splits takes `group` slots at least.
        let tiles = max_tokens.checked_mul(key.heads.n_kv_heads)?;
        Some((
            tiles.checked_add(n_slots / group)?,
            tiles.min(n_slots / group),
        ))
    }

    /// Slots that let `n_threads` share the decoding of a sequence as long as `max_context`, some
    /// sequences at a time; `None` on overflow.
    pub(crate) fn slots(heads: &HeadShape, max_context: usize, n_threads: usize) -> Option<usize> {
        if n_threads == 1 {
            return Some(0);
        }
        let splits = max_context.div_ceil(SPLIT_TOKENS);
        if splits < 2 {
            return Some(0);
        }
        heads.n_heads.checked_mul(splits)?.checked_mul(n_threads)
    }

    /// Plans a step.
    pub(crate) fn fill(&mut self, step: &StepInput<'_>, n_threads: usize) {
        self.items.clear();
        self.merges.clear();
        let heads = self.key.heads;
        let group = heads.n_heads / heads.n_kv_heads;
        let total: usize = tiles(step, self.key, group)
            .map(|t| t.cost())
            .sum::<usize>()
            .saturating_mul(heads.n_kv_heads);
        let mut used = 0;
        for tile in tiles(step, self.key, group) {
            let rows = tile.n_tokens * group;
            let n_splits = tile.splits.len();
            let large = tile.cost().saturating_mul(4 * n_threads) > total;
            for kv_head in 0..heads.n_kv_heads {
                let item = Item {
                    sequence: tile.sequence,
                    first_row: tile.first_row,
                    n_tokens: tile.n_tokens,
                    kv_head,
                    first_split: tile.splits.start,
                    n_splits,
                    slot: None,
                    is_last: true,
                };
                let slots = rows * n_splits;
                if n_threads > 1 && n_splits > 1 && large && used + slots <= self.n_slots {
                    self.items.extend((0..n_splits).map(|s| Item {
                        first_split: tile.splits.start + s,
                        n_splits: 1,
                        slot: Some(used + s * rows),
                        is_last: s + 1 == n_splits,
                        ..item
                    }));
                    self.merges.push(Merge {
                        first_row: tile.first_row,
                        n_tokens: tile.n_tokens,
                        kv_head,
                        slot: used,
                        n_splits,
                    });
                    used += slots;
                } else {
                    self.items.push(item);
                }
            }
        }
    }
}

/// Query tokens of a sequence that are computed together.
struct QueryTile {
    sequence: usize,
    first_row: usize,
    n_tokens: usize,
    splits: Range<usize>,
    seen: usize,
}

impl QueryTile {
    /// Query tokens times tokens seen.
    fn cost(&self) -> usize {
        self.n_tokens.saturating_mul(self.seen)
    }
}

/// Tiles of a step, the last of each sequence first: it sees most.
fn tiles<'a>(
    step: &'a StepInput<'_>,
    key: PlanKey,
    group: usize,
) -> impl Iterator<Item = QueryTile> + 'a {
    let size = key.method.tile_tokens(group);
    step.sequences
        .iter()
        .enumerate()
        .flat_map(move |(sequence, s)| {
            let first_position = s.context_len - s.n_rows;
            (0..s.n_rows.div_ceil(size)).rev().map(move |i| {
                let from = i * size;
                let to = s.n_rows.min(from + size);
                let end = first_position + to;
                let start = key
                    .window
                    .map_or(0, |w| (first_position + from + 1).saturating_sub(w));
                QueryTile {
                    sequence,
                    first_row: s.first_row + from,
                    n_tokens: to - from,
                    splits: start / SPLIT_TOKENS..end.div_ceil(SPLIT_TOKENS),
                    seen: end - start,
                }
            })
        })
}
