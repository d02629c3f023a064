//! The shape of a model's keys and values, and how long each layer needs them.

use crate::error::KvError;
use kvant_quant::KV_BLOCK_TOKENS;

/// Layers whose blocks live equally long. They share one pool and one block table a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvGroup {
    /// Tokens that a position sees, itself included; `None` when it sees all before it.
    pub window: Option<usize>,
}

impl KvGroup {
    /// The earliest position that the token at `position` sees.
    pub fn first_seen(&self, position: usize) -> usize {
        self.window
            .map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Most blocks that one sequence of up to `context_tokens` tokens holds at a time, when it
    /// grows by at most `chunk_tokens` at once. What a pool needs for each sequence.
    pub fn max_blocks(&self, context_tokens: usize, chunk_tokens: usize) -> usize {
        let whole = context_tokens.div_ceil(KV_BLOCK_TOKENS);
        let Some(window) = self.window else {
            return whole;
        };
        // The window of a chunk's first token and the chunk itself, at any alignment: `n` tokens
        // in a row touch at most `(n - 2) / block + 2` blocks.
        let tokens = window.saturating_add(chunk_tokens).saturating_sub(1);
        let touched = match tokens {
            0 => 0,
            1 => 1,
            n => (n - 2) / KV_BLOCK_TOKENS + 2,
        };
        whole.min(touched)
    }
}

/// The shape of one layer's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerGeometry {
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a key head.
    pub head_dim_k: usize,
    /// Elements of a value head.
    pub head_dim_v: usize,
    /// Index of the layer's group in [`KvGeometry::groups`].
    pub group: usize,
}

/// The shape of every layer's keys and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvGeometry {
    /// Layers that keep keys and values, in the order of the program.
    pub layers: Vec<LayerGeometry>,
    /// The groups that they name.
    pub groups: Vec<KvGroup>,
}

impl KvGeometry {
    /// Checks that every number is usable and every group exists.
    pub fn validate(&self) -> Result<(), KvError> {
        for (group, g) in self.groups.iter().enumerate() {
            if g.window == Some(0) {
                return Err(KvError::EmptyWindow { group });
            }
        }
        for (layer, l) in self.layers.iter().enumerate() {
            let fields = [
                ("n_kv_heads", l.n_kv_heads),
                ("head_dim_k", l.head_dim_k),
                ("head_dim_v", l.head_dim_v),
            ];
            if let Some((field, value)) = fields.into_iter().find(|(_, value)| *value == 0) {
                return Err(KvError::Geometry {
                    layer,
                    field,
                    value,
                });
            }
            if l.group >= self.groups.len() {
                return Err(KvError::Geometry {
                    layer,
                    field: "group",
                    value: l.group,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_the_token_itself() {
        let group = KvGroup { window: Some(4) };
        assert_eq!(group.first_seen(2), 0);
        assert_eq!(group.first_seen(3), 0);
        assert_eq!(group.first_seen(4), 1);
        assert_eq!(KvGroup { window: None }.first_seen(1000), 0);
    }

    #[test]
    fn max_blocks_covers_the_worst_alignment() {
        for window in [1usize, 2, 31, 32, 33, 64, 100] {
            for chunk in [1usize, 2, 31, 32, 33, 50] {
                let group = KvGroup {
                    window: Some(window),
                };
                let worst = (0..400)
                    .map(|first| {
                        let last = (first + chunk - 1) / KV_BLOCK_TOKENS;
                        last - group.first_seen(first) / KV_BLOCK_TOKENS + 1
                    })
                    .max();
                assert_eq!(Some(group.max_blocks(100_000, chunk)), worst);
            }
        }
        assert_eq!(KvGroup { window: None }.max_blocks(65, 1), 3);
        assert_eq!(KvGroup { window: Some(4096) }.max_blocks(65, 1), 3);
    }

    #[test]
    fn unusable_numbers_are_named() {
        let layer = LayerGeometry {
            n_kv_heads: 2,
            head_dim_k: 64,
            head_dim_v: 0,
            group: 0,
        };
        let geometry = KvGeometry {
            layers: vec![layer],
            groups: vec![KvGroup { window: None }],
        };
        assert_eq!(
            geometry.validate(),
            Err(KvError::Geometry {
                layer: 0,
                field: "head_dim_v",
                value: 0
            })
        );
        let geometry = KvGeometry {
            layers: vec![LayerGeometry {
                head_dim_v: 64,
                group: 1,
                ..layer
            }],
            ..geometry
        };
        assert!(matches!(
            geometry.validate(),
            Err(KvError::Geometry { field: "group", .. })
        ));
    }
}
