//! Writing a token's keys and values.

use super::{F16Keys, F16Values, KeyTile, ValueTile};
use crate::vector::F32s;
use kvant_quant::KvFormat;

/// Writes one head of one token: `key [head_dim]` and `value [v_head_dim]` to slot `token` of the
/// blocks at `k_block` and `v_block`.
///
/// # Safety
/// As [`KeyTile::write`] and [`ValueTile::write`]; the formats have been checked by
/// [`super::super::exec`] when the program was prepared.
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
            other => unreachable!("{} is refused when a program is prepared", other.name()),
        }
        match v_format {
            KvFormat::F16 => {
                F16Values::new(v_block, kv_head, v_head_dim).write::<V>(token, value, v_head_dim)
            }
            other => unreachable!("{} is refused when a program is prepared", other.name()),
        }
    }
}
