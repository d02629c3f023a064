//! How long attention and phases take: `cargo run --release -p kvant-cpu --example attention`.
//!
//! Prints, for one and all threads, the time of an empty phase, of decoding a token at some depths
//! (with keys and values read, in GB/s), and of prefilling a prompt. `KVANT_CPU_LEVEL` chooses the
//! instruction set.

use kvant_cpu::{CpuBackend, CpuExec, Level};
use kvant_device::{
    Attention, Backend, Bindings, BufferReq, DeviceError, HeadShape, KvBinding, KvLayerBinding,
    KvLayerDecl, Node, Op, PrepareOptions, Program, QkRope, RopeScaling, RopeSpec, RopeStyle, Rows,
    SequenceStep, StepInput, ValueDesc, ValueId, WeightDecl, WeightDesc, WeightId, WeightUse,
};
use kvant_quant::{KV_BLOCK_TOKENS, KvFormat, WeightFormat};
use smallvec::{SmallVec, smallvec};
use std::time::Instant;

/// Layers of a run, each with its own keys and values, so that they come from memory.
const LAYERS: usize = 30;
const DEPTH: usize = 4096;

struct Bench {
    backend: CpuBackend,
    exec: CpuExec,
    table: Vec<u32>,
}

fn node(op: Op, inputs: &[u32], outputs: &[u32]) -> Node {
    Node {
        op,
        inputs: inputs.iter().map(|i| ValueId(*i)).collect(),
        outputs: outputs.iter().map(|i| ValueId(*i)).collect(),
    }
}

fn value(width: usize) -> ValueDesc {
    ValueDesc {
        rows: Rows::Tokens,
        width,
    }
}

/// Embedding and rotation, then attention of every layer to the same queries.
fn attention_program(heads: HeadShape) -> Program {
    let width = heads.qkv_width();
    let rope = RopeSpec {
        rotary_dim: heads.head_dim,
        theta: 10_000.0,
        scaling: RopeScaling::None,
    };
    let embed = Op::Embed {
        table: WeightId(0),
        scale: 1.0,
    };
    let mut nodes = vec![node(embed, &[], &[0]), node(Op::RopeTable(rope), &[], &[1])];
    let mut values = vec![value(width), value(heads.head_dim)];
    for layer in 0..LAYERS {
        let (q, out) = (values.len() as u32, values.len() as u32 + 1);
        values.push(value(heads.q_width()));
        values.push(value(heads.n_heads * heads.v_head_dim));
        let rope = QkRope {
            heads,
            norm: None,
            style: RopeStyle::Half,
            rotary_dim: heads.head_dim,
        };
        nodes.push(node(Op::RopeWriteKv { layer, rope }, &[0, 1], &[q]));
        let attention = Attention {
            layer,
            heads,
            scale: 1.0 / (heads.head_dim as f32).sqrt(),
            softcap: None,
            window: None,
        };
        nodes.push(node(Op::PagedAttention(attention), &[q], &[out]));
    }
    let layer = KvLayerDecl {
        group: 0,
        n_kv_heads: heads.n_kv_heads,
        head_dim: heads.head_dim,
        v_head_dim: heads.v_head_dim,
    };
    program(nodes, values, width, vec![layer; LAYERS])
}

/// `n` ops with almost nothing to do.
fn empty_program(n: usize) -> Program {
    let embed = Op::Embed {
        table: WeightId(0),
        scale: 1.0,
    };
    let mut nodes = vec![node(embed, &[], &[0])];
    nodes.extend((0..n as u32).map(|i| node(Op::Scale { factor: 1.0 }, &[i], &[i + 1])));
    program(nodes, vec![value(32); n + 1], 32, Vec::new())
}

fn program(
    nodes: Vec<Node>,
    values: Vec<ValueDesc>,
    width: usize,
    layers: Vec<KvLayerDecl>,
) -> Program {
    let table = WeightDecl {
        name: "embedding".to_owned(),
        format: WeightFormat::F32,
        n_rows: 64,
        n_cols: width,
    };
    let last = ValueId(values.len() as u32 - 1);
    Program::new(nodes, values, vec![table], layers, vec![last])
}

fn prepare(backend: &CpuBackend, program: &Program) -> Result<Bench, DeviceError> {
    let decl = &program.weights[0];
    let desc = WeightDesc {
        name: decl.name.clone(),
        format: decl.format,
        n_rows: decl.n_rows,
        n_cols: decl.n_cols,
        usage: WeightUse::Table,
    };
    let mut upload = backend.begin_weight(&desc)?;
    let rows: Vec<u8> = (0..decl.n_rows * decl.n_cols)
        .flat_map(|i| ((i as f32 * 0.7).sin()).to_le_bytes())
        .collect();
    backend.push_rows(&mut upload, &rows)?;
    let weights = [backend.finish_weight(upload)?];
    let n_blocks = DEPTH / KV_BLOCK_TOKENS + 1;
    let mut layers = Vec::new();
    let mut bytes = 0;
    for layer in &program.kv_layers {
        let block = |dim| {
            KvFormat::F16
                .block_bytes(layer.n_kv_heads, dim)
                .unwrap_or(0)
        };
        let (k_block_bytes, v_block_bytes) = (block(layer.head_dim), block(layer.v_head_dim));
        layers.push(KvLayerBinding {
            k_format: KvFormat::F16,
            v_format: KvFormat::F16,
            k_offset: bytes,
            v_offset: bytes + n_blocks * k_block_bytes,
            k_block_bytes,
            v_block_bytes,
        });
        bytes += n_blocks * (k_block_bytes + v_block_bytes);
    }
    let buffer = backend.alloc(&BufferReq {
        bytes,
        what: "keys and values".to_owned(),
    })?;
    let bindings = Bindings {
        weights: &weights,
        kv: KvBinding {
            buffer,
            layers,
            n_blocks: vec![n_blocks],
        },
    };
    let options = PrepareOptions {
        max_tokens: DEPTH,
        max_outputs: 1,
        max_context: DEPTH + 1,
        deterministic: false,
    };
    Ok(Bench {
        exec: backend.prepare(program, bindings, &options)?,
        backend: backend.clone(),
        table: (0..n_blocks as u32).collect(),
    })
}

impl Bench {
    /// Seconds of a step of `n_rows` tokens that ends at `context_len`: the best of `runs`.
    fn best(&mut self, n_rows: usize, context_len: usize, runs: usize) -> Result<f64, DeviceError> {
        let tokens: Vec<u32> = (0..n_rows as u32).map(|i| i % 64).collect();
        let positions: Vec<u32> = (context_len - n_rows..context_len)
            .map(|p| p as u32)
            .collect();
        let table = &self.table[..context_len.div_ceil(KV_BLOCK_TOKENS)];
        let tables: SmallVec<[&[u32]; 1]> = smallvec![table];
        let sequences = [SequenceStep {
            first_row: 0,
            n_rows,
            context_len,
            total_len: context_len,
            block_tables: &tables,
        }];
        let mut best = f64::INFINITY;
        for _ in 0..runs {
            let clock = Instant::now();
            self.backend.submit(
                &mut self.exec,
                &StepInput {
                    tokens: &tokens,
                    positions: &positions,
                    sequences: &sequences,
                    output_rows: &[],
                    copies: &[],
                },
            )?;
            best = best.min(clock.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}

fn main() -> Result<(), DeviceError> {
    let shapes = [
        ("9/3 heads of 64", 9, 3, 64),
        ("4/1 heads of 256", 4, 1, 256),
    ];
    let level = Level::from_env().unwrap_or_else(|e| panic!("{e}"));
    for threads in [Some(1), None] {
        let backend = CpuBackend::with_level(threads, level);
        println!("{level}, {} threads", backend.caps().parallelism);
        const EMPTY: usize = 1000;
        // No KV layers, so the table is empty too.
        let mut empty = prepare(&backend, &empty_program(EMPTY))?;
        let tokens = 8;
        let seconds = empty.best(tokens, tokens, 50)? / EMPTY as f64;
        println!("  empty phase of {tokens} rows: {:.0} ns", seconds * 1e9);
        for (name, n_heads, n_kv_heads, dim) in shapes {
            let heads = HeadShape {
                n_heads,
                n_kv_heads,
                head_dim: dim,
                v_head_dim: dim,
            };
            let mut bench = prepare(&backend, &attention_program(heads))?;
            bench.best(DEPTH, DEPTH, 1)?;
            for depth in [64, 1024, DEPTH] {
                let seconds = bench.best(1, depth, 20)? / LAYERS as f64;
                let bytes = depth * heads.n_kv_heads * 2 * dim * 2;
                println!(
                    "  {name}: decode at {depth}: {:.1} us a layer, {:.1} GB/s",
                    seconds * 1e6,
                    bytes as f64 / seconds / 1e9
                );
            }
            for n in [512, 2048] {
                let seconds = bench.best(n, n, 2)? / LAYERS as f64;
                let flops = 2 * n * n * n_heads * dim;
                println!(
                    "  {name}: prefill of {n}: {:.2} ms a layer, {:.0} GFLOP/s",
                    seconds * 1e3,
                    flops as f64 / seconds / 1e9
                );
            }
        }
    }
    Ok(())
}
