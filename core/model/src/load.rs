//! From a checkpoint to a program, and its weights to a backend.

use crate::architectures::{self, Architecture};
use crate::build::{WeightLookup, build_graph};
use crate::config::{Config, RopeTensors};
use crate::error::ModelError;
use crate::fusion::fuse;
use crate::roles::{LayerRole, Transform, WeightRole, WeightSource};
use crate::spec::ModelSpec;
use kvant_device::{Backend, DeviceError, Program, WeightDecl, WeightDesc, WeightUse};
use kvant_format::{Checkpoint, TensorFormat, TensorInfo};
use kvant_quant::WeightFormat;

/// Tensors of rope divisors, which the spec needs before anything is built.
const ROPE_TENSORS: [&str; 3] = [
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
];

/// More elements than any rope has pairs; larger tensors of these names are not read.
const MAX_ROPE_PAIRS: usize = 4096;

/// A model: its checkpoint, its spec, and its program with the weights that go with it.
pub struct Model {
    checkpoint: Checkpoint,
    spec: ModelSpec,
    program: Program,
    weights: Vec<PlannedWeight>,
}

/// Where a weight of the program comes from.
#[derive(Debug, Clone)]
pub struct PlannedWeight {
    /// Tensor and rows.
    pub source: WeightSource,
    /// What the backend is told.
    pub desc: WeightDesc,
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of the file that are on the device.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

impl Model {
    /// Reads the configuration, checks every tensor it asks for, and builds the program.
    ///
    /// # Errors
    /// [`ModelError`] when the architecture is unknown, a key or tensor is missing or does not fit.
    pub async fn open(checkpoint: Checkpoint) -> Result<Self, ModelError> {
        let name = architecture_name(&checkpoint)?;
        let is_gguf = matches!(checkpoint, Checkpoint::Gguf(_));
        let architecture = architectures::find(is_gguf, &name)?;
        let rope_tensors = read_rope_tensors(&checkpoint).await?;
        let config = Config::new(&checkpoint, &name, &rope_tensors);
        let spec = (architecture.spec)(&config)?;
        let mut lookup = Lookup {
            checkpoint: &checkpoint,
            config: &config,
            architecture,
            spec: &spec,
            weights: vec![],
        };
        let mut graph = build_graph(&spec, &mut lookup)?;
        let weights = lookup.weights;
        fuse(&mut graph);
        let program = graph.lower();
        Ok(Self {
            checkpoint,
            spec,
            program,
            weights,
        })
    }

    /// The file or folder.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The architecture as data.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The fused program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Where each weight of the program comes from, by weight id.
    pub fn weights(&self) -> &[PlannedWeight] {
        &self.weights
    }

    /// Bytes that all weights take on a backend.
    ///
    /// # Errors
    /// [`ModelError::Device`] when a weight cannot be held.
    pub fn weight_bytes<B: Backend>(&self, backend: &B) -> Result<usize, ModelError> {
        self.weights.iter().try_fold(0usize, |sum, weight| {
            let bytes = backend.weight_bytes(&weight.desc)?;
            let overflow = || DeviceError::Overflow {
                what: "the weights".to_owned(),
            };
            Ok(sum.checked_add(bytes).ok_or_else(overflow)?)
        })
    }

    /// Sends every weight to the backend, in pieces, so that no second copy of the model is ever held.
    ///
    /// # Errors
    /// [`ModelError`] when a piece cannot be read or the backend refuses it.
    pub async fn load<B: Backend>(
        &self,
        backend: &B,
        mut on_progress: impl FnMut(LoadProgress),
    ) -> Result<Vec<B::Weight>, ModelError> {
        let mut progress = LoadProgress {
            done_bytes: 0,
            total_bytes: 0,
        };
        for weight in &self.weights {
            let bytes = weight
                .desc
                .format
                .bytes_for(weight.desc.n_cols)
                .unwrap_or(0)
                * weight.desc.n_rows;
            progress.total_bytes += bytes as u64;
        }
        on_progress(progress);
        let mut loaded = Vec::with_capacity(self.weights.len());
        for weight in &self.weights {
            loaded.push(
                self.load_one(backend, weight, &mut progress, &mut on_progress)
                    .await?,
            );
        }
        Ok(loaded)
    }

    async fn load_one<B: Backend>(
        &self,
        backend: &B,
        weight: &PlannedWeight,
        progress: &mut LoadProgress,
        on_progress: &mut impl FnMut(LoadProgress),
    ) -> Result<B::Weight, ModelError> {
        let info = find_tensor(&self.checkpoint, &weight.source.tensor, || {
            weight.desc.name.clone()
        })?;
        if weight.desc.usage == WeightUse::Vector {
            let bytes = self
                .checkpoint
                .store()
                .read_rows(info, 0..info.n_rows())
                .await?;
            let values = vector_values(info, weight.desc.n_cols, &bytes, weight.source.transform)?;
            let desc = WeightDesc {
                format: WeightFormat::F32,
                ..weight.desc.clone()
            };
            let mut upload = backend.begin_weight(&desc)?;
            backend.push_rows(&mut upload, &values)?;
            progress.done_bytes += bytes.len() as u64;
            on_progress(*progress);
            return Ok(backend.finish_weight(upload)?);
        }
        let mut upload = backend.begin_weight(&weight.desc)?;
        let (first, last) = (
            weight.source.first_row,
            weight.source.first_row + weight.desc.n_rows,
        );
        for piece in info.pieces() {
            let rows = piece.start.max(first)..piece.end.min(last);
            if rows.is_empty() {
                continue;
            }
            let bytes = self
                .checkpoint
                .store()
                .read_rows(info, rows.clone())
                .await?;
            backend.push_rows(&mut upload, &bytes)?;
            progress.done_bytes += bytes.len() as u64;
            drop(bytes);
            self.checkpoint.store().release_rows(info, rows);
            on_progress(*progress);
        }
        Ok(backend.finish_weight(upload)?)
    }
}

/// A vector's elements as little-endian f32 bytes, transformed.
fn vector_values(
    info: &TensorInfo,
    n: usize,
    bytes: &[u8],
    transform: Transform,
) -> Result<Vec<u8>, ModelError> {
    let format = known_format(info)?;
    let mut values = vec![0.0f32; n];
    kvant_quant::decode(format, bytes, &mut values).map_err(|source| ModelError::Decode {
        tensor: info.name.clone(),
        source,
    })?;
    if transform == Transform::AddOne {
        values.iter_mut().for_each(|v| *v += 1.0);
    }
    Ok(values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

fn known_format(info: &TensorInfo) -> Result<WeightFormat, ModelError> {
    match &info.format {
        TensorFormat::Known(format) => Ok(*format),
        TensorFormat::Unsupported(source) => Err(ModelError::TensorFormat {
            tensor: info.name.clone(),
            source: source.clone(),
        }),
    }
}

fn find_tensor<'c>(
    checkpoint: &'c Checkpoint,
    name: &str,
    role: impl FnOnce() -> String,
) -> Result<&'c TensorInfo, ModelError> {
    checkpoint
        .tensor(name)
        .ok_or_else(|| ModelError::MissingTensor {
            tensor: name.to_owned(),
            role: role(),
        })
}

fn architecture_name(checkpoint: &Checkpoint) -> Result<String, ModelError> {
    match checkpoint {
        Checkpoint::Gguf(gguf) => Ok(gguf
            .metadata
            .get::<&str>("general.architecture")?
            .to_owned()),
        Checkpoint::HfFolder(folder) => {
            let name = folder.config.get("model_type").and_then(|v| v.as_str());
            name.map(str::to_owned).ok_or(ModelError::MissingKey {
                key: "model_type".to_owned(),
            })
        }
    }
}

async fn read_rope_tensors(checkpoint: &Checkpoint) -> Result<RopeTensors, ModelError> {
    let mut tensors = RopeTensors::new();
    for name in ROPE_TENSORS {
        let Some(info) = checkpoint.tensor(name) else {
            continue;
        };
        if info.n_elements() > MAX_ROPE_PAIRS {
            let wanted = format!("at most {MAX_ROPE_PAIRS} elements are possible");
            return Err(ModelError::BadValue {
                key: name.to_owned(),
                found: info.n_elements().to_string(),
                wanted,
            });
        }
        let bytes = checkpoint.store().read_rows(info, 0..info.n_rows()).await?;
        let mut values = vec![0.0f32; info.n_elements()];
        kvant_quant::decode(known_format(info)?, &bytes, &mut values).map_err(|source| {
            ModelError::Decode {
                tensor: name.to_owned(),
                source,
            }
        })?;
        tensors.insert(name.to_owned(), values);
    }
    Ok(tensors)
}

/// Resolves roles to tensors and checks their shapes.
struct Lookup<'a> {
    checkpoint: &'a Checkpoint,
    config: &'a Config<'a>,
    architecture: &'static Architecture,
    spec: &'a ModelSpec,
    weights: Vec<PlannedWeight>,
}

impl WeightLookup for Lookup<'_> {
    fn declare(
        &mut self,
        role: WeightRole,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<WeightDecl, ModelError> {
        let source = (self.architecture.source)(self.config, self.spec, role);
        let info = find_tensor(self.checkpoint, &source.tensor, || role.to_string())?;
        let usage = usage(role, self.spec.tied_embeddings);
        let wanted = match usage {
            WeightUse::Vector => vec![n_cols],
            _ => vec![source.tensor_rows.unwrap_or(n_rows), n_cols],
        };
        if info.shape != wanted {
            return Err(ModelError::Shape {
                tensor: info.name.clone(),
                found: info.shape.clone(),
                wanted,
            });
        }
        let (name, format) = (info.name.clone(), known_format(info)?);
        self.weights.push(PlannedWeight {
            source,
            desc: WeightDesc {
                name: name.clone(),
                format,
                n_rows,
                n_cols,
                usage,
            },
        });
        Ok(WeightDecl {
            name,
            format,
            n_rows,
            n_cols,
        })
    }
}

fn usage(role: WeightRole, tied_embeddings: bool) -> WeightUse {
    match role {
        WeightRole::TokenEmbedding if tied_embeddings => WeightUse::MatrixAndTable,
        WeightRole::TokenEmbedding => WeightUse::Table,
        WeightRole::Output => WeightUse::Matrix,
        WeightRole::OutputNorm => WeightUse::Vector,
        WeightRole::Layer(_, part) => match part {
            LayerRole::Query
            | LayerRole::Key
            | LayerRole::Value
            | LayerRole::AttentionOutput
            | LayerRole::Gate
            | LayerRole::Up
            | LayerRole::Down => WeightUse::Matrix,
            _ => WeightUse::Vector,
        },
    }
}
