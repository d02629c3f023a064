//! Phi 3 and 4 mini: queries, keys and values in one tensor, gate and up in another; LongRoPE and
//! partial rotation in some sizes.

use super::dense::{self, Defaults};
use super::{Architecture, names, windows};
use crate::config::Config;
use crate::roles::{LayerRole, Transform, WeightRole, WeightSource};
use crate::rope::RopeKeys;
use crate::spec::ModelSpec;

const DEFAULTS: Defaults = Defaults {
    norm_eps: 1e-5,
    ..Defaults::LLAMA
};
const ROPE: RopeKeys = RopeKeys {
    original_context: Some(4096.0),
    yarn_is_long: true,
    ..RopeKeys::SINGLE
};

pub(super) const PHI3: Architecture = Architecture {
    name: "phi3",
    gguf: &["phi3"],
    hf: &["phi3"],
    spec: |config| {
        let mut spec = dense::read(config, "phi3", DEFAULTS, ROPE)?;
        windows::apply_everywhere(&mut spec, windows::width(config, None)?);
        Ok(spec)
    },
    source,
};

fn source(config: &Config<'_>, spec: &ModelSpec, role: WeightRole) -> WeightSource {
    let WeightRole::Layer(layer, part) = role else {
        return names::common(config, spec, role);
    };
    let attention = &spec.layers[layer].attention;
    let (q, k) = (
        attention.n_heads * attention.head_dim,
        attention.n_kv_heads * attention.head_dim,
    );
    let v = attention.n_kv_heads * attention.v_head_dim;
    let d_ff = spec.layers[layer].ffn.d_ff;
    let qkv = ("attn_qkv.weight", "self_attn.qkv_proj.weight", q + k + v);
    let gate_up = ("ffn_up.weight", "mlp.gate_up_proj.weight", 2 * d_ff);
    let ((gguf, hf, tensor_rows), first_row) = match part {
        LayerRole::Query => (qkv, 0),
        LayerRole::Key => (qkv, q),
        LayerRole::Value => (qkv, q + k),
        LayerRole::Gate => (gate_up, 0),
        LayerRole::Up => (gate_up, d_ff),
        _ => return names::common(config, spec, role),
    };
    let tensor = match config.is_gguf() {
        true => format!("blk.{layer}.{gguf}"),
        false => format!("{}layers.{layer}.{hf}", config.hf_prefix()),
    };
    WeightSource {
        tensor,
        first_row,
        tensor_rows: Some(tensor_rows),
        transform: Transform::None,
    }
}
