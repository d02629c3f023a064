//! Tiny random models, written as GGUF in memory.

use kvant_format::gguf::Value;
use kvant_format::gguf::write::GgufBuilder;
use kvant_format::{ByteOrder, BytesSource, Checkpoint, Gguf};
use kvant_model::Model;
use kvant_quant::WeightFormat;
use kvant_quant::testing::Random;

/// What a tiny model is made of.
#[derive(Debug, Clone, Copy)]
pub struct TinySpec {
    /// `general.architecture`: `llama`, `qwen3` or `gemma3`.
    pub architecture: &'static str,
    /// Layers.
    pub n_layers: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Inner width of the feed-forward part.
    pub d_ff: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Sliding window (`gemma3` only).
    pub window: usize,
    /// Format of matrices.
    pub format: WeightFormat,
}

impl TinySpec {
    /// A Llama of two layers.
    pub const LLAMA: Self = Self {
        architecture: "llama",
        n_layers: 2,
        n_heads: 3,
        n_kv_heads: 1,
        head_dim: 16,
        d_model: 64,
        d_ff: 96,
        vocab_size: 101,
        window: 0,
        format: WeightFormat::F32,
    };

    /// A Gemma 3 with layers of both kinds and a window shorter than two blocks.
    pub const GEMMA3: Self = Self {
        architecture: "gemma3",
        n_layers: 6,
        n_heads: 4,
        window: 40,
        ..Self::LLAMA
    };

    /// The file.
    pub fn gguf(&self) -> Vec<u8> {
        let mut builder = GgufBuilder::new(ByteOrder::Little);
        builder.metadata(
            "general.architecture",
            Value::String(self.architecture.into()),
        );
        let mut number = |key: &str, value: usize| {
            builder.metadata(
                &format!("{}.{key}", self.architecture),
                Value::U32(value as u32),
            );
        };
        number("block_count", self.n_layers);
        number("embedding_length", self.d_model);
        number("feed_forward_length", self.d_ff);
        number("attention.head_count", self.n_heads);
        number("attention.head_count_kv", self.n_kv_heads);
        number("attention.key_length", self.head_dim);
        number("attention.value_length", self.head_dim);
        number("context_length", 512);
        if self.window > 0 {
            number("attention.sliding_window", self.window);
        }
        let eps = format!("{}.attention.layer_norm_rms_epsilon", self.architecture);
        builder.metadata(&eps, Value::F32(1e-5));
        let tensors = self.tensors();
        for (name, shape) in &tensors {
            builder.tensor(
                name,
                shape,
                if shape.len() == 1 {
                    WeightFormat::F32
                } else {
                    self.format
                },
            );
        }
        let mut random = Random::new(0x006b_7661_6e74);
        let mut writer = builder.start(Vec::new()).expect("memory takes everything");
        for (_, shape) in &tensors {
            writer
                .data(&self.values(shape, &mut random))
                .expect("memory takes everything");
        }
        writer.finish().expect("memory takes everything")
    }

    /// The model.
    pub fn model(&self) -> Model {
        let source = BytesSource::shared(self.gguf());
        let gguf = pollster::block_on(Gguf::open(source)).expect("the file is well-formed");
        pollster::block_on(Model::open(Checkpoint::Gguf(gguf))).expect("the model is complete")
    }

    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (q, kv) = (
            self.n_heads * self.head_dim,
            self.n_kv_heads * self.head_dim,
        );
        let mut tensors = vec![(
            "token_embd.weight".to_owned(),
            vec![self.vocab_size, self.d_model],
        )];
        for layer in 0..self.n_layers {
            let mut push = |name: &str, shape: &[usize]| {
                tensors.push((format!("blk.{layer}.{name}.weight"), shape.to_vec()))
            };
            push("attn_norm", &[self.d_model]);
            push("attn_q", &[q, self.d_model]);
            push("attn_k", &[kv, self.d_model]);
            push("attn_v", &[kv, self.d_model]);
            push("attn_output", &[self.d_model, q]);
            push("ffn_norm", &[self.d_model]);
            push("ffn_gate", &[self.d_ff, self.d_model]);
            push("ffn_up", &[self.d_ff, self.d_model]);
            push("ffn_down", &[self.d_model, self.d_ff]);
            if self.architecture == "gemma3" {
                push("post_attention_norm", &[self.d_model]);
                push("post_ffw_norm", &[self.d_model]);
            }
            if self.architecture != "llama" {
                push("attn_q_norm", &[self.head_dim]);
                push("attn_k_norm", &[self.head_dim]);
            }
        }
        tensors.push(("output_norm.weight".to_owned(), vec![self.d_model]));
        tensors
    }

    fn values(&self, shape: &[usize], random: &mut Random) -> Vec<u8> {
        let n: usize = shape.iter().product();
        let spread = if shape.len() == 1 {
            0.3
        } else {
            1.7 / (shape[1] as f32).sqrt()
        };
        let mean = if shape.len() == 1 { 1.0 } else { 0.0 };
        let values: Vec<f32> = (0..n)
            .map(|_| mean + spread * random.uniform(-1.0, 1.0))
            .collect();
        if shape.len() == 1 {
            return values.iter().flat_map(|v| v.to_le_bytes()).collect();
        }
        let bytes = self.format.bytes_for(n).expect("rows are whole blocks");
        let mut out = vec![0; bytes];
        kvant_quant::encode(self.format, &values, &mut out).expect("the format has an encoder");
        out
    }
}
