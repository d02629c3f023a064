//! One pool for each group.

use crate::error::KvError;
use crate::geometry::KvGroup;
use crate::pool::BlockPool;

/// The pools of a model: one for each [`KvGroup`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvPools {
    groups: Vec<KvGroup>,
    pools: Vec<BlockPool>,
}

impl KvPools {
    /// Pools of `n_blocks[group]` free blocks each.
    pub fn new(groups: &[KvGroup], n_blocks: &[usize]) -> Result<Self, KvError> {
        if groups.len() != n_blocks.len() {
            return Err(KvError::Count {
                what: "block counts of KV groups",
                got: n_blocks.len(),
                wanted: groups.len(),
            });
        }
        if let Some(group) = groups.iter().position(|g| g.window == Some(0)) {
            return Err(KvError::EmptyWindow { group });
        }
        let pools = n_blocks
            .iter()
            .enumerate()
            .map(|(group, &capacity)| {
                BlockPool::new(capacity).ok_or(KvError::PoolTooLarge {
                    group,
                    capacity,
                    max: BlockPool::MAX_BLOCKS,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            groups: groups.to_vec(),
            pools,
        })
    }

    /// The groups.
    pub fn groups(&self) -> &[KvGroup] {
        &self.groups
    }

    /// The pool of a group.
    pub fn pool(&self, group: usize) -> &BlockPool {
        &self.pools[group]
    }

    /// The pool of a group, to retain and release blocks held outside sequences.
    pub fn pool_mut(&mut self, group: usize) -> &mut BlockPool {
        &mut self.pools[group]
    }
}
