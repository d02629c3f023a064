//! Each fusion rule leaves the meaning of a graph as it is: random specs, run on the reference with and
//! without the rule.

use kvant_device::{
    Activation, Backend, Bindings, BufferReq, KvBinding, KvLayerBinding, NormKind, PrepareOptions,
    Program, RopeScaling, RopeSpec, RopeStyle, SequenceStep, StepInput, WeightDecl, WeightDesc,
    WeightUse,
};
use kvant_model::{
    AttentionSpec, FfnSpec, Graph, LayerSpec, ModelError, ModelSpec, NormPlacement, QkNormSpec,
    RULES, WeightLookup, WeightRole, build_graph, fuse,
};
use kvant_quant::{KvFormat, WeightFormat};
use kvant_reference::ReferenceBackend;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// Declares f32 weights of any shape.
struct AnyWeight;

impl WeightLookup for AnyWeight {
    fn declare(
        &mut self,
        role: WeightRole,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<WeightDecl, ModelError> {
        Ok(WeightDecl {
            name: role.to_string(),
            format: WeightFormat::F32,
            n_rows,
            n_cols,
        })
    }
}

fn spec_strategy() -> impl Strategy<Value = ModelSpec> {
    let norms = prop_oneof![
        Just(NormPlacement::PRE),
        Just(NormPlacement::POST),
        Just(NormPlacement::SANDWICH)
    ];
    let qk_norm = prop_oneof![
        Just(QkNormSpec::None),
        Just(QkNormSpec::PerHead),
        Just(QkNormSpec::Whole)
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (
        1usize..4,
        1usize..3,
        1usize..3,
        norms,
        qk_norm,
        flags,
        0.5f32..1.5,
    )
        .prop_map(
            |(
                n_layers,
                n_kv_heads,
                group,
                norms,
                qk_norm,
                (bias, tied, capped, window),
                residual_scale,
            )| {
                let head_dim = 8;
                let layer = |index: usize| LayerSpec {
                    attention: AttentionSpec {
                        n_heads: n_kv_heads * group,
                        n_kv_heads,
                        head_dim,
                        v_head_dim: head_dim,
                        scale: 0.3,
                        softcap: capped.then_some(5.0),
                        qk_norm,
                        qkv_bias: bias,
                        output_bias: bias,
                        rope: 0,
                        rope_style: RopeStyle::Half,
                        kv_group: if window { index % 2 } else { 0 },
                    },
                    ffn: FfnSpec {
                        d_ff: 20,
                        activation: Activation::Silu,
                        bias,
                    },
                    norms,
                    residual_scale,
                };
                ModelSpec {
                    architecture: "random",
                    vocab_size: 19,
                    d_model: 12,
                    context_length: 64,
                    embedding_scale: 1.5,
                    layers: (0..n_layers).map(layer).collect(),
                    norm_kind: NormKind::Rms,
                    norm_eps: 1e-5,
                    tied_embeddings: tied,
                    logit_scale: if capped { 0.5 } else { 1.0 },
                    logit_softcap: capped.then_some(3.0),
                    ropes: vec![RopeSpec {
                        rotary_dim: head_dim,
                        theta: 100.0,
                        scaling: RopeScaling::None,
                    }],
                    kv_groups: if window {
                        vec![None, Some(3)]
                    } else {
                        vec![None]
                    },
                }
            },
        )
}

/// Values that depend on the weight's name alone, so that graphs may declare weights in any order.
fn weight_bytes(decl: &WeightDecl) -> Vec<u8> {
    let mut state = decl
        .name
        .bytes()
        .fold(7u64, |h, b| h.wrapping_mul(0x100_0000_01b3) ^ u64::from(b));
    let scale = if decl.n_rows == 1 {
        1.0
    } else {
        2.0 / (decl.n_cols as f32).sqrt()
    };
    (0..decl.n_rows * decl.n_cols)
        .flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            (uniform * scale).to_le_bytes()
        })
        .collect()
}

fn run(program: &Program) -> Vec<f32> {
    let backend = ReferenceBackend::default();
    let weights: Vec<_> = program
        .weights
        .iter()
        .map(|decl| {
            let (name, usage) = (decl.name.clone(), WeightUse::Matrix);
            let desc = WeightDesc {
                name,
                format: decl.format,
                n_rows: decl.n_rows,
                n_cols: decl.n_cols,
                usage,
            };
            let mut upload = backend.begin_weight(&desc).unwrap();
            backend.push_rows(&mut upload, &weight_bytes(decl)).unwrap();
            backend.finish_weight(upload).unwrap()
        })
        .collect();
    let n_groups = program.kv_layers.iter().map(|l| l.group + 1).max().unwrap();
    let mut offset = 0;
    let layers = program
        .kv_layers
        .iter()
        .map(|layer| {
            let bytes = KvFormat::F16
                .block_bytes(layer.n_kv_heads, layer.head_dim)
                .unwrap();
            offset += 2 * bytes;
            KvLayerBinding {
                k_format: KvFormat::F16,
                v_format: KvFormat::F16,
                k_offset: offset - 2 * bytes,
                v_offset: offset - bytes,
                k_block_bytes: bytes,
                v_block_bytes: bytes,
            }
        })
        .collect();
    let buffer = backend
        .alloc(&BufferReq {
            bytes: offset,
            what: "kv".to_owned(),
        })
        .unwrap();
    let kv = KvBinding {
        buffer,
        layers,
        n_blocks: vec![1; n_groups],
    };
    let options = PrepareOptions {
        max_tokens: 8,
        max_outputs: 8,
        max_context: 32,
        deterministic: false,
    };
    let mut exec = backend
        .prepare(
            program,
            Bindings {
                weights: &weights,
                kv,
            },
            &options,
        )
        .unwrap();
    let table: Vec<&[u32]> = vec![&[0]; n_groups];
    let mut logits = Vec::new();
    // A prefill of which two rows are asked for, then one more token.
    for (tokens, context_len, output_rows) in [
        (&[3u32, 1, 4, 1, 5][..], 5, &[2u32, 4][..]),
        (&[9][..], 6, &[0][..]),
    ] {
        let sequence = SequenceStep {
            first_row: 0,
            n_rows: tokens.len(),
            context_len,
            total_len: context_len,
            block_tables: &table,
        };
        let positions: Vec<u32> = (context_len - tokens.len()..context_len)
            .map(|p| p as u32)
            .collect();
        let step = StepInput {
            tokens,
            positions: &positions,
            sequences: &[sequence],
            output_rows,
            copies: &[],
        };
        backend.submit(&mut exec, &step).unwrap();
        let mut out = Vec::new();
        pollster::block_on(backend.read(&exec, 0, &mut out)).unwrap();
        logits.extend(out);
    }
    logits
}

fn assert_close(rule: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{rule}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            (g - w).abs() <= 1e-4 * w.abs().max(1.0),
            "{rule}: value {i} is {g} instead of {w}"
        );
    }
}

fn graph(spec: &ModelSpec) -> Graph {
    build_graph(spec, &mut AnyWeight).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rules_leave_the_meaning(spec in spec_strategy()) {
        let want = run(&graph(&spec).lower());
        prop_assert!(want.iter().all(|v| v.is_finite()));
        for (name, rule) in RULES {
            let mut fused = graph(&spec);
            rule(&mut fused);
            assert_close(name, &run(&fused.lower()), &want);
        }
        let mut fused = graph(&spec);
        fuse(&mut fused);
        assert_close("all rules", &run(&fused.lower()), &want);
    }
}

#[test]
fn every_rule_applies_where_it_should() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut applied = vec![0; RULES.len()];
    for _ in 0..20 {
        let spec = spec_strategy().new_tree(&mut runner).unwrap().current();
        let mut fused = graph(&spec);
        for (count, (_, rule)) in applied.iter_mut().zip(RULES) {
            *count += rule(&mut fused);
        }
        assert!(fused.nodes.len() < graph(&spec).nodes.len());
    }
    for ((name, _), count) in RULES.iter().zip(applied) {
        assert!(count > 0, "{name} never applied");
    }
}
