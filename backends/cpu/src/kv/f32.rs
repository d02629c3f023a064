//! Keys and values in binary32: as they come.

use super::{KeyTile, ValueTile};
use crate::arch::{CACHE_LINE_BYTES, prefetch};
use crate::vector::{F32s, load_first};
use kvant_quant::KV_BLOCK_TOKENS;

/// `[head_dim][32 tokens]`.
#[derive(Clone, Copy)]
pub(crate) struct F32Keys(*mut f32);

impl KeyTile for F32Keys {
    #[inline(always)]
    unsafe fn new(block: *const u8, kv_head: usize, head_dim: usize) -> Self {
        // SAFETY: the head lies in the block, by the caller.
        Self(unsafe {
            block
                .cast_mut()
                .cast::<f32>()
                .add(kv_head * head_dim * KV_BLOCK_TOKENS)
        })
    }

    #[inline(always)]
    unsafe fn tokens<V: F32s>(self, d: usize, token: usize) -> V {
        // SAFETY: by the caller; lanes end within the row of 32 tokens.
        unsafe { V::load(self.0.add(d * KV_BLOCK_TOKENS + token)) }
    }

    #[inline(always)]
    fn prefetch(self, d: usize) {
        for token in (0..KV_BLOCK_TOKENS).step_by(CACHE_LINE_BYTES / 4) {
            prefetch(self.0.wrapping_add(d * KV_BLOCK_TOKENS + token).cast());
        }
    }

    #[inline(always)]
    unsafe fn write<V: F32s>(self, token: usize, key: *const f32, head_dim: usize) {
        // SAFETY: by the caller.
        unsafe {
            for d in 0..head_dim {
                *self.0.add(d * KV_BLOCK_TOKENS + token) = *key.add(d);
            }
        }
    }
}

/// `[32 tokens][v_head_dim]`.
#[derive(Clone, Copy)]
pub(crate) struct F32Values(*mut f32);

impl ValueTile for F32Values {
    #[inline(always)]
    unsafe fn new(block: *const u8, kv_head: usize, v_head_dim: usize) -> Self {
        // SAFETY: the head lies in the block, by the caller.
        Self(unsafe {
            block
                .cast_mut()
                .cast::<f32>()
                .add(kv_head * v_head_dim * KV_BLOCK_TOKENS)
        })
    }

    #[inline(always)]
    unsafe fn elements<V: F32s>(self, token: usize, d: usize, v_head_dim: usize) -> V {
        // SAFETY: by the caller.
        unsafe { V::load(self.0.add(token * v_head_dim + d)) }
    }

    #[inline(always)]
    fn prefetch(self, token: usize, d: usize, n: usize, v_head_dim: usize) {
        for element in (d..d + n).step_by(CACHE_LINE_BYTES / 4) {
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
        // SAFETY: by the caller.
        unsafe { load_first(self.0.add(token * v_head_dim + d), n) }
    }

    #[inline(always)]
    unsafe fn write<V: F32s>(self, token: usize, value: *const f32, v_head_dim: usize) {
        // SAFETY: by the caller.
        unsafe {
            std::ptr::copy_nonoverlapping(value, self.0.add(token * v_head_dim), v_head_dim);
        }
    }
}
