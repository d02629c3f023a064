//! The memory of a prepared program: priced and carved by the same code.

use super::matmul::PRIVATE_ELEMENTS;
use crate::Level;
use crate::attention::Method;
use crate::attention::plan::{Item, Merge, Plan, PlanKey};
use crate::attention::tile::{Partials, TileScratch};
use crate::matmul::{act_bytes_bound, scratch_bytes_bound};
use crate::memory::Carver;
use crate::weights::geometry::{self, layout};
use kvant_device::{ArenaPlan, DeviceError, Op, PrepareOptions, Program, Rows};

/// Where everything lies in the arena of a program.
#[derive(Debug)]
pub(crate) struct Layout {
    /// First byte of each slot.
    pub(crate) slots: Vec<usize>,
    /// Each thread's scratch.
    pub(crate) threads: Vec<ThreadScratch>,
    /// The plans' keys and slots for partials.
    pub(crate) plans: Vec<(PlanKey, usize)>,
    /// Prepared activations.
    pub(crate) acts: usize,
    partial_max: usize,
    partial_sum: usize,
    partial_values: usize,
    arena_bytes: usize,
    plan_bytes: usize,
}

/// One thread's private memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadScratch {
    pub(crate) tile: TileScratch,
    /// A row as wide as the widest value.
    pub(crate) row: usize,
    /// A row of keys.
    pub(crate) key: usize,
    /// Input of products that the thread prepares for itself, the sum before the norm, and the
    /// quantised input: [`PRIVATE_ELEMENTS`] elements each.
    pub(crate) private_x: usize,
    pub(crate) private_sum: usize,
    pub(crate) private_acts: usize,
    /// Scratch of products.
    pub(crate) matmul: usize,
}

impl Layout {
    /// Places slots, scratch and partials; `arena` is the plan of the program's phases.
    pub(crate) fn new(
        program: &Program,
        arena: &ArenaPlan,
        options: &PrepareOptions,
        level: Level,
        n_threads: usize,
    ) -> Result<Self, DeviceError> {
        Self::try_new(program, arena, options, level, n_threads).ok_or_else(|| {
            DeviceError::Overflow {
                what: "activations and scratch".to_owned(),
            }
        })
    }

    fn try_new(
        program: &Program,
        arena: &ArenaPlan,
        options: &PrepareOptions,
        level: Level,
        n_threads: usize,
    ) -> Option<Self> {
        let mut carver = Carver::default();
        let mut slots = Vec::new();
        for slot in arena.slots() {
            let rows = match slot.rows {
                Rows::Tokens => options.max_tokens,
                Rows::Outputs => options.max_outputs,
            };
            slots.push(carver.part::<f32>(slot.width.checked_mul(rows)?)?);
        }
        let method = Method::choose(level, options.deterministic);
        let mut plans: Vec<(PlanKey, usize)> = Vec::new();
        let (mut rows, mut head_dim, mut v_head_dim) = (0, 0, 0);
        for node in &program.nodes {
            let Op::PagedAttention(a) = &node.op else {
                continue;
            };
            let key = PlanKey {
                method,
                heads: a.heads,
                window: a.window,
            };
            if !plans.iter().any(|(k, _)| *k == key) {
                let n_slots = Plan::slots(&a.heads, options.max_context, n_threads)?;
                plans.push((key, n_slots));
            }
            let group = a.heads.n_heads.checked_div(a.heads.n_kv_heads)?;
            rows = rows.max(method.tile_tokens(group).checked_mul(group)?);
            head_dim = head_dim.max(a.heads.head_dim);
            v_head_dim = v_head_dim.max(a.heads.v_head_dim);
        }
        let most_slots = plans.iter().map(|(_, n)| *n).max().unwrap_or(0);
        let partial_max = carver.part::<f32>(most_slots)?;
        let partial_sum = carver.part::<f32>(most_slots)?;
        let partial_values = carver.part::<f32>(most_slots.checked_mul(v_head_dim)?)?;
        let acts = carver.part::<u8>(most_act_bytes(program, options, level)?)?;
        let widest = program.values.iter().map(|v| v.width).max().unwrap_or(0);
        let mut threads = Vec::new();
        for _ in 0..n_threads {
            threads.push(ThreadScratch {
                tile: TileScratch::carve(&mut carver, method, rows, head_dim, v_head_dim)?,
                row: carver.part::<f32>(widest)?,
                key: carver.part::<f32>(widest)?,
                private_x: carver.part::<f32>(PRIVATE_ELEMENTS)?,
                private_sum: carver.part::<f32>(PRIVATE_ELEMENTS)?,
                private_acts: carver.part::<u8>(act_bytes_bound(
                    level,
                    false,
                    1,
                    PRIVATE_ELEMENTS,
                )?)?,
                matmul: carver.part::<u8>(scratch_bytes_bound(level))?,
            });
        }
        let mut plan_bytes = 0usize;
        for (key, n_slots) in &plans {
            let (items, merges) = Plan::capacity(*key, options.max_tokens, *n_slots)?;
            plan_bytes = plan_bytes
                .checked_add(items.checked_mul(size_of::<Item>())?)?
                .checked_add(merges.checked_mul(size_of::<Merge>())?)?;
        }
        Some(Self {
            slots,
            threads,
            plans,
            acts,
            partial_max,
            partial_sum,
            partial_values,
            arena_bytes: carver.bytes(),
            plan_bytes,
        })
    }

    /// Bytes of the arena.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Bytes of everything.
    pub(crate) fn bytes(&self) -> Option<usize> {
        self.arena_bytes.checked_add(self.plan_bytes)
    }

    /// The partials that items leave for merges.
    ///
    /// # Safety
    /// `base` is the arena.
    pub(crate) unsafe fn partials(&self, base: *mut u8) -> Partials {
        // SAFETY: by the caller.
        unsafe {
            Partials {
                max: base.add(self.partial_max).cast(),
                sum: base.add(self.partial_sum).cast(),
                values: base.add(self.partial_values).cast(),
            }
        }
    }
}

/// Bytes of prepared activations of the product that has most; `None` on overflow.
fn most_act_bytes(program: &Program, options: &PrepareOptions, level: Level) -> Option<usize> {
    let mut most = 0;
    for node in &program.nodes {
        let Op::MatMul { weights, .. } = &node.op else {
            continue;
        };
        let has_floats = weights.iter().any(|w| {
            matches!(
                layout(program.weight(*w).format),
                geometry::Layout::Floats { .. }
            )
        });
        let x = program.value(node.inputs[0]);
        let rows = match x.rows {
            Rows::Tokens => options.max_tokens,
            Rows::Outputs => options.max_outputs,
        };
        most = most.max(act_bytes_bound(level, has_floats, rows, x.width)?);
    }
    Some(most)
}
