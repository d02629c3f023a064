//! Keys and values in binary16.

use super::{KeyTile, ValueTile};
use crate::arch::{CACHE_LINE_BYTES, prefetch};
use crate::vector::{F32s, MAX_LANES, load_first};
use kvant_quant::KV_BLOCK_TOKENS;

/// `[head_dim][32 tokens]`.
#[derive(Clone, Copy)]
pub(crate) struct F16Keys(*mut u16);

impl KeyTile for F16Keys {
    #[inline(always)]
    unsafe fn new(block: *const u8, kv_head: usize, head_dim: usize) -> Self {
        // SAFETY: the head lies in the block, by the caller.
        Self(unsafe {
            block
                .cast_mut()
                .cast::<u16>()
                .add(kv_head * head_dim * KV_BLOCK_TOKENS)
        })
    }

    #[inline(always)]
    unsafe fn tokens<V: F32s>(self, d: usize, token: usize) -> V {
        // SAFETY: by the caller; lanes end within the row of 32 tokens.
        unsafe { V::load_f16(self.0.add(d * KV_BLOCK_TOKENS + token)) }
    }

    #[inline(always)]
    fn prefetch(self, d: usize) {
        prefetch(self.0.wrapping_add(d * KV_BLOCK_TOKENS).cast());
    }

    #[inline(always)]
    unsafe fn write<V: F32s>(self, token: usize, key: *const f32, head_dim: usize) {
        // SAFETY: by the caller.
        unsafe {
            for d in (0..head_dim).step_by(V::LANES) {
                let n = V::LANES.min(head_dim - d);
                let mut halves = [0u16; MAX_LANES];
                load_first::<V>(key.add(d), n).store_f16(halves.as_mut_ptr());
                for (i, &half) in halves[..n].iter().enumerate() {
                    *self.0.add((d + i) * KV_BLOCK_TOKENS + token) = half;
                }
            }
        }
    }
}

/// `[32 tokens][v_head_dim]`.
#[derive(Clone, Copy)]
pub(crate) struct F16Values(*mut u16);

impl ValueTile for F16Values {
    #[inline(always)]
    unsafe fn new(block: *const u8, kv_head: usize, v_head_dim: usize) -> Self {
        // SAFETY: the head lies in the block, by the caller.
        Self(unsafe {
            block
                .cast_mut()
                .cast::<u16>()
                .add(kv_head * v_head_dim * KV_BLOCK_TOKENS)
        })
    }

    #[inline(always)]
    unsafe fn elements<V: F32s>(self, token: usize, d: usize, v_head_dim: usize) -> V {
        // SAFETY: by the caller.
        unsafe { V::load_f16(self.0.add(token * v_head_dim + d)) }
    }

    #[inline(always)]
    fn prefetch(self, token: usize, d: usize, n: usize, v_head_dim: usize) {
        for element in (d..d + n).step_by(CACHE_LINE_BYTES / 2) {
            prefetch(self.0.wrapping_add(token * v_head_dim + element).cast());
        }
    }

    #[inline(always)]
    unsafe fn last_elements<V: F32s>(
        self,
        token: usize,
        d: usize,
        n: usize,
        v_head_dim: usize,
    ) -> V {
        let mut part = [0u16; MAX_LANES];
        // SAFETY: by the caller; `n` is below the lanes of the widest vector.
        unsafe {
            let from = self.0.add(token * v_head_dim + d);
            std::ptr::copy_nonoverlapping(from, part.as_mut_ptr(), n);
            V::load_f16(part.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn write<V: F32s>(self, token: usize, value: *const f32, v_head_dim: usize) {
        // SAFETY: by the caller.
        unsafe {
            let to = self.0.add(token * v_head_dim);
            for d in (0..v_head_dim).step_by(V::LANES) {
                let n = V::LANES.min(v_head_dim - d);
                let mut halves = [0u16; MAX_LANES];
                load_first::<V>(value.add(d), n).store_f16(halves.as_mut_ptr());
                std::ptr::copy_nonoverlapping(halves.as_ptr(), to.add(d), n);
            }
        }
    }
}
