//! What the user may say about where and how a model runs.

use std::fmt;

use clap::{Args, ValueEnum};
use kvant_engine::EngineOptions;
use kvant_kv::{KvFormat, KvFormats, KvPlan};

/// Help of every MODEL argument.
pub const MODEL_HELP: &str =
    "Model: a name (`kvant pull --list`), file or folder, hf:org/repo[/file] or URL";

/// Which code computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendKind {
    /// This machine's processor, by its vector instructions
    Cpu,
    /// Plain and slow, in f32: for checking the others
    Reference,
}

impl BackendKind {
    /// What runs when nobody chooses.
    pub const DEFAULT: Self = Self::Cpu;
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Reference => "reference",
        })
    }
}

/// Options of every command that runs a model.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendKind::DEFAULT, help_heading = "Engine")]
    pub backend: BackendKind,

    /// Threads; the machine's cores when not given
    #[arg(long, value_name = "N", value_parser = thread_count, help_heading = "Engine")]
    pub threads: Option<usize>,

    /// Format of keys and values (`f16`, `f32`), or of keys and of values (`f32/f16`)
    #[arg(long, value_name = "K[/V]", default_value_t = KvFormat::F16.into(), help_heading = "Engine")]
    pub kv: KvFormats,

    /// Same bits for a text whatever shares its steps and however its prompt is cut; slower prompts
    #[arg(long, help_heading = "Engine")]
    pub deterministic: bool,
}

impl EngineArgs {
    /// Puts what was asked for into the sizes of an engine for a model of `n_layers` layers.
    pub fn apply(&self, options: &mut EngineOptions, n_layers: usize) {
        options.deterministic |= self.deterministic;
        options.kv_plan = Some(KvPlan::uniform(n_layers, self.kv));
    }
}

/// Parses a number of threads.
pub fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err("give a number from 1 to 1024".to_owned()),
    }
}

/// Parses a number of tokens, at least one.
pub fn token_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=0x1000_0000) => Ok(n),
        _ => Err("give a number of tokens, at least 1".to_owned()),
    }
}
