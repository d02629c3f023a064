//! The check that no block is lost, owned twice by mistake, or writable by two.

use crate::pool::{BlockId, BlockState};
use crate::pools::KvPools;
use crate::sequence::SequenceKv;
use kvant_quant::KV_BLOCK_TOKENS;

/// A broken invariant: a bug in this crate or in how it is called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntegrityError {
    /// A block has another number of owners than the live sequences account for.
    #[error("KV group {group}, {id:?}: {counted} owners found, {recorded} recorded")]
    Refs {
        /// KV group.
        group: usize,
        /// The block.
        id: BlockId,
        /// Table entries that name it.
        counted: u32,
        /// Owners its pool records.
        recorded: u32,
    },
    /// The free list names a block twice, or one that is owned, or misses one.
    #[error("KV group {group}: the free list does not hold each free block once ({id:?})")]
    FreeList {
        /// KV group.
        group: usize,
        /// A block that is wrong.
        id: BlockId,
    },
    /// The pool's counters disagree with its blocks.
    #[error("KV group {group}: {outstanding} blocks outstanding by the counters, {used} in use")]
    Counters {
        /// KV group.
        group: usize,
        /// Allocated less released.
        outstanding: u64,
        /// Blocks in use.
        used: usize,
    },
    /// A table has another number of entries than its sequence's tokens ask for, or a group lacks
    /// its table.
    #[error("sequence {sequence}, KV group {group}: the table has {got} entries, {wanted} wanted")]
    TableLength {
        /// Index of the sequence.
        sequence: usize,
        /// KV group.
        group: usize,
        /// Entries.
        got: usize,
        /// Entries wanted.
        wanted: usize,
    },
    /// A block that the next token sees is missing, or a hole stands after a block.
    #[error("sequence {sequence}, KV group {group}: block {index} is missing")]
    Hole {
        /// Index of the sequence.
        sequence: usize,
        /// KV group.
        group: usize,
        /// Index in the table.
        index: usize,
    },
    /// A block is full and not sealed.
    #[error("sequence {sequence}, KV group {group}: block {index} is full and not sealed")]
    NotSealed {
        /// Index of the sequence.
        sequence: usize,
        /// KV group.
        group: usize,
        /// Index in the table.
        index: usize,
    },
}

/// Checks pools against all live sequences: every block is either free or has as many owners as
/// tables name it, every token that can still be seen has its block, every full block is sealed.
/// Takes time in the size of pools and tables; meant for tests and debug builds, after each step.
pub fn check_integrity<'a>(
    pools: &KvPools,
    sequences: impl IntoIterator<Item = &'a SequenceKv>,
) -> Result<(), IntegrityError> {
    let n_groups = pools.groups().len();
    let mut counted: Vec<Vec<u32>> = (0..n_groups)
        .map(|group| vec![0; pools.pool(group).capacity()])
        .collect();
    for (index, sequence) in sequences.into_iter().enumerate() {
        check_tables(pools, index, sequence)?;
        for (group, table) in sequence.tables().iter().enumerate() {
            for id in table.resident() {
                counted[group][id.0 as usize] += 1;
            }
        }
    }
    for (group, counted) in counted.iter().enumerate() {
        check_pool(pools, group, counted)?;
    }
    Ok(())
}

fn check_tables(
    pools: &KvPools,
    index_of_sequence: usize,
    sequence: &SequenceKv,
) -> Result<(), IntegrityError> {
    let n_tokens = sequence.n_tokens();
    let wanted = n_tokens.div_ceil(KV_BLOCK_TOKENS);
    for (group, kv_group) in pools.groups().iter().enumerate() {
        let got = sequence.tables().get(group).map_or(0, |t| t.len());
        if got != wanted {
            return Err(IntegrityError::TableLength {
                sequence: index_of_sequence,
                group,
                got,
                wanted,
            });
        }
        let table = sequence.table(group);
        let pool = pools.pool(group);
        let needed_from = kv_group.first_seen(n_tokens) / KV_BLOCK_TOKENS;
        for index in needed_from.min(table.first_resident())..table.len() {
            let hole = IntegrityError::Hole {
                sequence: index_of_sequence,
                group,
                index,
            };
            let id = table.get(index).ok_or(hole.clone())?;
            if id.0 as usize >= pool.capacity() {
                return Err(hole);
            }
            let full = (index + 1) * KV_BLOCK_TOKENS <= n_tokens;
            if full && pool.state(id) != BlockState::Sealed {
                return Err(IntegrityError::NotSealed {
                    sequence: index_of_sequence,
                    group,
                    index,
                });
            }
        }
    }
    Ok(())
}

fn check_pool(pools: &KvPools, group: usize, counted: &[u32]) -> Result<(), IntegrityError> {
    let pool = pools.pool(group);
    let mut is_free = vec![false; pool.capacity()];
    for &id in pool.free_list() {
        match is_free.get_mut(id.0 as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(IntegrityError::FreeList { group, id }),
        }
    }
    for (at, &counted) in counted.iter().enumerate() {
        let id = BlockId(at as u32);
        let recorded = pool.n_refs(id);
        if recorded != counted {
            return Err(IntegrityError::Refs {
                group,
                id,
                counted,
                recorded,
            });
        }
        if is_free[at] != (recorded == 0) {
            return Err(IntegrityError::FreeList { group, id });
        }
    }
    let counters = pool.counters();
    let outstanding = counters.allocated - counters.released;
    if outstanding != pool.n_used() as u64 {
        return Err(IntegrityError::Counters {
            group,
            outstanding,
            used: pool.n_used(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::KvGroup;

    fn pools() -> KvPools {
        KvPools::new(&[KvGroup { window: None }], &[4]).unwrap()
    }

    #[test]
    fn a_dropped_sequence_is_found() {
        let mut pools = pools();
        let mut sequence = SequenceKv::new(&pools);
        sequence.append(&mut pools, 40).unwrap();
        assert_eq!(check_integrity(&pools, [&sequence]), Ok(()));
        drop(sequence);
        assert!(matches!(
            check_integrity(&pools, []),
            Err(IntegrityError::Refs {
                counted: 0,
                recorded: 1,
                ..
            })
        ));
    }

    #[test]
    fn a_block_released_behind_a_sequence_is_found() {
        let mut pools = pools();
        let mut sequence = SequenceKv::new(&pools);
        sequence.append(&mut pools, 1).unwrap();
        let id = sequence.table(0).get(0).unwrap();
        pools.pool_mut(0).release(id);
        assert!(matches!(
            check_integrity(&pools, [&sequence]),
            Err(IntegrityError::Refs { .. })
        ));
    }

    #[test]
    fn a_full_block_left_open_is_found() {
        let mut pools = pools();
        let mut sequence = SequenceKv::new(&pools);
        sequence.append(&mut pools, 32).unwrap();
        pools.pool_mut(0).reopen(sequence.table(0).get(0).unwrap());
        assert!(matches!(
            check_integrity(&pools, [&sequence]),
            Err(IntegrityError::NotSealed { index: 0, .. })
        ));
    }
}
