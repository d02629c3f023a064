//! What a model takes on a device. The engine allocates by the same numbers that this reports.

use crate::error::EngineError;
use crate::options::EngineOptions;
use kvant_device::{Backend, PrepareOptions};
use kvant_kv::{KvGeometry, KvGroup, KvLayout, LayerGeometry};
use kvant_model::{Model, ModelSpec};

/// Bytes of each pool, and the numbers they come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Weights in the backend's layout.
    pub weight_bytes: usize,
    /// Keys and values.
    pub kv_bytes: usize,
    /// Activations and scratch.
    pub activation_bytes: usize,
    /// Blocks of each KV group.
    pub n_blocks: Vec<usize>,
    /// Bytes that one more token of context takes, over all groups without a window.
    pub kv_bytes_per_token: usize,
}

impl MemoryPlan {
    /// Bytes in all.
    pub fn total_bytes(&self) -> usize {
        self.weight_bytes
            .saturating_add(self.kv_bytes)
            .saturating_add(self.activation_bytes)
    }

    /// What `model` will take on `backend`.
    ///
    /// # Errors
    /// [`EngineError`] when an option makes no sense, a size overflows or the backend refuses a weight.
    pub fn new<B: Backend>(
        backend: &B,
        model: &Model,
        options: &EngineOptions,
    ) -> Result<Self, EngineError> {
        options.validate()?;
        let geometry = kv_geometry(model.spec());
        let layout = KvLayout::new(&options.plan(geometry.layers.len()), &geometry)?;
        let n_blocks = blocks(&geometry, options)?;
        Ok(Self {
            weight_bytes: model.weight_bytes(backend)?,
            kv_bytes: layout.total_bytes(&n_blocks)?,
            activation_bytes: backend.exec_bytes(model.program(), &prepare_options(options))?,
            kv_bytes_per_token: (0..geometry.groups.len())
                .filter(|&g| geometry.groups[g].window.is_none())
                .map(|g| layout.group_bytes_per_token(g))
                .sum(),
            n_blocks,
        })
    }
}

/// Sizes that the program is prepared for.
pub(crate) fn prepare_options(options: &EngineOptions) -> PrepareOptions {
    PrepareOptions {
        max_tokens: options.max_step_tokens,
        max_outputs: options.max_outputs,
        max_context: options.context_len,
        deterministic: options.deterministic,
    }
}

/// Blocks that every sequence may need at once.
pub(crate) fn blocks(
    geometry: &KvGeometry,
    options: &EngineOptions,
) -> Result<Vec<usize>, EngineError> {
    geometry
        .groups
        .iter()
        .map(|group| {
            let blocks = group.max_blocks(options.context_len, options.max_step_tokens);
            blocks
                .checked_mul(options.max_sequences)
                .ok_or(EngineError::Option {
                    field: "max_sequences",
                    value: options.max_sequences,
                    wanted: "that many sequences of this context overflow",
                })
        })
        .collect()
}

/// The shape of a model's keys and values.
pub(crate) fn kv_geometry(spec: &ModelSpec) -> KvGeometry {
    KvGeometry {
        layers: spec
            .layers
            .iter()
            .map(|layer| LayerGeometry {
                n_kv_heads: layer.attention.n_kv_heads,
                head_dim_k: layer.attention.head_dim,
                head_dim_v: layer.attention.v_head_dim,
                group: layer.attention.kv_group,
            })
            .collect(),
        groups: spec
            .kv_groups
            .iter()
            .map(|&window| KvGroup { window })
            .collect(),
    }
}
