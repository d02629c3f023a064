//! Which slot of the arena each value lives in. A slot is reused once its value is dead, so memory
//! is known before anything runs.

use crate::program::{Node, Rows, ValueDesc, ValueId};

/// Names a slot of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

/// A slot for each value, and the shape of each slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaPlan {
    slot_of: Vec<SlotId>,
    slots: Vec<ValueDesc>,
}

impl ArenaPlan {
    /// Assigns slots by liveness, in program order. A node's outputs never share a slot with its
    /// inputs, so that kernels may write while they read. Outputs of the program keep their slots
    /// to the end.
    pub fn new(nodes: &[Node], values: &[ValueDesc], outputs: &[ValueId]) -> Self {
        let mut last_use = vec![0usize; values.len()];
        for (at, node) in nodes.iter().enumerate() {
            for id in node.inputs.iter().chain(&node.outputs) {
                last_use[id.0 as usize] = at;
            }
        }
        for id in outputs {
            last_use[id.0 as usize] = usize::MAX;
        }
        let mut slots: Vec<ValueDesc> = Vec::new();
        let mut free: Vec<SlotId> = Vec::new();
        let mut slot_of = vec![SlotId(u32::MAX); values.len()];
        for (at, node) in nodes.iter().enumerate() {
            for &out in &node.outputs {
                let want = values[out.0 as usize];
                // The narrowest free slot that is wide enough, else the widest, which then grows.
                let best = free
                    .iter()
                    .enumerate()
                    .filter(|(_, s)| slots[s.0 as usize].rows == want.rows)
                    .min_by_key(|(_, s)| {
                        let width = slots[s.0 as usize].width;
                        if width >= want.width {
                            (0, width)
                        } else {
                            (1, usize::MAX - width)
                        }
                    })
                    .map(|(i, _)| i);
                let slot = match best {
                    Some(i) => free.swap_remove(i),
                    None => {
                        slots.push(ValueDesc {
                            rows: want.rows,
                            width: 0,
                        });
                        SlotId(slots.len() as u32 - 1)
                    }
                };
                let desc = &mut slots[slot.0 as usize];
                desc.width = desc.width.max(want.width);
                slot_of[out.0 as usize] = slot;
            }
            let mut dead: Vec<ValueId> = node
                .inputs
                .iter()
                .chain(&node.outputs)
                .copied()
                .filter(|id| last_use[id.0 as usize] == at)
                .collect();
            dead.sort_unstable();
            dead.dedup();
            for id in dead {
                free.push(slot_of[id.0 as usize]);
            }
        }
        Self { slot_of, slots }
    }

    /// The slot of a value.
    pub fn slot_of(&self, value: ValueId) -> SlotId {
        self.slot_of[value.0 as usize]
    }

    /// Shapes of all slots: each as wide as its widest value.
    pub fn slots(&self) -> &[ValueDesc] {
        &self.slots
    }

    /// Bytes of all slots for steps of at most `max_tokens` tokens and `max_outputs` output rows;
    /// `None` on overflow.
    pub fn bytes(&self, max_tokens: usize, max_outputs: usize) -> Option<usize> {
        self.slots.iter().try_fold(0usize, |sum, slot| {
            let rows = match slot.rows {
                Rows::Tokens => max_tokens,
                Rows::Outputs => max_outputs,
            };
            sum.checked_add(slot.width.checked_mul(rows)?.checked_mul(4)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use smallvec::smallvec;

    fn chain(widths: &[usize]) -> (Vec<Node>, Vec<ValueDesc>) {
        let values = widths
            .iter()
            .map(|&width| ValueDesc {
                rows: Rows::Tokens,
                width,
            })
            .collect();
        let nodes = (0..widths.len())
            .map(|i| Node {
                op: Op::Scale { factor: 1.0 },
                inputs: if i == 0 {
                    smallvec![]
                } else {
                    smallvec![ValueId(i as u32 - 1)]
                },
                outputs: smallvec![ValueId(i as u32)],
            })
            .collect();
        (nodes, values)
    }

    #[test]
    fn a_chain_needs_two_slots_and_the_output_survives() {
        let (nodes, values) = chain(&[8, 16, 8, 16, 4]);
        let plan = ArenaPlan::new(&nodes, &values, &[ValueId(4)]);
        assert_eq!(plan.slots().len(), 2);
        assert_eq!(plan.bytes(3, 0), Some(3 * 4 * (8 + 16)));
    }

    #[test]
    fn live_values_never_share_a_slot() {
        // Value 0 is read by the last node, so nothing between may take its slot.
        let (mut nodes, values) = chain(&[8, 8, 8, 8]);
        nodes[3].inputs.push(ValueId(0));
        let plan = ArenaPlan::new(&nodes, &values, &[ValueId(3)]);
        for other in 1..4 {
            assert_ne!(plan.slot_of(ValueId(0)), plan.slot_of(ValueId(other)));
        }
    }
}
