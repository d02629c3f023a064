//! What a step adds to a prepared program: how many chunks each phase has.

use super::phase::{Phase, ValueRef};
use super::{CpuExec, matmul::MatMulPhase};
use kvant_device::{Rows, StepInput};
use kvant_quant::KV_BLOCK_TOKENS;

/// Rows of one sequence that lie in one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRows {
    pub(crate) first_row: usize,
    pub(crate) n_rows: usize,
}

/// Buffers that each step fills anew; no step allocates.
#[derive(Debug)]
pub(crate) struct StepState {
    pub(crate) n_chunks: Vec<usize>,
    /// The sequence of each row.
    pub(crate) sequence_of: Vec<usize>,
    pub(crate) block_rows: Vec<BlockRows>,
    pub(crate) n_tokens: usize,
    pub(crate) n_outputs: usize,
    /// Every sequence has one row.
    pub(crate) single: bool,
    /// Threads that the step is cut for.
    pub(crate) n_threads: usize,
}

impl StepState {
    /// Bytes for steps of `max_tokens`; `None` on overflow.
    pub(crate) fn bytes(max_tokens: usize) -> Option<usize> {
        max_tokens.checked_mul(size_of::<usize>() + size_of::<BlockRows>())
    }

    pub(crate) fn new(n_phases: usize, max_tokens: usize) -> Self {
        Self {
            n_chunks: Vec::with_capacity(n_phases),
            sequence_of: Vec::with_capacity(max_tokens),
            block_rows: Vec::with_capacity(max_tokens),
            n_tokens: 0,
            n_outputs: 0,
            single: false,
            n_threads: 1,
        }
    }

    pub(crate) fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.n_tokens,
            Rows::Outputs => self.n_outputs,
        }
    }
}

/// Elements that are worth a chunk of their own.
const CHUNK_ELEMENTS: usize = 4096;

/// Chunks for `rows` rows of `width` elements: several a thread, none too small.
fn row_chunks(rows: usize, width: usize, n_threads: usize) -> usize {
    let by_work = (rows.saturating_mul(width) / CHUNK_ELEMENTS).max(1);
    rows.min(4 * n_threads).min(by_work)
}

impl CpuExec {
    /// Fills the step's buffers, for so many threads.
    pub(crate) fn begin(&mut self, step: &StepInput<'_>, n_threads: usize) {
        let state = &mut self.state;
        state.n_threads = n_threads;
        state.n_tokens = step.tokens.len();
        state.n_outputs = step.output_rows.len();
        state.single = step.sequences.iter().all(|s| s.n_rows == 1);
        state.sequence_of.clear();
        state.block_rows.clear();
        for (sequence, s) in step.sequences.iter().enumerate() {
            state
                .sequence_of
                .extend(std::iter::repeat_n(sequence, s.n_rows));
            let mut row = 0;
            while row < s.n_rows {
                let position = s.context_len - s.n_rows + row;
                let in_block = KV_BLOCK_TOKENS - position % KV_BLOCK_TOKENS;
                let n_rows = in_block.min(s.n_rows - row);
                state.block_rows.push(BlockRows {
                    first_row: s.first_row + row,
                    n_rows,
                });
                row += n_rows;
            }
        }
        for plan in &mut self.plans {
            plan.fill(step, n_threads);
        }
        self.state.n_chunks.clear();
        for at in 0..self.phases.len() {
            let n = self.count_chunks(at, step);
            self.state.n_chunks.push(n);
        }
    }

    fn count_chunks(&self, at: usize, step: &StepInput<'_>) -> usize {
        let state = &self.state;
        let n_threads = state.n_threads;
        let of_rows = |value: &ValueRef| row_chunks(state.rows(value.rows), value.width, n_threads);
        match &self.phases[at] {
            Phase::CopyBlocks => usize::from(!step.copies.is_empty()),
            Phase::Embed { out, .. }
            | Phase::Norm { out, .. }
            | Phase::Elementwise { out, .. }
            | Phase::GatherRows { out, .. } => of_rows(out),
            Phase::AddNorm { sum, .. } => of_rows(sum),
            // Sines are dear.
            Phase::RopeTable { out, .. } => {
                row_chunks(state.rows(out.rows), out.width * 16, n_threads)
            }
            Phase::QkNormRope { qkv, .. } => of_rows(qkv),
            Phase::WriteKv { .. } => state.block_rows.len(),
            Phase::RopeWriteKv { fused, .. } => {
                if *fused && state.single {
                    0
                } else {
                    state.block_rows.len()
                }
            }
            Phase::Attention(phase) => self.plans[phase.plan].items.len(),
            Phase::MergeAttention { plan, .. } => self.plans[*plan].merges.len(),
            Phase::Prepare => self.prepare_chunks(self.product(at + 1)),
            Phase::MatMul(phase) => {
                let rows = state.rows(phase.x.rows);
                if rows == 0 {
                    return 0;
                }
                self.with_plan(phase, |plan| plan.n_chunks())
            }
        }
    }

    fn prepare_chunks(&self, phase: &MatMulPhase) -> usize {
        let rows = self.state.rows(phase.x.rows);
        if rows == 0 || phase.is_private(rows) {
            0
        } else if phase.has_norm() {
            rows.div_ceil(crate::matmul::PREPARE_ROWS)
        } else {
            self.with_plan(phase, |plan| plan.n_prepare_chunks())
        }
    }

    /// The product that is phase `at`.
    pub(crate) fn product(&self, at: usize) -> &MatMulPhase {
        match &self.phases[at] {
            Phase::MatMul(phase) => phase,
            other => unreachable!("a preparation is followed by its product, not {other:?}"),
        }
    }

    pub(crate) fn with_plan<R>(
        &self,
        phase: &MatMulPhase,
        f: impl FnOnce(&crate::matmul::MatMul<'_>) -> R,
    ) -> R {
        let rows = self.state.rows(phase.x.rows);
        let deterministic = self.options.deterministic;
        let n_threads = self.state.n_threads;
        phase.with_plan(self.level, rows, n_threads, deterministic, f)
    }
}
