//! The tiny models that the `transformers` package wrote, and the logits it computed.
//! `tests/fixtures/models/README.md` describes the files.

use kvant_engine::eval::log_softmax;
use kvant_format::{Checkpoint, Folder, HfFolder, MapSource, Source, SourceError, TensorStore};
use kvant_model::Model;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of all tiny models.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models")
}

/// How a model is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// A folder with `config.json` of transformers 5.
    Folder,
    /// The same folder with `config.json` of transformers 4.
    OldFolder,
    /// A GGUF file.
    Gguf,
}

/// One tiny model with its goldens.
#[derive(Debug, Clone)]
pub struct GoldenModel {
    /// The folder's name.
    pub name: String,
    /// One sequence each.
    pub sequences: Vec<GoldenSequence>,
    /// A prompt whose greedy continuation is known.
    pub greedy_prompt: Vec<u32>,
    /// That continuation.
    pub greedy_tokens: Vec<u32>,
}

/// A sequence and what follows its tokens.
#[derive(Debug, Clone)]
pub struct GoldenSequence {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Known rows of logits when keys and values are kept in f32.
    pub f32: GoldenLogits,
    /// Known rows of logits when keys and values are rounded to f16.
    pub f16: GoldenLogits,
}

/// Known rows of a sequence's logits.
#[derive(Debug, Clone)]
pub struct GoldenLogits {
    /// Their positions, ascending; the last is the last token's.
    pub positions: Vec<usize>,
    /// Their logits, `[positions, vocab_size]`.
    pub rows: Vec<Vec<f32>>,
}

impl GoldenLogits {
    fn read(store: &TensorStore, prefix: &str, sequence: usize) -> Self {
        let positions = ids(store, &format!("{prefix}positions.{sequence}"));
        let logits = numbers(store, &format!("{prefix}logits.{sequence}"));
        let width = logits.len() / positions.len();
        Self {
            positions: positions.iter().map(|&p| p as usize).collect(),
            rows: logits.chunks(width).map(<[f32]>::to_vec).collect(),
        }
    }

    /// The row at `position`, where it is known.
    pub fn at(&self, position: usize) -> Option<&[f32]> {
        let index = self.positions.iter().position(|&p| p == position)?;
        Some(&self.rows[index])
    }

    /// Log-probabilities of the token after the last, `[vocab_size]`.
    pub fn last_logprobs(&self) -> Vec<f32> {
        let mut logprobs = Vec::new();
        let last = self.rows.last().expect("a sequence has rows");
        log_softmax(last, &mut logprobs);
        logprobs
    }
}

/// Every tiny model, by name.
pub fn models() -> Vec<GoldenModel> {
    let entries = std::fs::read_dir(fixtures()).expect("the fixtures are in the repository");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("the folder can be listed"))
        .filter(|entry| entry.path().join("golden.safetensors").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.into_iter().map(GoldenModel::read).collect()
}

impl GoldenModel {
    fn read(name: String) -> Self {
        let path = fixtures().join(&name).join("golden.safetensors");
        let source = MapSource::open(&path)
            .expect("the golden file opens")
            .shared();
        let store = pollster::block_on(kvant_format::safetensors::open(source))
            .expect("the golden file is well-formed");
        let sequences = (0..3).map(|s| GoldenSequence {
            tokens: ids(&store, &format!("tokens.{s}")),
            f32: GoldenLogits::read(&store, "", s),
            f16: GoldenLogits::read(&store, "f16.", s),
        });
        Self {
            sequences: sequences.collect(),
            greedy_prompt: ids(&store, "greedy.prompt"),
            greedy_tokens: ids(&store, "greedy.tokens"),
            name,
        }
    }

    /// The model, `None` when it is not stored in that way.
    pub fn open(&self, spelling: Spelling) -> Option<Model> {
        let folder = fixtures().join(&self.name);
        let checkpoint = match spelling {
            Spelling::Folder => Checkpoint::open_path(&folder).expect("the folder opens"),
            Spelling::OldFolder => {
                let opened = pollster::block_on(HfFolder::open(&OldConfig(folder)));
                Checkpoint::HfFolder(Box::new(opened.expect("the folder opens")))
            }
            Spelling::Gguf => {
                let path = folder.join("model.gguf");
                if !path.is_file() {
                    return None;
                }
                Checkpoint::open_path(&path).expect("the file opens")
            }
        };
        let model = pollster::block_on(Model::open(checkpoint));
        Some(model.unwrap_or_else(|error| panic!("{} {spelling:?}: {error}", self.name)))
    }
}

fn numbers(store: &TensorStore, name: &str) -> Vec<f32> {
    let tensor = store
        .tensor(name)
        .expect("the golden file has every tensor");
    let bytes = pollster::block_on(store.read(tensor)).expect("the tensor can be read");
    let (values, _) = bytes.as_chunks::<4>();
    values.iter().map(|&v| f32::from_le_bytes(v)).collect()
}

fn ids(store: &TensorStore, name: &str) -> Vec<u32> {
    numbers(store, name).iter().map(|&id| id as u32).collect()
}

/// A folder whose `config.json` is `config.old.json`.
struct OldConfig(PathBuf);

impl Folder for OldConfig {
    fn file(&self, name: &str) -> Result<Option<Arc<dyn Source>>, SourceError> {
        let name = match name {
            "config.json" => "config.old.json",
            other => other,
        };
        let path = self.0.join(name);
        if !path.is_file() {
            return Ok(None);
        }
        MapSource::open(&path).map(|source| Some(source.shared()))
    }
}
