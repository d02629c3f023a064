//! How a token is chosen: plain data with limits.

use super::error::SamplerError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most entries of [`SamplerOptions::logit_bias`].
pub const MAX_LOGIT_BIAS: usize = 8192;
/// Most runners-up of [`SamplerOptions::logprobs`].
pub const MAX_LOGPROBS: usize = 256;
/// Most entries of [`DryOptions::sequence_breakers`].
pub const MAX_DRY_BREAKERS: usize = 8192;
/// Most tokens of one sequence breaker.
pub const MAX_DRY_BREAKER_TOKENS: usize = 64;

/// How a token is chosen from logits. The default draws from the model's own distribution.
///
/// The stages, in this order; each works on what the one before has left, renormalised:
///
/// 1. `logit_bias` is added.
/// 2. Penalties: repetition, then frequency and presence.
/// 3. DRY.
/// 4. `temperature` divides the logits. Zero chooses the highest logit (the lowest id among equals)
///    and skips the rest.
/// 5. `top_k`, 6. `typical_p`, 7. `top_p`, 8. `min_p` narrow the choice.
/// 9. One draw, from a random number that depends on `seed` and the position of the token alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerOptions {
    /// Divides the logits: 1 as the model says, below 1 more certain, 0 always the likeliest token.
    /// `0..=100`.
    pub temperature: f32,
    /// Keeps the likeliest tokens, this many; 0 keeps all. Of equals the lower ids stay.
    pub top_k: u32,
    /// Keeps the fewest likeliest tokens whose probabilities sum to at least this, and at least one
    /// token. `0..=1`, 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this times as probable as the likeliest one. `0..=1`, 0 keeps all.
    pub min_p: f32,
    /// Keeps the fewest tokens closest in surprise to the distribution's entropy whose probabilities
    /// sum to at least this (locally typical sampling, Meister et al. 2022). `0..=1`, 1 keeps all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of tokens that the window holds, prompt
    /// included (CTRL, Keskar et al. 2019). `0.01..=100`, 1 does nothing.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens that the window holds among generated ones.
    /// `-100..=100`.
    pub presence_penalty: f32,
    /// Subtracted once for each time that the window holds a token among generated ones.
    /// `-100..=100`.
    pub frequency_penalty: f32,
    /// Last tokens that the three penalties look at; all when absent.
    pub penalty_window: Option<u32>,
    /// Penalty on going on with a repeated passage.
    pub dry: DryOptions,
    /// Added to the logits of single tokens. `-10000..=10000` each.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Seed of the draws. Whoever takes requests picks one when this is absent, so that answers
    /// differ; a sampler takes 0.
    pub seed: Option<u64>,
    /// Reports the log-probability of the chosen token and of this many likeliest tokens; nothing
    /// when absent. They are of the model's distribution before all stages.
    pub logprobs: Option<u32>,
}

/// DRY ("don't repeat yourself"): when the text ends as an earlier passage did, over `n` tokens, the
/// token that followed there loses `multiplier * base^(n - allowed_length)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DryOptions {
    /// Strength; 0 turns it off. `0..=100`.
    pub multiplier: f32,
    /// Growth for each further repeated token. `1..=100`.
    pub base: f32,
    /// Repeated tokens from which on the penalty applies, counted before the one penalised.
    pub allowed_length: u32,
    /// Last tokens looked at; all when absent.
    pub range: Option<u32>,
    /// Token sequences over which no repetition reaches (line ends, quotation marks, chat markers).
    /// A token that is a breaker by itself is never penalised.
    pub sequence_breakers: Vec<Vec<u32>>,
}

impl Default for DryOptions {
    fn default() -> Self {
        Self {
            multiplier: 0.0,
            base: 1.75,
            allowed_length: 2,
            range: None,
            sequence_breakers: Vec::new(),
        }
    }
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: None,
            dry: DryOptions::default(),
            logit_bias: BTreeMap::new(),
            seed: None,
            logprobs: None,
        }
    }
}

impl SamplerOptions {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Checks every number and length that does not depend on the model.
    ///
    /// # Errors
    /// The first option outside its limits.
    pub fn validate(&self) -> Result<(), SamplerError> {
        let one = "0 to 1";
        check("temperature", self.temperature, 0.0, 100.0, "0 to 100")?;
        check("top_p", self.top_p, 0.0, 1.0, one)?;
        check("min_p", self.min_p, 0.0, 1.0, one)?;
        check("typical_p", self.typical_p, 0.0, 1.0, one)?;
        let penalty = self.repetition_penalty;
        check("repetition_penalty", penalty, 0.01, 100.0, "0.01 to 100")?;
        for (field, value) in [
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ] {
            check(field, value, -100.0, 100.0, "-100 to 100")?;
        }
        check(
            "dry.multiplier",
            self.dry.multiplier,
            0.0,
            100.0,
            "0 to 100",
        )?;
        check("dry.base", self.dry.base, 1.0, 100.0, "1 to 100")?;
        check_len("logit_bias", self.logit_bias.len(), MAX_LOGIT_BIAS)?;
        for &bias in self.logit_bias.values() {
            check("logit_bias", bias, -1e4, 1e4, "-10000 to 10000")?;
        }
        let n_logprobs = self.logprobs.unwrap_or(0) as usize;
        if n_logprobs > MAX_LOGPROBS {
            return Err(SamplerError::Range {
                field: "logprobs",
                value: n_logprobs as f64,
                allowed: "0 to 256",
            });
        }
        let field = "dry.sequence_breakers";
        check_len(field, self.dry.sequence_breakers.len(), MAX_DRY_BREAKERS)?;
        for (index, breaker) in self.dry.sequence_breakers.iter().enumerate() {
            if breaker.is_empty() {
                return Err(SamplerError::EmptyEntry { field, index });
            }
            check_len(field, breaker.len(), MAX_DRY_BREAKER_TOKENS)?;
        }
        Ok(())
    }

    /// Checks that every token id is of a vocabulary.
    pub(super) fn validate_tokens(&self, vocab_size: usize) -> Result<(), SamplerError> {
        let check = |field, token: u32| {
            if token as usize >= vocab_size {
                return Err(SamplerError::Token {
                    field,
                    token,
                    vocab_size,
                });
            }
            Ok(())
        };
        for &token in self.logit_bias.keys() {
            check("logit_bias", token)?;
        }
        for &token in self.dry.sequence_breakers.iter().flatten() {
            check("dry.sequence_breakers", token)?;
        }
        Ok(())
    }
}

fn check(
    field: &'static str,
    value: f32,
    min: f32,
    max: f32,
    allowed: &'static str,
) -> Result<(), SamplerError> {
    // Not a number fails both comparisons.
    if value >= min && value <= max {
        return Ok(());
    }
    Err(SamplerError::Range {
        field,
        value: f64::from(value),
        allowed,
    })
}

fn check_len(field: &'static str, len: usize, max: usize) -> Result<(), SamplerError> {
    if len > max {
        return Err(SamplerError::TooLong { field, len, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_goes_round_and_defaults_fill_in() {
        let text = r#"{"temperature":0.5,"top_k":40,"dry":{"multiplier":0.8,"sequence_breakers":[[1],[2,3]]},
            "logit_bias":{"7":-100},"seed":18446744073709551615}"#;
        let options: SamplerOptions = serde_json::from_str(text).unwrap();
        assert_eq!(options.top_p, 1.0);
        assert_eq!(options.dry.base, 1.75);
        assert_eq!(options.seed, Some(u64::MAX));
        assert_eq!(options.logit_bias[&7], -100.0);
        let again = serde_json::to_string(&options).unwrap();
        assert_eq!(
            serde_json::from_str::<SamplerOptions>(&again).unwrap(),
            options
        );
        assert_eq!(
            serde_json::from_str::<SamplerOptions>("{}").unwrap(),
            SamplerOptions::default()
        );
    }

    #[test]
    fn unknown_fields_are_errors() {
        for text in [
            r#"{"temprature":1}"#,
            r#"{"dry":{"bass":2}}"#,
            r#"{"top_k":-1}"#,
        ] {
            assert!(
                serde_json::from_str::<SamplerOptions>(text).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn every_number_has_limits() {
        type Set = fn(&mut SamplerOptions, f32);
        let fields: [(&str, Set); 9] = [
            ("temperature", |o, v| o.temperature = v),
            ("top_p", |o, v| o.top_p = v),
            ("min_p", |o, v| o.min_p = v),
            ("typical_p", |o, v| o.typical_p = v),
            ("repetition_penalty", |o, v| o.repetition_penalty = v),
            ("presence_penalty", |o, v| o.presence_penalty = v),
            ("frequency_penalty", |o, v| o.frequency_penalty = v),
            ("dry.multiplier", |o, v| o.dry.multiplier = v),
            ("dry.base", |o, v| o.dry.base = v),
        ];
        for (name, set) in fields {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e6, 1e6] {
                let mut options = SamplerOptions::default();
                set(&mut options, value);
                match options.validate() {
                    Err(SamplerError::Range { field, .. }) => assert_eq!(field, name),
                    other => panic!("{name} = {value}: {other:?}"),
                }
            }
        }
        assert_eq!(SamplerOptions::default().validate(), Ok(()));
        assert_eq!(SamplerOptions::greedy().validate(), Ok(()));
    }

    #[test]
    fn lists_have_limits() {
        let mut options = SamplerOptions {
            logit_bias: (0..=MAX_LOGIT_BIAS as u32).map(|t| (t, 0.0)).collect(),
            ..Default::default()
        };
        assert!(matches!(
            options.validate(),
            Err(SamplerError::TooLong {
                field: "logit_bias",
                ..
            })
        ));
        options.logit_bias = BTreeMap::from([(1, f32::NAN)]);
        assert!(matches!(
            options.validate(),
            Err(SamplerError::Range {
                field: "logit_bias",
                ..
            })
        ));
        let mut options = SamplerOptions {
            logprobs: Some(257),
            ..Default::default()
        };
        assert!(options.validate().is_err());
        options.logprobs = None;
        options.dry.sequence_breakers = vec![vec![1], vec![]];
        assert_eq!(
            options.validate(),
            Err(SamplerError::EmptyEntry {
                field: "dry.sequence_breakers",
                index: 1
            })
        );
        options.dry.sequence_breakers = vec![vec![1; MAX_DRY_BREAKER_TOKENS + 1]];
        assert!(options.validate().is_err());
        options.dry.sequence_breakers = vec![vec![9]];
        assert!(options.validate_tokens(9).is_err());
        assert!(options.validate_tokens(10).is_ok());
    }
}
