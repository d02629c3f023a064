//! How tokens are chosen: the command line over what the model's files recommend.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use kvant_engine::sampler::SamplerOptions;
use kvant_format::Checkpoint;
use kvant_format::gguf::Value;

use crate::error::CliError;

/// Sampler options of the command line; absent ones keep their default.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplerArgs {
    /// 0 always takes the likeliest token, higher is more varied
    #[arg(long, value_name = "X")]
    temperature: Option<f32>,

    /// Keep the N likeliest tokens (0: all)
    #[arg(long, value_name = "N")]
    top_k: Option<u32>,

    /// Keep the likeliest tokens that make up this share (1: all)
    #[arg(long, value_name = "X")]
    top_p: Option<f32>,

    /// Keep tokens at least this times as likely as the likeliest (0: all)
    #[arg(long, value_name = "X")]
    min_p: Option<f32>,

    /// Keep the most typical tokens that make up this share (1: all)
    #[arg(long, value_name = "X")]
    typical_p: Option<f32>,

    /// Divide the logits of tokens seen before (1: off)
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f32>,

    /// Subtract from the logits of tokens generated before
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,

    /// Subtract for each time a token was generated before
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,

    /// Last N tokens that the penalties look at
    #[arg(long, value_name = "N")]
    penalty_window: Option<u32>,

    /// Strength of the penalty on repeated passages (DRY; 0: off)
    #[arg(long, value_name = "X")]
    dry_multiplier: Option<f32>,

    /// Seed of the draws: the same seed gives the same answer
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Options that can be set by name, for `/set` and its help.
pub const NAMES: [&str; 11] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "penalty_window",
    "dry_multiplier",
    "seed",
];

impl SamplerArgs {
    /// Puts what the user gave over `options`, and checks the result.
    pub fn apply(&self, options: &mut SamplerOptions) -> Result<(), CliError> {
        fn put<T: Copy>(to: &mut T, from: Option<T>) {
            if let Some(value) = from {
                *to = value;
            }
        }
        put(&mut options.temperature, self.temperature);
        put(&mut options.top_k, self.top_k);
        put(&mut options.top_p, self.top_p);
        put(&mut options.min_p, self.min_p);
        put(&mut options.typical_p, self.typical_p);
        put(&mut options.repetition_penalty, self.repetition_penalty);
        put(&mut options.presence_penalty, self.presence_penalty);
        put(&mut options.frequency_penalty, self.frequency_penalty);
        put(&mut options.dry.multiplier, self.dry_multiplier);
        options.penalty_window = self.penalty_window.or(options.penalty_window);
        options.seed = self.seed.or(options.seed);
        options
            .validate()
            .map_err(|error| CliError::Usage(error.to_string()))
    }

    /// Sets one option by its name in [`NAMES`]. Nothing changes on error.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        fn parse<T: std::str::FromStr>(name: &str, value: &str) -> Result<Option<T>, String> {
            value
                .parse()
                .map(Some)
                .map_err(|_| format!("{name} cannot be '{value}'"))
        }
        let mut changed = self.clone();
        match name {
            "temperature" => changed.temperature = parse(name, value)?,
            "top_k" => changed.top_k = parse(name, value)?,
            "top_p" => changed.top_p = parse(name, value)?,
            "min_p" => changed.min_p = parse(name, value)?,
            "typical_p" => changed.typical_p = parse(name, value)?,
            "repetition_penalty" => changed.repetition_penalty = parse(name, value)?,
            "presence_penalty" => changed.presence_penalty = parse(name, value)?,
            "frequency_penalty" => changed.frequency_penalty = parse(name, value)?,
            "penalty_window" => changed.penalty_window = parse(name, value)?,
            "dry_multiplier" => changed.dry_multiplier = parse(name, value)?,
            "seed" => changed.seed = parse(name, value)?,
            _ => {
                return Err(format!(
                    "there is no {name}; there are {}",
                    NAMES.join(", ")
                ));
            }
        }
        let mut trial = SamplerOptions::default();
        changed
            .apply(&mut trial)
            .map_err(|error| error.to_string())?;
        *self = changed;
        Ok(())
    }
}

/// What suits a conversation: the model's own recommendation where its files have one.
pub fn recommended(checkpoint: &Checkpoint) -> SamplerOptions {
    let mut options = SamplerOptions {
        temperature: 0.7,
        top_p: 0.95,
        ..SamplerOptions::default()
    };
    let mut take = |name: &str, value: f64| match name {
        "temperature" => options.temperature = value as f32,
        "top_p" => options.top_p = value as f32,
        "top_k" => options.top_k = value as u32,
        "min_p" => options.min_p = value as f32,
        _ => options.repetition_penalty = value as f32,
    };
    let keys = [
        ("temperature", "general.sampling.temp"),
        ("top_p", "general.sampling.top_p"),
        ("top_k", "general.sampling.top_k"),
        ("min_p", "general.sampling.min_p"),
        ("repetition_penalty", "general.sampling.penalty_repeat"),
    ];
    for (name, key) in keys {
        let value = match checkpoint {
            Checkpoint::Gguf(gguf) => gguf.metadata.value(key).and_then(number),
            Checkpoint::HfFolder(folder) => {
                let config = folder.generation_config.as_ref();
                config.and_then(|config| config.get(name)?.as_f64())
            }
        };
        if let Some(value) = value {
            take(name, value);
        }
    }
    // A recommendation that makes no sense is nobody's wish.
    if options.validate().is_err() {
        options = SamplerOptions {
            temperature: 0.7,
            top_p: 0.95,
            ..SamplerOptions::default()
        };
    }
    options
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::F32(value) => Some(f64::from(*value)),
        Value::F64(value) => Some(*value),
        value => value.as_integer().map(|value| value as f64),
    }
}

/// A seed that differs from run to run.
pub fn fresh_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // Spread the fast-moving low bits; a sampler hashes the seed anyway.
    (now.as_nanos() as u64 ^ u64::from(std::process::id())).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_set_and_nonsense_changes_nothing() {
        let mut args = SamplerArgs::default();
        for name in NAMES {
            args.set(name, "1").unwrap();
        }
        let mut options = SamplerOptions::default();
        args.apply(&mut options).unwrap();
        assert_eq!(options.top_k, 1);
        assert_eq!(options.seed, Some(1));
        for (name, value) in [
            ("temperature", "-1"),
            ("top_p", "2"),
            ("top_k", "x"),
            ("warmth", "1"),
        ] {
            assert!(args.set(name, value).is_err(), "{name}");
        }
        let mut same = SamplerOptions::default();
        args.apply(&mut same).unwrap();
        assert_eq!(same, options);
    }
}
