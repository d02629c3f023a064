//! Keys and values of one head in one block, as the attention kernels see them.
//!
//! A block of keys is `[n_kv_heads][head_dim][32 tokens]`: tokens are vector lanes, so that `q · k`
//! of 32 tokens needs no sum across lanes. A block of values is `[n_kv_heads][32 tokens][v_head_dim]`:
//! elements are lanes. Another format is another implementation of [`KeyTile`] and [`ValueTile`].

mod f16;
mod f32;
mod write;

pub(crate) use f16::{F16Keys, F16Values};
pub(crate) use f32::{F32Keys, F32Values};
pub(crate) use write::write_token;

use crate::vector::F32s;

/// Keys of one head in one block.
pub(crate) trait KeyTile: Copy {
    /// The tile of a head.
    ///
    /// # Safety
    /// `block` points to a block of keys of this format with heads of `head_dim`.
    unsafe fn new(block: *const u8, kv_head: usize, head_dim: usize) -> Self;

    /// Element `d` of `LANES` tokens from `token`, a multiple of `LANES`.
    ///
    /// # Safety
    /// As [`F32s`]; `d` and `token` lie in the tile.
    unsafe fn tokens<V: F32s>(self, d: usize, token: usize) -> V;

    /// Asks for element `d` of all tokens before it is needed; `d` may lie outside the tile.
    fn prefetch(self, d: usize);

    /// Writes the key of one token.
    ///
    /// # Safety
    /// Nobody else reads or writes the token's slot; `key` has `head_dim` elements.
    unsafe fn write<V: F32s>(self, token: usize, key: *const f32, head_dim: usize);
}

/// Values of one head in one block.
pub(crate) trait ValueTile: Copy {
    /// The tile of a head.
    ///
    /// # Safety
    /// `block` points to a block of values of this format with heads of `v_head_dim`.
    unsafe fn new(block: *const u8, kv_head: usize, v_head_dim: usize) -> Self;

    /// `LANES` elements of `token` from `d`.
    ///
    /// # Safety
    /// As [`F32s`]; `d + LANES <= v_head_dim`.
    unsafe fn elements<V: F32s>(self, token: usize, d: usize, v_head_dim: usize) -> V;

    /// Asks for `n` elements of `token` from `d` before they are needed; they may lie outside the
    /// tile.
    fn prefetch(self, token: usize, d: usize, n: usize, v_head_dim: usize);

    /// The last `n < LANES` elements of `token` from `d`, then zeros.
    ///
    /// # Safety
    /// As [`F32s`]; `d + n <= v_head_dim`.
    unsafe fn last_elements<V: F32s>(
        self,
        token: usize,
        d: usize,
        n: usize,
        v_head_dim: usize,
    ) -> V;

    /// Writes the value of one token.
    ///
    /// # Safety
    /// Nobody else reads or writes the token's slot; `value` has `v_head_dim` elements.
    unsafe fn write<V: F32s>(self, token: usize, value: *const f32, v_head_dim: usize);
}
