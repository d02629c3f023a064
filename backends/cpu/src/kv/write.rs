//! Writing a token's keys and values.

use super::{F16Keys, F16Values, F32Keys, F32Values, KeyTile, ValueTile};
use crate::vector::F32s;
use kvant_quant::KvFormat;

/// Writes one head of one token: `key [head_dim]` and `value [v_head_dim]` to slot `token` of the
/// blocks at `k_block` and `v_block`.
///
/// # Safety
/// As [`KeyTile::write`] and [`ValueTile::write`]; the blocks are in these formats.
#[inline(always)]
pub(crate) unsafe fn write_token<V: F32s>(
    (k_format, k_block): (KvFormat, *mut u8),
    (v_format, v_block): (KvFormat, *mut u8),
    kv_head: usize,
    token: usize,
    (key, head_dim): (*const f32, usize),
    (value, v_head_dim): (*const f32, usize),
) {
    // SAFETY: by the caller.
    unsafe {
        match k_format {
            KvFormat::F16 => {
                F16Keys::new(k_block, kv_head, head_dim).write::<V>(token, key, head_dim)
            }
            KvFormat::F32 => {
                F32Keys::new(k_block, kv_head, head_dim).write::<V>(token, key, head_dim)
            }
        }
        match v_format {
            KvFormat::F16 => {
                F16Values::new(v_block, kv_head, v_head_dim).write::<V>(token, value, v_head_dim)
            }
            KvFormat::F32 => {
                F32Values::new(v_block, kv_head, v_head_dim).write::<V>(token, value, v_head_dim)
            }
        }
    }
}
