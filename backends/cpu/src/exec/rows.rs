//! Ops that treat rows apart.

use super::phase::{Phase, ValueRef};
use super::run::Running;
use crate::ops::elementwise::Elementwise;
use crate::ops::norm::{AddNormRow, NormRow};
use crate::ops::rope::{Rope, RotateHeads};
use crate::vector::dispatch;
use std::ops::Range;

impl Running<'_> {
    /// The rows of a chunk: all rows of the step, cut evenly.
    fn chunk_rows(&self, at: usize, value: &ValueRef, chunk: usize) -> Range<usize> {
        let rows = self.n_rows(value.rows);
        let n_chunks = self.exec.state.n_chunks[at];
        rows * chunk / n_chunks..rows * (chunk + 1) / n_chunks
    }

    pub(super) fn rows(&self, at: usize, chunk: usize, thread: usize) {
        let level = self.exec.level;
        match &self.exec.phases[at] {
            Phase::Embed { table, scale, out } => {
                let mut file_row = Vec::new();
                for row in self.chunk_rows(at, out, chunk) {
                    // SAFETY: this chunk alone has the row.
                    let to = unsafe { self.slice(out, row) };
                    table.decode_row(self.step.tokens[row] as usize, to, &mut file_row);
                    if *scale != 1.0 {
                        to.iter_mut().for_each(|x| *x *= scale);
                    }
                }
            }
            Phase::RopeTable { frequencies, out } => {
                for row in self.chunk_rows(at, out, chunk) {
                    let sequence = &self.step.sequences[self.exec.state.sequence_of[row]];
                    // SAFETY: this chunk alone has the row.
                    let to = unsafe { self.slice(out, row) };
                    frequencies.row(self.step.positions[row], sequence.total_len, to);
                }
            }
            Phase::Norm { norm, x, out } => {
                for row in self.chunk_rows(at, out, chunk) {
                    let kernel = NormRow {
                        norm,
                        x: self.row(x, row),
                        out: self.row(out, row),
                        width: x.width,
                    };
                    // SAFETY: rows lie in the arena; this chunk alone writes this one.
                    unsafe { dispatch(level, kernel) }
                }
            }
            Phase::AddNorm {
                post,
                scale,
                pre,
                x,
                y,
                sum,
                normed,
            } => {
                for row in self.chunk_rows(at, sum, chunk) {
                    let kernel = AddNormRow {
                        post: post.as_ref(),
                        pre,
                        scale: *scale,
                        x: self.row(x, row),
                        y: self.row(y, row),
                        sum: self.row(sum, row),
                        normed: self.row(normed, row),
                        width: x.width,
                    };
                    // SAFETY: as above.
                    unsafe { dispatch(level, kernel) }
                }
            }
            Phase::Elementwise { op, a, b, out } => {
                for row in self.chunk_rows(at, out, chunk) {
                    let first = self.row(a, row);
                    let kernel = Elementwise {
                        op: *op,
                        a: first,
                        b: match b {
                            Some(b) => self.row(b, row),
                            None => first.wrapping_add(out.width),
                        },
                        out: self.row(out, row),
                        n: out.width,
                    };
                    // SAFETY: as above.
                    unsafe { dispatch(level, kernel) }
                }
            }
            Phase::GatherRows { x, out } => {
                for row in self.chunk_rows(at, out, chunk) {
                    let from = self.row(x, self.step.output_rows[row] as usize);
                    // SAFETY: as above; the row gathered exists, by `validate`.
                    unsafe { from.copy_to_nonoverlapping(self.row(out, row), x.width) }
                }
            }
            Phase::QkNormRope {
                rope,
                qkv,
                table,
                out,
            } => {
                for row in self.chunk_rows(at, out, chunk) {
                    self.qk_norm_rope(rope, qkv, table, out, row, thread);
                }
            }
            other => unreachable!("{other:?} has chunks of its own"),
        }
    }

    /// A row to be written.
    ///
    /// # Safety
    /// Nobody else uses the row.
    #[allow(clippy::mut_from_ref)] // arena memory, shared by threads that keep apart
    unsafe fn slice(&self, value: &ValueRef, row: usize) -> &mut [f32] {
        // SAFETY: the row lies in the arena; the rest by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.row(value, row), value.width) }
    }

    fn qk_norm_rope(
        &self,
        rope: &Rope,
        qkv: &ValueRef,
        table: &ValueRef,
        out: &ValueRef,
        row: usize,
        thread: usize,
    ) {
        let heads = rope.heads;
        let (from, to) = (self.row(qkv, row), self.row(out, row));
        let kernel = RotateHeads {
            rope,
            keys: false,
            first_head: 0,
            n_heads: heads.n_heads,
            all: from,
            table: self.row(table, row),
            to,
            scale: 1.0,
            row: self.scratch(self.exec.layout.threads[thread].row),
        };
        // SAFETY: rows lie in the arena; this chunk alone writes this one.
        unsafe {
            dispatch(self.exec.level, kernel);
            dispatch(
                self.exec.level,
                RotateHeads {
                    keys: true,
                    n_heads: heads.n_kv_heads,
                    all: from.add(heads.q_width()),
                    to: to.add(heads.q_width()),
                    ..kernel
                },
            );
            let values = heads.q_width() + heads.k_width();
            from.add(values)
                .copy_to_nonoverlapping(to.add(values), heads.v_width());
        }
    }
}
