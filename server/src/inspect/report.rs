//! What `inspect` knows, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use kvant_device::Caps;
use kvant_engine::{EngineOptions, MemoryPlan};
use kvant_format::{Checkpoint, TensorFormat, TensorInfo};
use kvant_kv::{KvFormats, KvPlan};
use kvant_model::ModelSpec;
use serde::Serialize;
use serde_json::{Map, Value};

use super::metadata::one_line;
use crate::pull::units::Bytes;
use crate::terminal::table;

/// Characters of a metadata value in the text report.
const VALUE_WIDTH: usize = 100;

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) model: String,
    pub(super) files: Files,
    pub(super) shape: Option<Shape>,
    pub(super) by_type: Vec<TypeRow>,
    pub(super) memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cannot_run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<String>,
    pub(super) metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tensors: Option<Vec<TensorRow>>,
}

/// The files.
#[derive(Debug, Serialize)]
pub(super) struct Files {
    path: PathBuf,
    format: String,
    bytes: u64,
    n_tensors: usize,
}

impl Files {
    pub(super) fn new(path: &Path, checkpoint: &Checkpoint) -> Self {
        let format = match checkpoint {
            Checkpoint::Gguf(gguf) => {
                format!("GGUF {}, {:?} endian", gguf.version, gguf.byte_order())
            }
            Checkpoint::HfFolder(_) => "Hugging Face folder".to_owned(),
        };
        Self {
            path: path.to_owned(),
            format,
            bytes: checkpoint.store().file_bytes(),
            n_tensors: checkpoint.tensors().len(),
        }
    }
}

/// The architecture in numbers.
#[derive(Debug, Serialize)]
pub(super) struct Shape {
    architecture: &'static str,
    n_layers: usize,
    d_model: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    d_ff: usize,
    vocab_size: usize,
    trained_context_tokens: usize,
    /// Attention window of each group of layers, `null` for all tokens.
    kv_windows: Vec<Option<usize>>,
}

impl Shape {
    pub(super) fn new(spec: &ModelSpec) -> Self {
        let first = spec.layers.first();
        let attention = |get: fn(&kvant_model::AttentionSpec) -> usize| {
            first.map_or(0, |layer| get(&layer.attention))
        };
        Self {
            architecture: spec.architecture,
            n_layers: spec.layers.len(),
            d_model: spec.d_model,
            n_heads: attention(|a| a.n_heads),
            n_kv_heads: attention(|a| a.n_kv_heads),
            head_dim: attention(|a| a.head_dim),
            d_ff: first.map_or(0, |layer| layer.ffn.d_ff),
            vocab_size: spec.vocab_size,
            trained_context_tokens: spec.context_length,
            kv_windows: spec.kv_groups.clone(),
        }
    }
}

/// Tensors of one element type.
#[derive(Debug, Serialize)]
pub(super) struct TypeRow {
    format: String,
    n_tensors: usize,
    elements: u64,
    bytes: u64,
}

/// Tensors grouped by element type, the most bytes first.
pub(super) fn by_type(tensors: &[TensorInfo]) -> Vec<TypeRow> {
    let mut groups: BTreeMap<String, TypeRow> = BTreeMap::new();
    for tensor in tensors {
        let format = format_name(&tensor.format);
        let row = groups.entry(format.clone()).or_insert(TypeRow {
            format,
            n_tensors: 0,
            elements: 0,
            bytes: 0,
        });
        row.n_tensors += 1;
        row.elements += tensor.n_elements() as u64;
        row.bytes += tensor.location.bytes;
    }
    let mut rows: Vec<TypeRow> = groups.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}

fn format_name(format: &TensorFormat) -> String {
    match format {
        TensorFormat::Known(format) => format.name().to_owned(),
        TensorFormat::Unsupported(why) => why.to_string(),
    }
}

/// One tensor.
#[derive(Debug, Serialize)]
pub(super) struct TensorRow {
    name: String,
    format: String,
    shape: Vec<usize>,
    bytes: u64,
}

impl TensorRow {
    pub(super) fn new(tensor: &TensorInfo) -> Self {
        Self {
            name: tensor.name.clone(),
            format: format_name(&tensor.format),
            shape: tensor.shape.clone(),
            bytes: tensor.location.bytes,
        }
    }
}

/// Bytes that running takes, as the engine will allocate them.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    backend: String,
    threads: usize,
    context_tokens: usize,
    weight_bytes: u64,
    /// Formats of keys and values.
    kv: String,
    kv_bytes: u64,
    kv_bytes_per_token: u64,
    activation_bytes: u64,
    total_bytes: u64,
}

impl Memory {
    pub(super) fn new(
        caps: &Caps,
        options: &EngineOptions,
        kv: KvFormats,
        plan: &MemoryPlan,
    ) -> Self {
        Self {
            backend: caps.name.clone(),
            threads: caps.parallelism,
            context_tokens: options.context_len,
            weight_bytes: plan.weight_bytes as u64,
            kv: kv.to_string(),
            kv_bytes: plan.kv_bytes as u64,
            kv_bytes_per_token: plan.kv_bytes_per_token as u64,
            activation_bytes: plan.activation_bytes as u64,
            total_bytes: plan.total_bytes() as u64,
        }
    }
}

/// Where keys and values of each layer go.
pub(super) fn kv_plan(spec: &ModelSpec, plan: &KvPlan) -> String {
    let mut text = format!("kv plan {plan}\n");
    for (group, window) in spec.kv_groups.iter().enumerate() {
        let layers = spec
            .layers
            .iter()
            .enumerate()
            .filter(|(_, layer)| layer.attention.kv_group == group)
            .map(|(index, _)| index.to_string());
        let window = window.map_or("all tokens".to_owned(), |n| format!("last {n} tokens"));
        let _ = writeln!(
            text,
            "kv group {group}: {window}, layers {}",
            layers.collect::<Vec<_>>().join(" ")
        );
    }
    text
}

impl Report {
    /// The report for people.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!("{}: {}", self.model, self.files.path.display()));
        line(format!(
            "{}, {}, {} tensors",
            self.files.format,
            Bytes(self.files.bytes),
            self.files.n_tensors
        ));
        if let Some(shape) = &self.shape {
            line(shape.line());
        }
        if let Some(why) = &self.cannot_run {
            line(format!("cannot run: {why}"));
        }
        line(String::new());
        line(types_table(&self.by_type));
        if let Some(memory) = &self.memory {
            line(memory.text());
        }
        if let Some(plan) = &self.plan {
            line(plan.clone());
        }
        if let Some(tensors) = &self.tensors {
            line(tensors_table(tensors));
        }
        for (key, value) in &self.metadata {
            line(format!("{key} = {}", one_line(value, VALUE_WIDTH)));
        }
    }
}

impl Shape {
    fn line(&self) -> String {
        format!(
            "{}: {} layers of width {}, {} heads ({} for keys and values) of {}, inner width {}, vocabulary {}, trained on {} tokens",
            self.architecture,
            self.n_layers,
            self.d_model,
            self.n_heads,
            self.n_kv_heads,
            self.head_dim,
            self.d_ff,
            self.vocab_size,
            self.trained_context_tokens
        )
    }
}

impl Memory {
    fn text(&self) -> String {
        let rows = [
            ("weights", self.weight_bytes),
            ("keys and values", self.kv_bytes),
            ("activations", self.activation_bytes),
            ("total", self.total_bytes),
        ];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|(what, bytes)| vec![(*what).to_owned(), Bytes(*bytes).to_string()])
            .collect();
        let head = format!(
            "memory on {}, context {} tokens",
            self.backend, self.context_tokens
        );
        let per_token = Bytes(self.kv_bytes_per_token);
        format!(
            "{}one more token of context takes {per_token}\n",
            table(&[&head, ""], &rows)
        )
    }
}

fn types_table(rows: &[TypeRow]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.format.clone(),
                row.n_tensors.to_string(),
                row.elements.to_string(),
                Bytes(row.bytes).to_string(),
                format!("{:.2}", row.bytes as f64 * 8.0 / row.elements.max(1) as f64),
            ]
        })
        .collect();
    table(
        &["type", "tensors", "elements", "bytes", "bits each"],
        &rows,
    )
}

fn tensors_table(rows: &[TensorRow]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.name.clone(),
                row.format.clone(),
                format!("{:?}", row.shape),
                Bytes(row.bytes).to_string(),
            ]
        })
        .collect();
    table(&["tensor", "type", "shape", "bytes"], &rows)
}
