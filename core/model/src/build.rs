//! The one graph builder. It knows no architecture by name.

use crate::error::ModelError;
use crate::graph::Graph;
use crate::roles::{LayerRole, WeightRole};
use crate::spec::{AttentionSpec, LayerSpec, ModelSpec, QkNormSpec};
use kvant_device::{
    Attention, Epilogue, HeadShape, KvLayerDecl, Norm, Op, QkNorm, QkRope, Rows, ValueId,
    WeightDecl, WeightId,
};
use smallvec::{SmallVec, smallvec};

/// Finds the weight for a role and checks its shape.
pub trait WeightLookup {
    /// The declaration of the weight that plays `role`, whose shape must be `[n_rows, n_cols]`
    /// (`n_rows == 1` for vectors).
    fn declare(
        &mut self,
        role: WeightRole,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<WeightDecl, ModelError>;
}

/// Builds the graph of a model, unfused: `tokens -> logits [O, vocab_size]`.
pub fn build_graph(spec: &ModelSpec, lookup: &mut dyn WeightLookup) -> Result<Graph, ModelError> {
    let mut builder = Builder {
        spec,
        lookup,
        graph: Graph::new(),
    };
    builder.build()?;
    Ok(builder.graph)
}

struct Builder<'a> {
    spec: &'a ModelSpec,
    lookup: &'a mut dyn WeightLookup,
    graph: Graph,
}

impl Builder<'_> {
    fn build(&mut self) -> Result<(), ModelError> {
        let spec = self.spec;
        let d_model = spec.d_model;
        self.graph.push_effect(Op::CopyBlocks, &[]);
        let table = self.declare(WeightRole::TokenEmbedding, spec.vocab_size, d_model)?;
        let mut x = self.tokens(
            Op::Embed {
                table,
                scale: spec.embedding_scale,
            },
            &[],
            d_model,
        );
        let rope_tables: Vec<ValueId> = spec
            .ropes
            .iter()
            .map(|rope| {
                self.graph.push(
                    Op::RopeTable(rope.clone()),
                    &[],
                    Rows::Tokens,
                    rope.rotary_dim,
                )
            })
            .collect();
        for (index, layer) in spec.layers.iter().enumerate() {
            x = self.attention(index, layer, x, &rope_tables)?;
            x = self.ffn(index, layer, x)?;
        }
        let x = self
            .graph
            .push(Op::GatherRows, &[x], Rows::Outputs, d_model);
        let norm = self.norm(WeightRole::OutputNorm, d_model)?;
        let x = self
            .graph
            .push(Op::Norm(norm), &[x], Rows::Outputs, d_model);
        let output = match spec.tied_embeddings {
            true => table,
            false => self.declare(WeightRole::Output, spec.vocab_size, d_model)?,
        };
        let op = Op::MatMul {
            weights: smallvec![output],
            biases: smallvec![None],
            epilogue: Epilogue::Store,
        };
        let mut logits = self.graph.push(op, &[x], Rows::Outputs, spec.vocab_size);
        if spec.logit_scale != 1.0 {
            let op = Op::Scale {
                factor: spec.logit_scale,
            };
            logits = self
                .graph
                .push(op, &[logits], Rows::Outputs, spec.vocab_size);
        }
        if let Some(cap) = spec.logit_softcap {
            logits = self.graph.push(
                Op::Softcap { cap },
                &[logits],
                Rows::Outputs,
                spec.vocab_size,
            );
        }
        self.graph.output = logits;
        Ok(())
    }

    /// `x -> x + scale * post(attention(pre(x)))`.
    fn attention(
        &mut self,
        index: usize,
        layer: &LayerSpec,
        x: ValueId,
        rope_tables: &[ValueId],
    ) -> Result<ValueId, ModelError> {
        let role = |role| WeightRole::Layer(index, role);
        let d_model = self.spec.d_model;
        let spec = &layer.attention;
        let heads = HeadShape {
            n_heads: spec.n_heads,
            n_kv_heads: spec.n_kv_heads,
            head_dim: spec.head_dim,
            v_head_dim: spec.v_head_dim,
        };
        self.graph.kv_layers.push(KvLayerDecl {
            group: spec.kv_group,
            n_kv_heads: spec.n_kv_heads,
            head_dim: spec.head_dim,
            v_head_dim: spec.v_head_dim,
        });
        let input = match layer.norms.pre_attention {
            true => self.normed(role(LayerRole::PreAttentionNorm), x)?,
            false => x,
        };
        let parts = [
            (LayerRole::Query, LayerRole::QueryBias, heads.q_width()),
            (LayerRole::Key, LayerRole::KeyBias, heads.k_width()),
            (LayerRole::Value, LayerRole::ValueBias, heads.v_width()),
        ]
        .map(|(weight, bias, rows)| (role(weight), role(bias), rows));
        let qkv = self.matmul(&parts, spec.qkv_bias, d_model, input)?;
        let rope = QkRope {
            heads,
            norm: self.qk_norm(index, spec)?,
            style: spec.rope_style,
            rotary_dim: self.spec.ropes[spec.rope].rotary_dim,
        };
        let qkv = self.tokens(
            Op::QkNormRope(rope),
            &[qkv, rope_tables[spec.rope]],
            heads.qkv_width(),
        );
        self.graph.push_effect(
            Op::WriteKv {
                layer: index,
                heads,
            },
            &[qkv],
        );
        let attention = Attention {
            layer: index,
            heads,
            scale: spec.scale,
            softcap: spec.softcap,
            window: self.spec.kv_groups[spec.kv_group],
        };
        let width = spec.n_heads * spec.v_head_dim;
        let mixed = self.tokens(Op::PagedAttention(attention), &[qkv], width);
        let output = [(
            role(LayerRole::AttentionOutput),
            role(LayerRole::AttentionOutputBias),
            d_model,
        )];
        let y = self.matmul(&output, spec.output_bias, width, mixed)?;
        let post = layer
            .norms
            .post_attention
            .then_some(role(LayerRole::PostAttentionNorm));
        self.residual(x, y, post, layer.residual_scale)
    }

    /// `x -> x + scale * post(down(activation(gate(pre(x))) * up(pre(x))))`.
    fn ffn(&mut self, index: usize, layer: &LayerSpec, x: ValueId) -> Result<ValueId, ModelError> {
        let role = |role| WeightRole::Layer(index, role);
        let (d_model, ffn) = (self.spec.d_model, &layer.ffn);
        let input = match layer.norms.pre_ffn {
            true => self.normed(role(LayerRole::PreFfnNorm), x)?,
            false => x,
        };
        let parts = [
            (role(LayerRole::Gate), role(LayerRole::GateBias), ffn.d_ff),
            (role(LayerRole::Up), role(LayerRole::UpBias), ffn.d_ff),
        ];
        let gate_up = self.matmul(&parts, ffn.bias, d_model, input)?;
        let inner = self.tokens(
            Op::GatedAct {
                activation: ffn.activation,
            },
            &[gate_up],
            ffn.d_ff,
        );
        let down = [(role(LayerRole::Down), role(LayerRole::DownBias), d_model)];
        let y = self.matmul(&down, ffn.bias, ffn.d_ff, inner)?;
        let post = layer.norms.post_ffn.then_some(role(LayerRole::PostFfnNorm));
        self.residual(x, y, post, layer.residual_scale)
    }

    fn residual(
        &mut self,
        x: ValueId,
        y: ValueId,
        post: Option<WeightRole>,
        scale: f32,
    ) -> Result<ValueId, ModelError> {
        let y = match post {
            Some(role) => self.normed(role, y)?,
            None => y,
        };
        Ok(self.tokens(Op::Add { scale }, &[x, y], self.spec.d_model))
    }

    fn matmul(
        &mut self,
        parts: &[(WeightRole, WeightRole, usize)],
        with_bias: bool,
        n_cols: usize,
        input: ValueId,
    ) -> Result<ValueId, ModelError> {
        let (mut weights, mut biases) = (SmallVec::new(), SmallVec::new());
        for &(weight, bias, n_rows) in parts {
            weights.push(self.declare(weight, n_rows, n_cols)?);
            biases.push(if with_bias {
                Some(self.declare(bias, 1, n_rows)?)
            } else {
                None
            });
        }
        let width = parts.iter().map(|p| p.2).sum();
        Ok(self.tokens(
            Op::MatMul {
                weights,
                biases,
                epilogue: Epilogue::Store,
            },
            &[input],
            width,
        ))
    }

    fn qk_norm(
        &mut self,
        index: usize,
        spec: &AttentionSpec,
    ) -> Result<Option<QkNorm>, ModelError> {
        let role = |role| WeightRole::Layer(index, role);
        let (head_dim, q_width, k_width) = (
            spec.head_dim,
            spec.n_heads * spec.head_dim,
            spec.n_kv_heads * spec.head_dim,
        );
        Ok(match spec.qk_norm {
            QkNormSpec::None => None,
            QkNormSpec::PerHead => Some(QkNorm::PerHead {
                q: self.norm(role(LayerRole::QueryNorm), head_dim)?,
                k: self.norm(role(LayerRole::KeyNorm), head_dim)?,
            }),
            QkNormSpec::Whole => Some(QkNorm::Whole {
                q: self.norm(role(LayerRole::QueryNorm), q_width)?,
                k: self.norm(role(LayerRole::KeyNorm), k_width)?,
            }),
        })
    }

    fn normed(&mut self, role: WeightRole, x: ValueId) -> Result<ValueId, ModelError> {
        let norm = self.norm(role, self.spec.d_model)?;
        Ok(self.tokens(Op::Norm(norm), &[x], self.spec.d_model))
    }

    fn norm(&mut self, role: WeightRole, width: usize) -> Result<Norm, ModelError> {
        let weight = self.declare(role, 1, width)?;
        Ok(Norm {
            kind: self.spec.norm_kind,
            weight,
            eps: self.spec.norm_eps,
        })
    }

    fn tokens(&mut self, op: Op, inputs: &[ValueId], width: usize) -> ValueId {
        self.graph.push(op, inputs, Rows::Tokens, width)
    }

    fn declare(
        &mut self,
        role: WeightRole,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<WeightId, ModelError> {
        let decl = self.lookup.declare(role, n_rows, n_cols)?;
        Ok(self.graph.weight(decl))
    }
}
