//! The blocks of one sequence: growing, branching, cutting back.

use crate::error::KvError;
use crate::pool::{BlockId, BlockPool};
use crate::pools::KvPools;
use crate::table::BlockTable;
use kvant_quant::KV_BLOCK_TOKENS;

/// A copy of one block's contents to another, in every layer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// KV group.
    pub group: usize,
    /// Block read.
    pub src: BlockId,
    /// Block written.
    pub dst: BlockId,
}

/// A block of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupBlock {
    /// KV group.
    pub group: usize,
    /// Index in the group's block table.
    pub index: usize,
    /// The block.
    pub id: BlockId,
}

/// What [`SequenceKv::append`] did. The slots of the new tokens are in the block tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Position of the first new token.
    pub first_position: usize,
    /// New tokens.
    pub n_tokens: usize,
    /// Copies that the device must make before the step that computes these tokens writes anything,
    /// in this order, after the copies of appends made earlier.
    pub copies: Vec<BlockCopy>,
    /// Blocks that are full once the step has run; immutable until their only owner is cut back
    /// into them.
    pub sealed: Vec<GroupBlock>,
}

/// One sequence's block tables, one a group.
///
/// It owns its blocks until [`SequenceKv::free`]; dropping it without leaks them, which
/// [`check_integrity`](crate::check_integrity) reports. It always works with the one [`KvPools`]
/// that it was made with.
///
/// The bookkeeping runs ahead of the device: tokens appended belong to the next step. When that
/// step is not run after all, cut them off again with [`SequenceKv::truncate`], but still run the
/// copies: blocks may already count on them.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "blocks stay owned until `free`"]
pub struct SequenceKv {
    tables: Vec<BlockTable>,
    n_tokens: usize,
}

/// What appending would take from one group's pool.
struct GroupNeed {
    /// Table entries before this leave the window.
    evict_end: usize,
    /// Blocks added at the end.
    n_new: usize,
    /// What becomes of the last block, when it is partly filled.
    last: LastBlock,
}

enum LastBlock {
    /// It is full, or there is none.
    Untouched,
    /// Nobody else owns it: written where it is, opened again if it was full once.
    WriteInPlace(BlockId),
    /// Somebody else owns it too.
    Copy(BlockId),
}

impl SequenceKv {
    /// A sequence of no tokens, with one table a group.
    pub fn new(pools: &KvPools) -> Self {
        Self {
            tables: pools
                .groups()
                .iter()
                .map(|_| BlockTable::default())
                .collect(),
            n_tokens: 0,
        }
    }

    /// Tokens in the sequence.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// The block table of a group.
    pub fn table(&self, group: usize) -> &BlockTable {
        &self.tables[group]
    }

    /// The block tables, one a group.
    pub fn tables(&self) -> &[BlockTable] {
        &self.tables
    }

    /// Makes room for `n_tokens` more tokens.
    ///
    /// Blocks that the first new token no longer sees are given back; a partly filled last block
    /// with other owners is copied; full blocks are sealed. On an error nothing has changed.
    ///
    /// # Errors
    /// [`KvError::OutOfBlocks`] for the first group that lacks blocks, [`KvError::TooLong`].
    pub fn append(&mut self, pools: &mut KvPools, n_tokens: usize) -> Result<Appended, KvError> {
        self.can_append(pools, n_tokens)?;
        let first_position = self.n_tokens;
        let mut appended = Appended {
            first_position,
            n_tokens,
            copies: Vec::new(),
            sealed: Vec::new(),
        };
        if n_tokens == 0 {
            return Ok(appended);
        }
        let end = first_position + n_tokens;
        for group in 0..self.tables.len() {
            let need = self.need(pools, group, n_tokens);
            let table = &mut self.tables[group];
            let pool = pools.pool_mut(group);
            for id in table.evict(need.evict_end) {
                pool.release(id);
            }
            match need.last {
                LastBlock::Untouched => {}
                LastBlock::WriteInPlace(id) => pool.reopen(id),
                LastBlock::Copy(src) => {
                    let dst = take_counted(pool);
                    pool.release(src);
                    table.replace(table.len() - 1, dst);
                    appended.copies.push(BlockCopy { group, src, dst });
                }
            }
            for _ in 0..need.n_new {
                table.push(take_counted(pool));
            }
            for index in first_position / KV_BLOCK_TOKENS..end / KV_BLOCK_TOKENS {
                if let Some(id) = table.get(index) {
                    pool.seal(id);
                    appended.sealed.push(GroupBlock { group, index, id });
                }
            }
        }
        self.n_tokens = end;
        Ok(appended)
    }

    /// Whether [`SequenceKv::append`] would succeed, and its error if not.
    pub fn can_append(&self, pools: &KvPools, n_tokens: usize) -> Result<(), KvError> {
        if n_tokens > u32::MAX as usize - self.n_tokens {
            return Err(KvError::TooLong {
                n_tokens: self.n_tokens,
                more: n_tokens,
            });
        }
        if n_tokens == 0 {
            return Ok(());
        }
        for group in 0..self.tables.len() {
            let need = self.need(pools, group, n_tokens);
            let pool = pools.pool(group);
            let table = &self.tables[group];
            let freed = table
                .resident()
                .take(need.evict_end - table.first_resident())
                .filter(|&id| pool.n_refs(id) == 1)
                .count();
            let wanted = need.n_new + usize::from(matches!(need.last, LastBlock::Copy(_)));
            let free = pool.n_free() + freed;
            if wanted > free {
                return Err(KvError::OutOfBlocks {
                    group,
                    wanted,
                    free,
                });
            }
        }
        Ok(())
    }

    /// A second sequence with the same tokens. All blocks are shared; whichever of the two first
    /// writes to the partly filled last block takes a copy of it. Fork between steps: a copy would
    /// miss tokens that the device has not computed yet.
    pub fn fork(&self, pools: &mut KvPools) -> Self {
        for (group, table) in self.tables.iter().enumerate() {
            let pool = pools.pool_mut(group);
            for id in table.resident() {
                pool.retain(id);
            }
        }
        Self {
            tables: self.tables.iter().map(BlockTable::share).collect(),
            n_tokens: self.n_tokens,
        }
    }

    /// Cuts the sequence to its first `n_tokens` tokens. On an error nothing has changed.
    ///
    /// # Errors
    /// [`KvError::TruncateBeyondEnd`]; [`KvError::WindowPassed`] when the token that would follow
    /// sees blocks that a window has given back. Cutting off tokens of the last append always
    /// works, and so does cutting to none.
    pub fn truncate(&mut self, pools: &mut KvPools, n_tokens: usize) -> Result<(), KvError> {
        if n_tokens > self.n_tokens {
            return Err(KvError::TruncateBeyondEnd {
                n_tokens: self.n_tokens,
                wanted: n_tokens,
            });
        }
        if n_tokens > 0 {
            for (group, table) in self.tables.iter().enumerate() {
                let resident_from = table.first_resident() * KV_BLOCK_TOKENS;
                let Some(window) = pools.groups()[group].window else {
                    continue;
                };
                if resident_from > 0 && n_tokens + 1 < resident_from + window {
                    return Err(KvError::WindowPassed {
                        group,
                        wanted: n_tokens,
                        shortest: resident_from + window - 1,
                    });
                }
            }
        }
        for (group, table) in self.tables.iter_mut().enumerate() {
            let pool = pools.pool_mut(group);
            for id in table.truncate(n_tokens.div_ceil(KV_BLOCK_TOKENS)) {
                pool.release(id);
            }
        }
        self.n_tokens = n_tokens;
        Ok(())
    }

    /// Gives all blocks back.
    pub fn free(mut self, pools: &mut KvPools) {
        for (group, table) in self.tables.iter_mut().enumerate() {
            let pool = pools.pool_mut(group);
            for id in table.truncate(0) {
                pool.release(id);
            }
        }
    }

    /// What `n_tokens > 0` more tokens take from a group's pool; their sum with the tokens there
    /// are must fit a `u32`.
    fn need(&self, pools: &KvPools, group: usize, n_tokens: usize) -> GroupNeed {
        let table = &self.tables[group];
        let first_seen = pools.groups()[group].first_seen(self.n_tokens);
        let end = (self.n_tokens + n_tokens).div_ceil(KV_BLOCK_TOKENS);
        let partly_filled = !self.n_tokens.is_multiple_of(KV_BLOCK_TOKENS);
        let last = match table.get(self.n_tokens / KV_BLOCK_TOKENS) {
            Some(id) if partly_filled => {
                let pool = pools.pool(group);
                if pool.n_refs(id) > 1 {
                    LastBlock::Copy(id)
                } else {
                    LastBlock::WriteInPlace(id)
                }
            }
            _ => LastBlock::Untouched,
        };
        GroupNeed {
            evict_end: (first_seen / KV_BLOCK_TOKENS).clamp(table.first_resident(), table.len()),
            n_new: end - table.len(),
            last,
        }
    }
}

/// A block that [`SequenceKv::can_append`] has counted.
fn take_counted(pool: &mut BlockPool) -> BlockId {
    pool.alloc().expect("the blocks were counted before")
}
