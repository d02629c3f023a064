//! Random traces of sequences against a naive model: a simulated device whose slots hold a tag for
//! each token ever computed. After each step every sequence must find, through its block tables,
//! exactly its own history wherever its windows still look.

use kvant_kv::{
    BlockCopy, KV_BLOCK_TOKENS, KvError, KvGroup, KvPools, NO_BLOCK, SequenceKv, check_integrity,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Action {
    New,
    Append {
        who: usize,
        n_tokens: usize,
    },
    Fork {
        who: usize,
    },
    Truncate {
        who: usize,
        keep: f64,
    },
    Undo {
        who: usize,
        n_tokens: usize,
    },
    Free {
        who: usize,
    },
    /// Runs the step that has gathered so far.
    Run,
}

fn action() -> impl Strategy<Value = Action> {
    let who = 0usize..8;
    prop_oneof![
        2 => Just(Action::New),
        8 => (who.clone(), prop_oneof![Just(1usize), 1usize..40, 30usize..200])
            .prop_map(|(who, n_tokens)| Action::Append { who, n_tokens }),
        2 => who.clone().prop_map(|who| Action::Fork { who }),
        1 => (who.clone(), prop_oneof![Just(0.0), 0.0..=1.0]).prop_map(|(who, keep)| Action::Truncate { who, keep }),
        2 => (who.clone(), 0usize..50).prop_map(|(who, n_tokens)| Action::Undo { who, n_tokens }),
        1 => who.prop_map(|who| Action::Free { who }),
        6 => Just(Action::Run),
    ]
}

struct Live {
    kv: SequenceKv,
    /// Tag of each token, in order.
    history: Vec<u64>,
    /// Tokens before this are on the device.
    computed: usize,
    /// Length before the last append.
    before_append: usize,
}

struct World {
    pools: KvPools,
    /// `[group][slot]`
    device: Vec<Vec<u64>>,
    live: Vec<Live>,
    copies: Vec<BlockCopy>,
    next_tag: u64,
}

impl World {
    fn new(groups: &[KvGroup], n_blocks: &[usize]) -> Self {
        Self {
            pools: KvPools::new(groups, n_blocks).unwrap(),
            device: n_blocks
                .iter()
                .map(|n| vec![u64::MAX; n * KV_BLOCK_TOKENS])
                .collect(),
            live: Vec::new(),
            copies: Vec::new(),
            next_tag: 0,
        }
    }

    fn act(&mut self, action: &Action) {
        let n_live = self.live.len();
        let pick = |who: usize| (n_live > 0).then(|| who % n_live);
        match *action {
            Action::New => {
                if self.live.len() < 8 {
                    self.live.push(Live {
                        kv: SequenceKv::new(&self.pools),
                        history: Vec::new(),
                        computed: 0,
                        before_append: 0,
                    });
                }
            }
            Action::Append { who, n_tokens } => {
                if let Some(who) = pick(who) {
                    self.append(who, n_tokens);
                }
            }
            Action::Fork { who } => {
                // The tokens of a step that has not run are in no block yet.
                self.run();
                if let Some(who) = pick(who).filter(|_| n_live < 8) {
                    let parent = &self.live[who];
                    let child = Live {
                        kv: parent.kv.fork(&mut self.pools),
                        history: parent.history.clone(),
                        ..*parent
                    };
                    self.live.push(child);
                }
            }
            Action::Truncate { who, keep } => {
                if let Some(who) = pick(who) {
                    let n = (self.live[who].history.len() as f64 * keep) as usize;
                    self.truncate(who, n);
                }
            }
            Action::Undo { who, n_tokens } => {
                if let Some(who) = pick(who) {
                    let live = &self.live[who];
                    let n = live
                        .history
                        .len()
                        .saturating_sub(n_tokens)
                        .max(live.before_append);
                    self.truncate(who, n);
                    assert_eq!(self.live[who].history.len(), n, "an undo always works");
                }
            }
            Action::Free { who } => {
                if let Some(who) = pick(who) {
                    let live = self.live.swap_remove(who);
                    live.kv.free(&mut self.pools);
                }
            }
            Action::Run => self.run(),
        }
    }

    fn append(&mut self, who: usize, n_tokens: usize) {
        let pools_before = self.pools.clone();
        let live = &mut self.live[who];
        let tables_before: Vec<Vec<u32>> =
            live.kv.tables().iter().map(|t| t.ids().to_vec()).collect();
        match live.kv.append(&mut self.pools, n_tokens) {
            Ok(appended) => {
                assert_eq!(appended.first_position, live.history.len());
                live.before_append = live.history.len();
                live.history
                    .extend(self.next_tag..self.next_tag + n_tokens as u64);
                self.next_tag += n_tokens as u64;
                let sealed_each = live.history.len() / KV_BLOCK_TOKENS
                    - appended.first_position / KV_BLOCK_TOKENS;
                assert_eq!(
                    appended.sealed.len(),
                    sealed_each * self.pools.groups().len()
                );
                self.copies.extend(appended.copies);
            }
            Err(KvError::OutOfBlocks {
                group,
                wanted,
                free,
            }) => {
                assert!(wanted > free);
                assert_eq!(self.pools, pools_before, "a refused append changes nothing");
                let tables: Vec<_> = live.kv.tables().iter().map(|t| t.ids().to_vec()).collect();
                assert_eq!(tables, tables_before);
                assert_eq!(live.kv.n_tokens(), live.history.len());
                // It was refused with reason: even if all that this sequence alone owns and no
                // longer sees came back, the blocks it must hold would be too many.
                assert!(self.truly_full(who, group, n_tokens));
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Counts, from scratch, the distinct blocks that all sequences would need after the append.
    fn truly_full(&self, who: usize, group: usize, n_tokens: usize) -> bool {
        let mut others = std::collections::HashSet::new();
        for (i, live) in self.live.iter().enumerate() {
            if i != who {
                others.extend(live.kv.table(group).resident());
            }
        }
        let live = &self.live[who];
        let len = live.history.len();
        let first_seen = self.pools.groups()[group].first_seen(len) / KV_BLOCK_TOKENS;
        let written = len / KV_BLOCK_TOKENS;
        let kept_private = (first_seen..len.div_ceil(KV_BLOCK_TOKENS))
            .filter_map(|i| live.kv.table(group).get(i).map(|id| (i, id)))
            .filter(|(i, id)| !others.contains(id) && *i != written)
            .count();
        let new = (len + n_tokens).div_ceil(KV_BLOCK_TOKENS) - written;
        others.len() + kept_private + new > self.pools.pool(group).capacity()
    }

    fn truncate(&mut self, who: usize, n: usize) {
        let live = &mut self.live[who];
        match live.kv.truncate(&mut self.pools, n) {
            Ok(()) => {
                live.history.truncate(n);
                live.computed = live.computed.min(n);
                live.before_append = live.before_append.min(n);
            }
            Err(KvError::WindowPassed {
                group, shortest, ..
            }) => {
                assert!(n > 0 && n < shortest && shortest <= live.history.len());
                let first_seen = self.pools.groups()[group].first_seen(n) / KV_BLOCK_TOKENS;
                assert_eq!(live.kv.table(group).ids()[first_seen], NO_BLOCK);
                assert_eq!(live.kv.n_tokens(), live.history.len());
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Copies first, in order, then every token that is not computed yet; then all must be found.
    fn run(&mut self) {
        for copy in self.copies.drain(..) {
            let memory = &mut self.device[copy.group];
            let (src, dst) = (copy.src.0 as usize, copy.dst.0 as usize);
            memory.copy_within(
                src * KV_BLOCK_TOKENS..(src + 1) * KV_BLOCK_TOKENS,
                dst * KV_BLOCK_TOKENS,
            );
        }
        for live in &mut self.live {
            for (group, memory) in self.device.iter_mut().enumerate() {
                for position in live.computed..live.history.len() {
                    // Blocks that a later append of the same step let go are not written.
                    if let Some(slot) = live.kv.table(group).slot(position) {
                        memory[slot as usize] = live.history[position];
                    }
                }
            }
            live.computed = live.history.len();
        }
        for live in &self.live {
            for (group, memory) in self.device.iter().enumerate() {
                let from = self.pools.groups()[group].first_seen(live.history.len());
                for position in from..live.history.len() {
                    let slot = live
                        .kv
                        .table(group)
                        .slot(position)
                        .expect("a block in sight");
                    assert_eq!(memory[slot as usize], live.history[position]);
                }
            }
        }
    }

    fn check(&self) {
        check_integrity(&self.pools, self.live.iter().map(|live| &live.kv)).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_finds_its_own_history(
        windows in prop::collection::vec(prop_oneof![Just(None), (1usize..150).prop_map(Some)], 1..4),
        n_blocks in 1usize..40,
        actions in prop::collection::vec(action(), 1..120),
    ) {
        let groups: Vec<KvGroup> = windows.iter().map(|&window| KvGroup { window }).collect();
        let mut world = World::new(&groups, &vec![n_blocks; groups.len()]);
        for action in &actions {
            world.act(action);
            world.check();
        }
        world.run();
        while let Some(live) = world.live.pop() {
            live.kv.free(&mut world.pools);
            world.check();
        }
        for group in 0..groups.len() {
            prop_assert_eq!(world.pools.pool(group).n_free(), n_blocks, "no block is lost");
        }
    }

    /// A pool of `max_blocks` lets one sequence grow to its context in chunks, whatever the window.
    #[test]
    fn max_blocks_is_enough(
        window in prop_oneof![Just(None), (1usize..200).prop_map(Some)],
        context in 1usize..600,
        chunks in prop::collection::vec(1usize..70, 1..40),
    ) {
        let group = KvGroup { window };
        let largest = chunks.iter().copied().max().unwrap_or(1);
        let mut pools = KvPools::new(&[group], &[group.max_blocks(context, largest)]).unwrap();
        let mut sequence = SequenceKv::new(&pools);
        for chunk in chunks {
            let n = chunk.min(context - sequence.n_tokens());
            prop_assert!(sequence.append(&mut pools, n).is_ok());
            check_integrity(&pools, [&sequence]).unwrap();
        }
    }
}
