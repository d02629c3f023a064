//! The blocks of one group: which are free, who owns the others, which are full.

use kvant_quant::KV_BLOCK_TOKENS;

/// Names a block of one group's pool, in every region of the group's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Whether a block still fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Still filling: the last block of its owners.
    Open,
    /// Full and immutable.
    Sealed,
}

/// What a pool has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Blocks handed out.
    pub allocated: u64,
    /// Blocks that came back.
    pub released: u64,
    /// Most blocks in use at a time.
    pub peak_used: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    /// Owners; 0 when free.
    refs: u32,
    state: BlockState,
}

/// The blocks of one group. Every owner of a block counts; the last to release it frees it.
///
/// Passing an id of a free block, or of another pool, is a bug in the caller and panics: going on
/// would give one sequence the tokens of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Free ids; the last is handed out next, so that recently used memory is used again.
    free: Vec<BlockId>,
    counters: PoolCounters,
}

impl BlockPool {
    /// Most blocks a pool can have: every slot (`block * 32 + offset`) fits a `u32` and differs
    /// from [`NO_BLOCK`](crate::NO_BLOCK).
    pub const MAX_BLOCKS: usize = u32::MAX as usize / KV_BLOCK_TOKENS;

    /// A pool of `capacity` free blocks; `None` when there are more than [`Self::MAX_BLOCKS`] or
    /// no memory for their counts.
    pub fn new(capacity: usize) -> Option<Self> {
        if capacity > Self::MAX_BLOCKS {
            return None;
        }
        let (mut blocks, mut free) = (Vec::new(), Vec::new());
        blocks.try_reserve_exact(capacity).ok()?;
        free.try_reserve_exact(capacity).ok()?;
        blocks.resize(
            capacity,
            Block {
                refs: 0,
                state: BlockState::Open,
            },
        );
        free.extend((0..capacity as u32).rev().map(BlockId));
        Some(Self {
            blocks,
            free,
            counters: PoolCounters::default(),
        })
    }

    /// Blocks in all.
    pub fn capacity(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that nobody owns.
    pub fn n_free(&self) -> usize {
        self.free.len()
    }

    /// Blocks that somebody owns.
    pub fn n_used(&self) -> usize {
        self.blocks.len() - self.free.len()
    }

    /// What the pool has done so far.
    pub fn counters(&self) -> PoolCounters {
        self.counters
    }

    /// Takes a free block, open, with one owner; `None` when there is none.
    pub fn alloc(&mut self) -> Option<BlockId> {
        let id = self.free.pop()?;
        self.blocks[id.0 as usize] = Block {
            refs: 1,
            state: BlockState::Open,
        };
        self.counters.allocated += 1;
        self.counters.peak_used = self.counters.peak_used.max(self.n_used());
        Some(id)
    }

    /// Adds an owner.
    pub fn retain(&mut self, id: BlockId) {
        let block = self.owned(id);
        block.refs = block
            .refs
            .checked_add(1)
            .expect("fewer owners than a u32 counts");
    }

    /// Takes an owner away; true when it was the last and the block is free now.
    pub fn release(&mut self, id: BlockId) -> bool {
        let block = self.owned(id);
        block.refs -= 1;
        let freed = block.refs == 0;
        if freed {
            self.free.push(id);
            self.counters.released += 1;
        }
        freed
    }

    /// Owners of a block; 0 when it is free.
    pub fn n_refs(&self, id: BlockId) -> u32 {
        self.blocks[id.0 as usize].refs
    }

    /// Whether an owned block still fills.
    pub fn state(&self, id: BlockId) -> BlockState {
        self.blocks[id.0 as usize].state
    }

    /// Marks a full block as immutable.
    pub(crate) fn seal(&mut self, id: BlockId) {
        self.owned(id).state = BlockState::Sealed;
    }

    /// Lets the only owner of a block write to it again.
    pub(crate) fn reopen(&mut self, id: BlockId) {
        let block = self.owned(id);
        assert_eq!(block.refs, 1, "{id:?} is shared and cannot be reopened");
        block.state = BlockState::Open;
    }

    pub(crate) fn free_list(&self) -> &[BlockId] {
        &self.free
    }

    fn owned(&mut self, id: BlockId) -> &mut Block {
        match self.blocks.get_mut(id.0 as usize) {
            Some(block) if block.refs > 0 => block,
            _ => panic!("{id:?} is not an owned block of this pool"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_owner_frees() {
        let mut pool = BlockPool::new(2).unwrap();
        let a = pool.alloc().unwrap();
        let b = pool.alloc().unwrap();
        assert_ne!(a, b);
        assert_eq!(pool.alloc(), None);
        pool.retain(a);
        assert!(!pool.release(a));
        assert_eq!(pool.n_free(), 0);
        assert!(pool.release(a));
        assert_eq!(pool.alloc(), Some(a));
        assert_eq!(
            pool.counters(),
            PoolCounters {
                allocated: 3,
                released: 1,
                peak_used: 2
            }
        );
    }

    #[test]
    #[should_panic(expected = "not an owned block")]
    fn a_second_release_is_a_bug() {
        let mut pool = BlockPool::new(1).unwrap();
        let id = pool.alloc().unwrap();
        pool.release(id);
        pool.release(id);
    }

    #[test]
    fn more_blocks_than_slots_are_refused() {
        assert!(BlockPool::new(BlockPool::MAX_BLOCKS + 1).is_none());
        assert!(BlockPool::new(usize::MAX).is_none());
    }
}
