//! Names that most architectures give their tensors.

use crate::config::Config;
use crate::roles::{LayerRole, Transform, WeightRole, WeightSource};
use crate::spec::ModelSpec;

/// The tensor for a role under the common names of GGUF and of Hugging Face folders.
pub(super) fn common(config: &Config<'_>, _spec: &ModelSpec, role: WeightRole) -> WeightSource {
    if config.is_gguf() {
        gguf(role)
    } else {
        hf(role, config.hf_prefix())
    }
}

/// As [`common`]; in Hugging Face folders layers have four norms, of which
/// `post_attention_layernorm` follows attention.
pub(super) fn four_norms(config: &Config<'_>, spec: &ModelSpec, role: WeightRole) -> WeightSource {
    let WeightRole::Layer(layer, part) = role else {
        return common(config, spec, role);
    };
    let name = match part {
        LayerRole::PostAttentionNorm => "post_attention_layernorm",
        LayerRole::PreFfnNorm => "pre_feedforward_layernorm",
        LayerRole::PostFfnNorm => "post_feedforward_layernorm",
        _ => return common(config, spec, role),
    };
    if config.is_gguf() {
        return gguf(role);
    }
    WeightSource::whole(format!(
        "{}layers.{layer}.{name}.weight",
        config.hf_prefix()
    ))
}

/// As [`four_norms`]; norms in Hugging Face folders are stored as the distance from one (Gemma).
pub(super) fn gemma(config: &Config<'_>, spec: &ModelSpec, role: WeightRole) -> WeightSource {
    let mut source = four_norms(config, spec, role);
    let is_norm = match role {
        WeightRole::OutputNorm => true,
        WeightRole::Layer(_, part) => matches!(
            part,
            LayerRole::PreAttentionNorm
                | LayerRole::PostAttentionNorm
                | LayerRole::PreFfnNorm
                | LayerRole::PostFfnNorm
                | LayerRole::QueryNorm
                | LayerRole::KeyNorm
        ),
        _ => false,
    };
    if is_norm && !config.is_gguf() {
        source.transform = Transform::AddOne;
    }
    source
}

fn gguf(role: WeightRole) -> WeightSource {
    let (layer, part) = match role {
        WeightRole::TokenEmbedding => return WeightSource::whole("token_embd.weight"),
        WeightRole::OutputNorm => return WeightSource::whole("output_norm.weight"),
        WeightRole::Output => return WeightSource::whole("output.weight"),
        WeightRole::Layer(layer, part) => (layer, part),
    };
    let name = match part {
        LayerRole::PreAttentionNorm => "attn_norm.weight",
        LayerRole::Query => "attn_q.weight",
        LayerRole::Key => "attn_k.weight",
        LayerRole::Value => "attn_v.weight",
        LayerRole::QueryBias => "attn_q.bias",
        LayerRole::KeyBias => "attn_k.bias",
        LayerRole::ValueBias => "attn_v.bias",
        LayerRole::QueryNorm => "attn_q_norm.weight",
        LayerRole::KeyNorm => "attn_k_norm.weight",
        LayerRole::AttentionOutput => "attn_output.weight",
        LayerRole::AttentionOutputBias => "attn_output.bias",
        LayerRole::PostAttentionNorm => "post_attention_norm.weight",
        LayerRole::PreFfnNorm => "ffn_norm.weight",
        LayerRole::Gate => "ffn_gate.weight",
        LayerRole::Up => "ffn_up.weight",
        LayerRole::Down => "ffn_down.weight",
        LayerRole::GateBias => "ffn_gate.bias",
        LayerRole::UpBias => "ffn_up.bias",
        LayerRole::DownBias => "ffn_down.bias",
        LayerRole::PostFfnNorm => "post_ffw_norm.weight",
    };
    WeightSource::whole(format!("blk.{layer}.{name}"))
}

fn hf(role: WeightRole, prefix: &str) -> WeightSource {
    let (layer, part) = match role {
        WeightRole::TokenEmbedding => {
            return WeightSource::whole(format!("{prefix}embed_tokens.weight"));
        }
        WeightRole::OutputNorm => return WeightSource::whole(format!("{prefix}norm.weight")),
        WeightRole::Output => return WeightSource::whole("lm_head.weight"),
        WeightRole::Layer(layer, part) => (layer, part),
    };
    let name = match part {
        LayerRole::PreAttentionNorm => "input_layernorm.weight",
        LayerRole::Query => "self_attn.q_proj.weight",
        LayerRole::Key => "self_attn.k_proj.weight",
        LayerRole::Value => "self_attn.v_proj.weight",
        LayerRole::QueryBias => "self_attn.q_proj.bias",
        LayerRole::KeyBias => "self_attn.k_proj.bias",
        LayerRole::ValueBias => "self_attn.v_proj.bias",
        LayerRole::QueryNorm => "self_attn.q_norm.weight",
        LayerRole::KeyNorm => "self_attn.k_norm.weight",
        LayerRole::AttentionOutput => "self_attn.o_proj.weight",
        LayerRole::AttentionOutputBias => "self_attn.o_proj.bias",
        LayerRole::PostAttentionNorm | LayerRole::PreFfnNorm => "post_attention_layernorm.weight",
        LayerRole::Gate => "mlp.gate_proj.weight",
        LayerRole::Up => "mlp.up_proj.weight",
        LayerRole::Down => "mlp.down_proj.weight",
        LayerRole::GateBias => "mlp.gate_proj.bias",
        LayerRole::UpBias => "mlp.up_proj.bias",
        LayerRole::DownBias => "mlp.down_proj.bias",
        LayerRole::PostFfnNorm => "post_feedforward_layernorm.weight",
    };
    WeightSource::whole(format!("{prefix}layers.{layer}.{name}"))
}
