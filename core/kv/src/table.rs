//! Which block holds which tokens of a sequence, for one group.

use crate::pool::BlockId;
use kvant_quant::KV_BLOCK_TOKENS;
use std::ops::Range;

/// The entry of a table whose tokens have left the window.
pub const NO_BLOCK: u32 = u32::MAX;

/// One sequence's blocks in one group: entry `i` holds tokens `32 * i .. 32 * (i + 1)`.
///
/// Entries that the window has passed stay as holes at the beginning, so that an index is always a
/// position divided by 32.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Block ids as devices read them, [`NO_BLOCK`] for holes.
    ids: Vec<u32>,
    /// Entries before this are holes, the others blocks.
    first_resident: usize,
}

impl BlockTable {
    /// Block ids, `[ceil(n_tokens / 32)]`, [`NO_BLOCK`] for holes: what a step takes.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The block at an index; `None` for a hole or past the end.
    pub fn get(&self, index: usize) -> Option<BlockId> {
        self.ids
            .get(index)
            .copied()
            .filter(|&id| id != NO_BLOCK)
            .map(BlockId)
    }

    /// Entries, holes included.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Index of the first entry that is not a hole; [`BlockTable::len`] when all are.
    pub fn first_resident(&self) -> usize {
        self.first_resident
    }

    /// The blocks, in order, without the holes.
    pub fn resident(&self) -> impl DoubleEndedIterator<Item = BlockId> + '_ {
        self.ids[self.first_resident..].iter().copied().map(BlockId)
    }

    /// The slot of a position, `block * 32 + offset`; `None` where there is no block.
    pub fn slot(&self, position: usize) -> Option<u32> {
        let block = self.get(position / KV_BLOCK_TOKENS)?;
        Some(block.0 * KV_BLOCK_TOKENS as u32 + (position % KV_BLOCK_TOKENS) as u32)
    }

    /// The slots of positions in a row; `None` where there is no block.
    pub fn slots(&self, positions: Range<usize>) -> impl Iterator<Item = Option<u32>> + '_ {
        positions.map(|position| self.slot(position))
    }

    pub(crate) fn push(&mut self, id: BlockId) {
        self.ids.push(id.0);
    }

    pub(crate) fn replace(&mut self, index: usize, id: BlockId) {
        debug_assert!(index >= self.first_resident);
        self.ids[index] = id.0;
    }

    /// Turns entries before `end` into holes and yields their blocks.
    pub(crate) fn evict(&mut self, end: usize) -> impl Iterator<Item = BlockId> + '_ {
        let range = self.first_resident..end.clamp(self.first_resident, self.ids.len());
        self.first_resident = range.end;
        self.ids[range]
            .iter_mut()
            .map(|id| BlockId(std::mem::replace(id, NO_BLOCK)))
    }

    /// Removes entries from `len` on and yields their blocks, the last first.
    pub(crate) fn truncate(&mut self, len: usize) -> impl Iterator<Item = BlockId> + '_ {
        let len = len.min(self.ids.len());
        self.first_resident = self.first_resident.min(len);
        self.ids
            .drain(len..)
            .rev()
            .filter(|&id| id != NO_BLOCK)
            .map(BlockId)
    }

    /// A table with the same entries; the caller adds the owner to each block.
    pub(crate) fn share(&self) -> Self {
        Self {
            ids: self.ids.clone(),
            first_resident: self.first_resident,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_keep_their_place() {
        let mut table = BlockTable::default();
        for id in [7, 3, 9] {
            table.push(BlockId(id));
        }
        assert_eq!(table.slot(33), Some(3 * 32 + 1));
        assert_eq!(table.evict(2).collect::<Vec<_>>(), [BlockId(7), BlockId(3)]);
        assert_eq!(table.ids(), [NO_BLOCK, NO_BLOCK, 9]);
        assert_eq!(table.slot(33), None);
        assert_eq!(
            table.slots(63..66).collect::<Vec<_>>(),
            [None, Some(9 * 32), Some(9 * 32 + 1)]
        );
        assert_eq!(table.evict(1).count(), 0);
        assert_eq!(table.truncate(1).collect::<Vec<_>>(), [BlockId(9)]);
        assert_eq!((table.len(), table.first_resident()), (1, 1));
    }
}
