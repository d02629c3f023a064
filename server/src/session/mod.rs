//! A model made ready to use: found, opened, loaded, with its tokenizer.

mod args;
mod backend;
mod progress;
mod runtime;

use std::path::{Path, PathBuf};
use std::time::Instant;

use kvant_engine::EngineOptions;
use kvant_engine::vocabulary::tokenizer;
use kvant_format::{Checkpoint, block_on};
use kvant_kv::KvFormats;
use kvant_model::Model;
use kvant_text::Tokenizer;

use crate::error::CliError;
use crate::pull::resolve_model;
use crate::pull::units::Bytes;
use crate::signals::{self, Outcome};
pub use args::{BackendKind, EngineArgs, MODEL_HELP, thread_count, token_count};
pub use backend::{caps, memory_plan};
use progress::LoadBar;
pub use progress::{CountBar, stop_line};
pub use runtime::Runtime;

/// The longest context that is chosen without being asked for, in tokens: what KV blocks of a small
/// model take on any machine.
const DEFAULT_CONTEXT: usize = 8192;

/// A model on this machine: its files are open and make sense, nothing is loaded yet.
pub struct OpenModel {
    /// What the user typed.
    pub name: String,
    /// File or folder.
    pub path: PathBuf,
    /// Configuration, program and where each weight lies.
    pub model: Model,
}

/// A loaded model.
pub struct Session {
    /// Its files.
    pub open: OpenModel,
    /// The engine, on whichever backend.
    pub engine: Box<dyn Runtime>,
    /// Text to tokens and back.
    pub tokenizer: Tokenizer,
    /// Formats of keys and values.
    pub kv: KvFormats,
    /// Seconds from the opened file to the ready engine.
    pub load_seconds: f64,
}

/// Finds a model's files, pulling them if need be, and opens them. Says nothing about whether they
/// make a model that can run.
pub fn open_checkpoint(name: &str) -> Result<(PathBuf, Checkpoint), CliError> {
    let path = resolve_model(name)?;
    let checkpoint = Checkpoint::open_path(&path)?;
    Ok((path, checkpoint))
}

/// Checks that a checkpoint makes a model.
pub fn open_model(
    name: &str,
    path: PathBuf,
    checkpoint: Checkpoint,
) -> Result<OpenModel, CliError> {
    let model = block_on(Model::open(checkpoint)).map_err(|source| CliError::Model {
        path: path.clone(),
        source: Box::new(source),
    })?;
    Ok(OpenModel {
        name: name.to_owned(),
        path,
        model,
    })
}

/// The tokenizer of a checkpoint.
pub fn open_tokenizer(path: &Path, checkpoint: &Checkpoint) -> Result<Tokenizer, CliError> {
    block_on(tokenizer(checkpoint))
        .map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))
}

impl OpenModel {
    /// The context to use when `asked` for one or not, in tokens.
    pub fn context_len(&self, asked: Option<usize>) -> usize {
        let trained = self.model.spec().context_length.max(1);
        asked.unwrap_or_else(|| trained.min(DEFAULT_CONTEXT))
    }

    /// The context that fits `wanted` tokens, refused beyond what the model was trained for only
    /// with a note: some models stretch.
    pub fn warn_if_stretched(&self, context_len: usize) {
        let trained = self.model.spec().context_length;
        if context_len > trained {
            eprintln!(
                "note: the context of {context_len} tokens is longer than the {trained} the model was trained for; answers may degrade"
            );
        }
    }
}

impl Session {
    /// Opens and loads a model, with a progress bar on a terminal. `options` sizes the engine once the
    /// model is known.
    pub fn load(
        name: &str,
        args: &EngineArgs,
        options: impl FnOnce(&OpenModel) -> Result<EngineOptions, CliError>,
    ) -> Result<Self, CliError> {
        let (path, checkpoint) = open_checkpoint(name)?;
        Self::load_opened(open_model(name, path, checkpoint)?, args, options)
    }

    /// Loads an opened model.
    pub fn load_opened(
        open: OpenModel,
        args: &EngineArgs,
        options: impl FnOnce(&OpenModel) -> Result<EngineOptions, CliError>,
    ) -> Result<Self, CliError> {
        let started = Instant::now();
        let mut options = options(&open)?;
        args.apply(&mut options, open.model.spec().layers.len());
        open.warn_if_stretched(options.context_len);
        let bar = LoadBar::new(&open.name);
        let stopped = bar.clone();
        let _guard = signals::on_signal(move |_| {
            stopped.clear();
            stop_line("while loading the model");
            Outcome::Exit
        });
        // The vocabulary is read while the weights are repacked: neither waits for the other.
        let (engine, tokenizer) = std::thread::scope(|scope| {
            let checkpoint = open.model.checkpoint();
            let tokenizer = scope.spawn(|| open_tokenizer(&open.path, checkpoint));
            let engine = backend::load(args, &open.model, options, |progress| bar.show(progress));
            let tokenizer = tokenizer.join().unwrap_or_else(|_| {
                let path = open.path.display();
                Err(CliError::Failed(format!(
                    "{path}: the tokenizer cannot be built"
                )))
            });
            (engine, tokenizer)
        });
        bar.clear();
        let engine = engine.map_err(|error| error.of_model(&open.path))?;
        Ok(Self {
            engine,
            tokenizer: tokenizer?,
            kv: args.kv,
            load_seconds: started.elapsed().as_secs_f64(),
            open,
        })
    }

    /// One line about what runs where, for standard error.
    pub fn describe(&self) -> String {
        let caps = self.engine.caps();
        let memory = self.engine.memory();
        let options = self.engine.options();
        format!(
            "{} ({}), {} on {} thread{}, context {} tokens: weights {}, KV {} {} ({} a token), activations {}",
            self.open.name,
            self.open.model.spec().architecture,
            caps.name,
            caps.parallelism,
            if caps.parallelism == 1 { "" } else { "s" },
            options.context_len,
            Bytes(memory.weight_bytes as u64),
            self.kv,
            Bytes(memory.kv_bytes as u64),
            Bytes(memory.kv_bytes_per_token as u64),
            Bytes(memory.activation_bytes as u64),
        )
    }
}
