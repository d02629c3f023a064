//! The formats in which a KV block keeps its keys or values.

/// Tokens a KV block holds.
pub const KV_BLOCK_TOKENS: usize = 32;

/// How the keys or the values of one layer are kept in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvFormat {
    /// IEEE binary16, two bytes an element, no scales.
    F16,
}

impl KvFormat {
    /// Every format.
    pub const ALL: &[Self] = &[Self::F16];

    /// Bytes of one block: `[KV_BLOCK_TOKENS, n_kv_heads, head_dim]` elements with their scales.
    /// `None` on overflow.
    pub const fn block_bytes(self, n_kv_heads: usize, head_dim: usize) -> Option<usize> {
        match self {
            Self::F16 => match n_kv_heads.checked_mul(head_dim) {
                Some(width) => width.checked_mul(KV_BLOCK_TOKENS * 2),
                None => None,
            },
        }
    }

    /// The name in plans, options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
        }
    }

    /// The format of a name, as [`KvFormat::name`] spells it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.name() == name)
    }
}
