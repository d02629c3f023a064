//! Tokenizers to test with.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kvant_format::gguf::{Metadata, StringArray};
use kvant_format::{FileSource, Gguf, block_on};
use kvant_text::{Tokenizer, TokenizerParts};
use serde::Deserialize;

/// The folder of real models, filled by `cargo xtask models`.
fn real_model(file: &str) -> PathBuf {
    let folder = std::env::var_os("KVANT_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models"),
        PathBuf::from,
    );
    let path = folder.join(file);
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask models`, or set KVANT_MODELS to the folder that has it",
        path.display()
    );
    path
}

/// Metadata of a real model.
pub(crate) fn metadata(file: &str) -> Metadata {
    let source = FileSource::open(&real_model(file)).expect("the model opens");
    block_on(Gguf::open(Arc::new(source)))
        .expect("the model is valid")
        .metadata
}

/// What a GGUF file says about its tokenizer.
pub(crate) fn parts(metadata: &Metadata) -> TokenizerParts {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let strings = |name: &str| {
        let found = metadata.find::<&StringArray>(&key(name)).expect("strings");
        found.map(|strings| strings.iter().collect())
    };
    let text = |name: &str| {
        let found = metadata.find::<&str>(name).expect("a string");
        found.map(String::from)
    };
    let id = |name: &str| metadata.find::<u32>(&key(name)).expect("an id");
    let flag = |name: &str| metadata.find::<bool>(&key(name)).expect("a flag");
    TokenizerParts {
        model: text(&key("model")).expect("a tokenizer model"),
        pre: text(&key("pre")),
        architecture: text("general.architecture"),
        tokens: strings("tokens").expect("tokens"),
        scores: metadata.find(&key("scores")).expect("scores"),
        token_types: metadata.find(&key("token_type")).expect("token types"),
        merges: strings("merges"),
        bos: id("bos_token_id"),
        eos: id("eos_token_id"),
        eot: id("eot_token_id"),
        eom: id("eom_token_id"),
        unk: id("unknown_token_id"),
        pad: id("padding_token_id"),
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        add_space_prefix: flag("add_space_prefix"),
    }
}

fn load(file: &str) -> Tokenizer {
    Tokenizer::from_parts(parts(&metadata(file))).expect("a tokenizer")
}

pub(crate) const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub(crate) const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// Byte-level BPE, 49,152 tokens.
pub(crate) fn smollm2() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| load(SMOLLM2))
}

/// SentencePiece merges, 262,144 tokens.
pub(crate) fn gemma3() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| load(GEMMA3))
}

/// Outputs of another engine; see `tests/fixtures/text/reduce.py`.
#[derive(Deserialize)]
pub(crate) struct Reference {
    pub(crate) texts: Vec<ReferenceText>,
    pub(crate) chats: Vec<ReferenceChat>,
}

/// A text and its tokens.
#[derive(Deserialize)]
pub(crate) struct ReferenceText {
    pub(crate) text: String,
    pub(crate) plain: Vec<u32>,
    /// With special tokens parsed, if different.
    pub(crate) parsed: Option<Vec<u32>>,
    /// As a prompt, if different from that.
    pub(crate) prompt: Option<Vec<u32>>,
    /// What `plain` decodes to, if not the text.
    pub(crate) decoded: Option<String>,
}

/// Messages and the prompt they give.
#[derive(Deserialize)]
pub(crate) struct ReferenceChat {
    pub(crate) messages: Vec<kvant_text::Message>,
    pub(crate) rendered: String,
    pub(crate) ids: Vec<u32>,
}

/// Reads a fixture.
pub(crate) fn reference(name: &str) -> Reference {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/text");
    let bytes = std::fs::read(folder.join(name)).expect("the fixture is there");
    serde_json::from_slice(&bytes).expect("the fixture is valid")
}
