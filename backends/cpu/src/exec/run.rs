//! Running a step: every phase's chunks, on any thread.

use super::CpuExec;
use super::matmul::{MatMulPhase, Source};
use super::phase::{Phase, ValueRef};
use crate::matmul::{MatMulIo, PREPARE_ROWS};
use crate::team::{Team, Work};
use kvant_device::{DeviceError, Rows, StepInput};
use std::ptr::null;

/// A step on its way through the phases.
pub(super) struct Running<'a> {
    pub(super) exec: &'a CpuExec,
    pub(super) step: &'a StepInput<'a>,
    base: *mut u8,
}

// SAFETY: what lies behind `base` and the KV buffer is written by chunks whose places are disjoint,
// and read only in phases after those that write it.
unsafe impl Sync for Running<'_> {}

impl CpuExec {
    /// Runs a step on the team the program was prepared for.
    pub(crate) fn run(&mut self, team: &Team, step: &StepInput<'_>) -> Result<(), DeviceError> {
        self.validate(step)?;
        self.begin(step, team.next_threads().min(self.n_threads));
        let running = Running {
            exec: self,
            step,
            base: self.arena.as_ptr(),
        };
        team.run(&running).map_err(|panic| DeviceError::Panic {
            op: self.phases[panic.phase].name(),
            message: panic.message,
        })
    }
}

impl Work for Running<'_> {
    fn n_phases(&self) -> usize {
        self.exec.phases.len()
    }

    fn n_chunks(&self, phase: usize) -> usize {
        self.exec.state.n_chunks[phase]
    }

    fn amount(&self) -> u64 {
        self.step.tokens.len() as u64
    }

    fn run_chunk(&self, at: usize, chunk: usize, thread: usize, first: bool) {
        match &self.exec.phases[at] {
            Phase::CopyBlocks => self.copy_blocks(),
            Phase::Attention(phase) => self.attend(phase, chunk, thread),
            Phase::MergeAttention { heads, plan, out } => self.merge(heads, *plan, out, chunk),
            Phase::WriteKv { layer, heads, qkv } => self.write_kv(layer, heads, qkv, chunk),
            Phase::RopeWriteKv { rope, q, .. } => self.rope_write_kv(rope, q, chunk, thread),
            Phase::Prepare => self.prepare(self.exec.product(at + 1), chunk, thread),
            Phase::MatMul(phase) => self.matmul(phase, chunk, thread, first),
            _ => self.rows(at, chunk, thread),
        }
    }
}

impl Phase {
    /// For errors.
    fn name(&self) -> &'static str {
        match self {
            Self::CopyBlocks => "CopyBlocks",
            Self::Embed { .. } => "Embed",
            Self::RopeTable { .. } => "RopeTable",
            Self::Norm { .. } => "Norm",
            Self::AddNorm { .. } => "AddNorm",
            Self::Elementwise { .. } => "Elementwise",
            Self::GatherRows { .. } => "GatherRows",
            Self::QkNormRope { .. } => "QkNormRope",
            Self::WriteKv { .. } => "WriteKv",
            Self::RopeWriteKv { .. } => "RopeWriteKv",
            Self::Attention(_) | Self::MergeAttention { .. } => "PagedAttention",
            Self::Prepare | Self::MatMul(_) => "MatMul",
        }
    }
}

impl Running<'_> {
    /// Row `row` of a value.
    pub(super) fn row(&self, value: &ValueRef, row: usize) -> *mut f32 {
        self.base
            .wrapping_add(value.offset)
            .cast::<f32>()
            .wrapping_add(row * value.width)
    }

    /// Rows of a value in this step.
    pub(super) fn n_rows(&self, rows: Rows) -> usize {
        self.exec.state.rows(rows)
    }

    /// A part of a thread's scratch.
    pub(super) fn scratch<T>(&self, offset: usize) -> *mut T {
        self.base.wrapping_add(offset).cast()
    }

    /// The arena.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    fn io(&self, phase: &MatMulPhase) -> MatMulIo {
        let (residual, residual_stride) = match &phase.residual {
            Some(value) => (self.row(value, 0).cast_const(), value.width),
            None => (null(), 0),
        };
        MatMulIo {
            x: self.row(&phase.x, 0),
            acts: self.base.wrapping_add(self.exec.layout.acts),
            out: self.row(&phase.out, 0),
            out_stride: phase.out.width,
            residual,
            residual_stride,
        }
    }

    /// Norms and quantises some rows for everyone.
    fn prepare(&self, phase: &MatMulPhase, chunk: usize, thread: usize) {
        let exec = self.exec;
        let n_rows = self.n_rows(phase.x.rows);
        if phase.has_norm() {
            let first = chunk * PREPARE_ROWS;
            for row in first..n_rows.min(first + PREPARE_ROWS) {
                let sum = match &phase.source {
                    Source::AddNorm { sum, .. } => self.row(sum, row),
                    _ => self.scratch(exec.layout.threads[thread].row),
                };
                // SAFETY: this chunk alone has these rows; the inputs were written by earlier phases.
                unsafe { phase.norm_row(exec.level, self.base, row, self.row(&phase.x, row), sum) }
            }
        }
        exec.with_plan(phase, |plan| {
            if chunk < plan.n_prepare_chunks() {
                // SAFETY: the rows of this chunk are written; activations were carved for them.
                unsafe { plan.prepare_chunk(chunk, &self.io(phase)) }
            }
        });
    }

    fn matmul(&self, phase: &MatMulPhase, chunk: usize, thread: usize, first: bool) {
        let exec = self.exec;
        let n_rows = self.n_rows(phase.x.rows);
        let scratch = &exec.layout.threads[thread];
        let width = phase.x.width;
        let mut io = self.io(phase);
        exec.with_plan(phase, |plan| {
            if phase.is_private(n_rows) {
                if phase.has_norm() {
                    io.x = self.scratch(scratch.private_x);
                }
                io.acts = self.scratch(scratch.private_acts);
                let sums: *mut f32 = self.scratch(scratch.private_sum);
                if first {
                    let x: *mut f32 = self.scratch(scratch.private_x);
                    // SAFETY: `n_rows * width` floats fit, by `is_private`; the memory is this thread's.
                    unsafe {
                        for row in 0..n_rows {
                            let (x, sum) = (x.add(row * width), sums.add(row * width));
                            phase.norm_row(exec.level, self.base, row, x, sum);
                        }
                        for chunk in 0..plan.n_prepare_chunks() {
                            plan.prepare_chunk(chunk, &io);
                        }
                    }
                }
                if let (0, Source::AddNorm { sum, .. }) = (chunk, &phase.source) {
                    // SAFETY: chunk 0 runs once, and nobody reads the sum in this phase.
                    unsafe { sums.copy_to_nonoverlapping(self.row(sum, 0), n_rows * width) }
                }
            }
            // SAFETY: the activations are prepared, by this thread or by the phase before; the values
            // lie in the arena, the output apart from what is read.
            unsafe { plan.run_chunk(chunk, &io, self.scratch(scratch.matmul)) }
        });
    }

    fn copy_blocks(&self) {
        let exec = self.exec;
        for copy in self.step.copies {
            for (binding, decl) in exec.kv.layers.iter().zip(&exec.kv_layers) {
                if decl.group != copy.group {
                    continue;
                }
                for (offset, bytes) in [
                    (binding.k_offset, binding.k_block_bytes),
                    (binding.v_offset, binding.v_block_bytes),
                ] {
                    let base = exec.kv.buffer.as_ptr();
                    // SAFETY: both blocks lie in the pool, by `validate`, and the pool in the buffer,
                    // by `check_kv`. This is the phase's only chunk.
                    unsafe {
                        let src = base.add(offset + copy.src as usize * bytes);
                        let dst = base.add(offset + copy.dst as usize * bytes);
                        std::ptr::copy(src, dst, bytes);
                    }
                }
            }
        }
    }
}
