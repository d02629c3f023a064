//! Writing keys and values, and attention.

use super::phase::{AttentionPhase, LayerRef, RopeWrite, ValueRef};
use super::run::Running;
use crate::attention::plan::Item;
use crate::attention::tile::{LayerKv, Partials, Tile};
use crate::kv::write_token;
use crate::ops::rope::RotateHeads;
use crate::vector::{F32s, Kernel, dispatch};
use kvant_device::HeadShape;
use kvant_quant::KV_BLOCK_TOKENS;

/// Writes one head of one token.
struct WriteHead {
    kv: LayerKv,
    /// The block, in the pool.
    block: usize,
    slot: usize,
    kv_head: usize,
    heads: HeadShape,
    key: *const f32,
    value: *const f32,
}

impl Kernel for WriteHead {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        let kv = &self.kv;
        // SAFETY: by the caller of `dispatch`: the block is in the pool, nobody else uses the slot.
        unsafe {
            write_token::<V>(
                (kv.k_format, kv.keys.add(self.block * kv.k_block_bytes)),
                (kv.v_format, kv.values.add(self.block * kv.v_block_bytes)),
                self.kv_head,
                self.slot,
                (self.key, self.heads.head_dim),
                (self.value, self.heads.v_head_dim),
            );
        }
    }
}

/// Scales queries on their way into a tile.
struct ScaleRow {
    from: *const f32,
    to: *mut f32,
    n: usize,
    scale: f32,
}

impl Kernel for ScaleRow {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        for i in 0..self.n {
            // SAFETY: by the caller of `dispatch`: both rows hold `n` elements.
            unsafe { *self.to.add(i) = *self.from.add(i) * self.scale }
        }
    }
}

/// Divides a tile's partials by their sums and writes them to output rows.
struct Finish {
    partials: Partials,
    group: usize,
    v_head_dim: usize,
    n_tokens: usize,
    /// First head of the group in the first token's row.
    out: *mut f32,
    /// Elements from a token's row to the next.
    stride: usize,
}

impl Kernel for Finish {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        // SAFETY: by the caller of `dispatch`.
        unsafe {
            for t in 0..self.n_tokens {
                for h in 0..self.group {
                    let row = self.partials.row(t * self.group + h, self.v_head_dim);
                    let out = self.out.add(t * self.stride + h * self.v_head_dim);
                    row.finish::<V>(self.v_head_dim, out);
                }
            }
        }
    }
}

/// Folds the partials of a tile's splits, in their order, into those of the first.
struct FoldSplits {
    partials: Partials,
    n_splits: usize,
    rows: usize,
    v_head_dim: usize,
}

impl Kernel for FoldSplits {
    type Out = ();

    #[inline(always)]
    unsafe fn run<V: F32s>(self) {
        // SAFETY: by the caller of `dispatch`.
        unsafe {
            for row in 0..self.rows {
                let into = self.partials.row(row, self.v_head_dim);
                for split in 1..self.n_splits {
                    let next = self.partials.row(split * self.rows + row, self.v_head_dim);
                    into.fold::<V>(next, self.v_head_dim);
                }
            }
        }
    }
}

impl Running<'_> {
    /// Block and slot of a row's token.
    fn place(&self, layer: &LayerRef, row: usize) -> (usize, usize) {
        let sequence = &self.step.sequences[self.exec.state.sequence_of[row]];
        let position = self.step.positions[row] as usize;
        let block = sequence.block_tables[layer.group][position / KV_BLOCK_TOKENS];
        (block as usize, position % KV_BLOCK_TOKENS)
    }

    pub(super) fn write_kv(
        &self,
        layer: &LayerRef,
        heads: &HeadShape,
        qkv: &ValueRef,
        chunk: usize,
    ) {
        let rows = self.exec.state.block_rows[chunk];
        for row in rows.first_row..rows.first_row + rows.n_rows {
            let (block, slot) = self.place(layer, row);
            let from = self.row(qkv, row);
            for kv_head in 0..heads.n_kv_heads {
                let value = heads.q_width() + heads.k_width() + kv_head * heads.v_head_dim;
                let kernel = WriteHead {
                    kv: layer.kv,
                    block,
                    slot,
                    kv_head,
                    heads: *heads,
                    key: from.wrapping_add(heads.q_width() + kv_head * heads.head_dim),
                    value: from.wrapping_add(value),
                };
                // SAFETY: the block is in the pool, by `validate`; open blocks are private to a
                // sequence, and this chunk alone has this one's new rows.
                unsafe { dispatch(self.exec.level, kernel) }
            }
        }
    }

    pub(super) fn rope_write_kv(
        &self,
        write: &RopeWrite,
        q: &ValueRef,
        chunk: usize,
        thread: usize,
    ) {
        let rows = self.exec.state.block_rows[chunk];
        for row in rows.first_row..rows.first_row + rows.n_rows {
            self.rotate_queries(
                write,
                row,
                0..write.rope.heads.n_heads,
                self.row(q, row),
                1.0,
                thread,
            );
            self.rotate_and_write(write, row, 0..write.rope.heads.n_kv_heads, thread);
        }
    }

    /// Norms, rotates and scales query heads of a row.
    fn rotate_queries(
        &self,
        write: &RopeWrite,
        row: usize,
        heads: std::ops::Range<usize>,
        to: *mut f32,
        scale: f32,
        thread: usize,
    ) {
        let kernel = RotateHeads {
            rope: &write.rope,
            keys: false,
            first_head: heads.start,
            n_heads: heads.len(),
            all: self.row(&write.qkv, row),
            table: self.row(&write.table, row),
            to,
            scale,
            row: self.scratch(self.exec.layout.threads[thread].row),
        };
        // SAFETY: rows lie in the arena; `to` is this chunk's.
        unsafe { dispatch(self.exec.level, kernel) }
    }

    /// Norms, rotates and writes key heads of a row, and writes their values.
    fn rotate_and_write(
        &self,
        write: &RopeWrite,
        row: usize,
        kv_heads: std::ops::Range<usize>,
        thread: usize,
    ) {
        let heads = &write.rope.heads;
        let qkv = self.row(&write.qkv, row);
        let scratch = &self.exec.layout.threads[thread];
        let keys: *mut f32 = self.scratch(scratch.key);
        let kernel = RotateHeads {
            rope: &write.rope,
            keys: true,
            first_head: kv_heads.start,
            n_heads: kv_heads.len(),
            all: qkv.wrapping_add(heads.q_width()),
            table: self.row(&write.table, row),
            to: keys,
            scale: 1.0,
            row: self.scratch(scratch.row),
        };
        // SAFETY: rows lie in the arena; the scratch is this thread's.
        unsafe { dispatch(self.exec.level, kernel) }
        let (block, slot) = self.place(&write.layer, row);
        for (i, kv_head) in kv_heads.enumerate() {
            let value = heads.q_width() + heads.k_width() + kv_head * heads.v_head_dim;
            let kernel = WriteHead {
                kv: write.layer.kv,
                block,
                slot,
                kv_head,
                heads: *heads,
                key: keys.wrapping_add(i * heads.head_dim),
                value: qkv.wrapping_add(value),
            };
            // SAFETY: as in `write_kv`.
            unsafe { dispatch(self.exec.level, kernel) }
        }
    }

    pub(super) fn attend(&self, phase: &AttentionPhase, chunk: usize, thread: usize) {
        let exec = self.exec;
        let item = exec.plans[phase.plan].items[chunk];
        let heads = phase.attention.heads;
        let group = heads.n_heads / heads.n_kv_heads;
        let scratch = &exec.layout.threads[thread].tile;
        let queries: *mut f32 = self.scratch(scratch.queries);
        self.load_queries(phase, &item, queries, thread);
        let sequence = &self.step.sequences[item.sequence];
        let tile = Tile {
            queries,
            n_tokens: item.n_tokens,
            group,
            first_position: self.step.positions[item.first_row] as usize,
            head_dim: heads.head_dim,
            v_head_dim: heads.v_head_dim,
            kv_head: item.kv_head,
            kv: phase.layer.kv,
            table: sequence.block_tables[phase.layer.group],
            window: phase.attention.window,
            softcap: phase.attention.softcap,
        };
        let rows = item.n_tokens * group;
        let splits = item.first_split..item.first_split + item.n_splits;
        // SAFETY: blocks that the tile sees are in the pool, by `validate`. New rows of them were
        // written by the phase before, or just now by this chunk; other chunks write other heads'
        // slots. Scratch and slots of partials are this chunk's alone.
        unsafe {
            let into = match item.slot {
                Some(slot) => {
                    let all = exec.layout.partials(self.base());
                    Partials {
                        max: all.max.add(slot),
                        sum: all.sum.add(slot),
                        values: all.values.add(slot * heads.v_head_dim),
                    }
                }
                None => scratch.folded(self.base()),
            };
            for row in 0..rows {
                into.row(row, heads.v_head_dim).clear(heads.v_head_dim);
            }
            tile.attend(exec.level, splits, scratch, self.base(), into);
            if item.slot.is_none() {
                let kernel = self.finish(&heads, &phase.out, into, item.first_row, item.n_tokens);
                dispatch(exec.level, kernel(item.kv_head));
            }
        }
    }

    /// Scaled queries of an item, `[n_tokens * group][head_dim]`. When the rotation is folded into
    /// this phase, queries are rotated here, and the item that sees the newest token writes its key
    /// and value first.
    fn load_queries(&self, phase: &AttentionPhase, item: &Item, queries: *mut f32, thread: usize) {
        let heads = phase.attention.heads;
        let group = heads.n_heads / heads.n_kv_heads;
        let width = group * heads.head_dim;
        let first_head = item.kv_head * group;
        if let Some(write) = phase.rope.as_ref().filter(|_| self.exec.state.single) {
            let row = item.first_row;
            if item.is_last {
                self.rotate_and_write(write, row, item.kv_head..item.kv_head + 1, thread);
            }
            let group_heads = first_head..first_head + group;
            let scale = phase.attention.scale;
            self.rotate_queries(write, row, group_heads, queries, scale, thread);
            return;
        }
        for t in 0..item.n_tokens {
            let kernel = ScaleRow {
                from: self
                    .row(&phase.q, item.first_row + t)
                    .wrapping_add(first_head * heads.head_dim),
                to: queries.wrapping_add(t * width),
                n: width,
                scale: phase.attention.scale,
            };
            // SAFETY: rows lie in the arena; `queries` is this thread's.
            unsafe { dispatch(self.exec.level, kernel) }
        }
    }

    fn finish(
        &self,
        heads: &HeadShape,
        out: &ValueRef,
        partials: Partials,
        first_row: usize,
        n_tokens: usize,
    ) -> impl Fn(usize) -> Finish {
        let group = heads.n_heads / heads.n_kv_heads;
        let v_head_dim = heads.v_head_dim;
        let (row, stride) = (self.row(out, first_row), out.width);
        move |kv_head| Finish {
            partials,
            group,
            v_head_dim,
            n_tokens,
            out: row.wrapping_add(kv_head * group * v_head_dim),
            stride,
        }
    }

    /// Folds the splits of a tile and writes its rows.
    pub(super) fn merge(&self, heads: &HeadShape, plan: usize, out: &ValueRef, chunk: usize) {
        let exec = self.exec;
        let merge = exec.plans[plan].merges[chunk];
        let rows = merge.n_tokens * (heads.n_heads / heads.n_kv_heads);
        // SAFETY: the slots were filled by the phase before; this chunk alone has them and the rows.
        unsafe {
            let all = exec.layout.partials(self.base());
            let partials = Partials {
                max: all.max.add(merge.slot),
                sum: all.sum.add(merge.slot),
                values: all.values.add(merge.slot * heads.v_head_dim),
            };
            let kernel = FoldSplits {
                partials,
                n_splits: merge.n_splits,
                rows,
                v_head_dim: heads.v_head_dim,
            };
            dispatch(exec.level, kernel);
            let kernel = self.finish(heads, out, partials, merge.first_row, merge.n_tokens);
            dispatch(exec.level, kernel(merge.kv_head));
        }
    }
}
