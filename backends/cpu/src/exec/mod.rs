//! A prepared program: phases, memory, and the walk over them.

mod attend;
mod check;
mod layout;
mod lower;
mod matmul;
mod phase;
mod rows;
mod run;
mod step;

pub(crate) use check::{check_heads, check_rope};

use crate::CpuWeight;
use crate::Level;
use crate::attention::plan::Plan;
use crate::memory::CpuBuffer;
use kvant_device::{
    DeviceError, KvBinding, KvLayerDecl, Op, PrepareOptions, Program, StepError, StepInput,
};
use layout::Layout;
use phase::{Phase, ValueRef};
use step::StepState;

/// A program ready to run on a team.
#[derive(Debug)]
pub struct CpuExec {
    level: Level,
    /// The most threads of a step: there is scratch for so many.
    n_threads: usize,
    phases: Vec<Phase>,
    layout: Layout,
    arena: CpuBuffer,
    plans: Vec<Plan>,
    state: StepState,
    options: PrepareOptions,
    outputs: Vec<ValueRef>,
    vocab_size: usize,
    kv: KvBinding<CpuBuffer>,
    kv_layers: Vec<KvLayerDecl>,
    windows: Vec<Option<usize>>,
}

/// Bytes that [`CpuExec::new`] takes.
pub(crate) fn exec_bytes(
    program: &Program,
    options: &PrepareOptions,
    level: Level,
    n_threads: usize,
) -> Result<usize, DeviceError> {
    let arena = lower::plan_arena(program);
    let layout = Layout::new(program, &arena, options, level, n_threads)?;
    layout
        .bytes()
        .and_then(|bytes| bytes.checked_add(StepState::bytes(options.max_tokens)?))
        .ok_or_else(|| DeviceError::Overflow {
            what: "activations and scratch".to_owned(),
        })
}

impl CpuExec {
    pub(crate) fn new(
        program: &Program,
        weights: &[CpuWeight],
        kv: KvBinding<CpuBuffer>,
        options: &PrepareOptions,
        level: Level,
        n_threads: usize,
    ) -> Result<Self, DeviceError> {
        lower::check(program, weights, &kv)?;
        let arena_plan = lower::plan_arena(program);
        let layout = Layout::new(program, &arena_plan, options, level, n_threads)?;
        let phases = lower::lower(program, weights, &kv, &arena_plan, &layout);
        let overflow = || DeviceError::Overflow {
            what: "attention plans".to_owned(),
        };
        let plans = layout
            .plans
            .iter()
            .map(|(key, n_slots)| {
                Plan::new(*key, options.max_tokens, *n_slots).ok_or_else(overflow)
            })
            .collect::<Result<_, _>>()?;
        let wanted = layout.arena_bytes();
        let arena = CpuBuffer::new(wanted).ok_or_else(|| DeviceError::OutOfMemory {
            wanted,
            what: "activations and scratch".to_owned(),
        })?;
        // The widest window of a layer is what the step must have blocks for.
        let mut windows: Vec<Option<Option<usize>>> = vec![None; program.kv_layers.len()];
        for node in &program.nodes {
            if let Op::PagedAttention(a) = &node.op {
                windows[a.layer] = Some(match (windows[a.layer], a.window) {
                    (None, window) => window,
                    (Some(Some(other)), Some(window)) => Some(window.max(other)),
                    (Some(_), _) => None,
                });
            }
        }
        let vocab_size = program
            .nodes
            .iter()
            .filter_map(|node| match &node.op {
                Op::Embed { table, .. } => Some(program.weight(*table).n_rows),
                _ => None,
            })
            .min()
            .unwrap_or(usize::MAX);
        let outputs = program
            .outputs
            .iter()
            .map(|id| ValueRef {
                offset: layout.slots[arena_plan.slot_of(*id).0 as usize],
                width: program.value(*id).width,
                rows: program.value(*id).rows,
            })
            .collect();
        Ok(Self {
            level,
            n_threads,
            state: StepState::new(phases.len(), options.max_tokens),
            phases,
            layout,
            arena,
            plans,
            options: *options,
            outputs,
            vocab_size,
            kv,
            kv_layers: program.kv_layers.clone(),
            windows: windows.into_iter().map(Option::flatten).collect(),
        })
    }

    /// Checks everything about a step that kernels rely on.
    fn validate(&self, step: &StepInput<'_>) -> Result<(), StepError> {
        let PrepareOptions {
            max_tokens,
            max_outputs,
            max_context,
            ..
        } = self.options;
        if step.tokens.len() > max_tokens || step.output_rows.len() > max_outputs {
            return Err(StepError::TooLarge {
                n_tokens: step.tokens.len(),
                n_outputs: step.output_rows.len(),
                max_tokens,
                max_outputs,
            });
        }
        if step.sequences.iter().any(|s| s.context_len > max_context) {
            return Err(StepError::Shape(
                "a sequence is longer than the program was prepared for",
            ));
        }
        step.validate(
            self.vocab_size,
            &self.kv_layers,
            &self.windows,
            &self.kv.n_blocks,
        )
    }

    /// Output `index` of the last step, `[rows, width]`.
    pub(crate) fn output(&self, index: usize) -> &[f32] {
        let value = self.outputs[index];
        let n = self.state.rows(value.rows) * value.width;
        // SAFETY: the slot holds that many floats, and no step runs while `self` is shared.
        unsafe {
            let start = self.arena.as_ptr().add(value.offset).cast::<f32>();
            std::slice::from_raw_parts(start, n)
        }
    }
}
