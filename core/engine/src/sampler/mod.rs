//! Choosing a token from logits, and finding where a text stops.
//!
//! [`SamplerOptions`] documents the stages and their order.

mod candidates;
mod dry;
mod error;
mod options;
mod penalties;
mod random;
mod softmax;
mod stop;
#[cfg(test)]
mod tests;

pub use error::SamplerError;
pub use options::{
    DryOptions, MAX_DRY_BREAKER_TOKENS, MAX_DRY_BREAKERS, MAX_LOGIT_BIAS, MAX_LOGPROBS,
    SamplerOptions,
};
pub use stop::{MAX_STOP_BYTES, MAX_STOP_STRINGS, StopMatcher};

use candidates::Candidates;
use dry::Dry;
use penalties::{Changes, TokenNumbers};

/// A token that was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The token.
    pub id: u32,
    /// Log-probabilities, when [`SamplerOptions::logprobs`] asks for them.
    pub logprobs: Option<TokenLogprobs>,
}

/// Natural logarithms of probabilities under the model's own distribution: the softmax of its logits
/// before bias, penalties, temperature and the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// Of the chosen token, which need not be among `top`.
    pub chosen: f32,
    /// The likeliest tokens, the likeliest first; of equals the lower id first.
    pub top: Vec<(u32, f32)>,
}

/// Chooses tokens for one sequence. It holds buffers but no state: the same logits, tokens and
/// options give the same token, so a sequence can be cut back, forked or resumed freely.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
    vocab_size: usize,
    dry: Dry,
    numbers: TokenNumbers,
    changes: Changes,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler for a vocabulary.
    ///
    /// # Errors
    /// What [`SamplerOptions::validate`] finds, and token ids outside the vocabulary.
    pub fn new(options: SamplerOptions, vocab_size: usize) -> Result<Self, SamplerError> {
        options.validate()?;
        options.validate_tokens(vocab_size)?;
        Ok(Self {
            dry: Dry::new(&options.dry),
            options,
            vocab_size,
            numbers: TokenNumbers::default(),
            changes: Changes::default(),
            candidates: Candidates::default(),
        })
    }

    /// The options.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// Chooses the token that follows `tokens`, of which the first `n_prompt` are the prompt.
    ///
    /// `logits` are `[vocab_size]`; negative infinity rules a token out. They are written while the
    /// token is chosen and hold their old values again on return.
    ///
    /// # Errors
    /// [`SamplerError::LogitCount`]; [`SamplerError::BadLogit`] when a logit is not a number or
    /// positive infinity; [`SamplerError::NoCandidate`] when all tokens are ruled out.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        tokens: &[u32],
        n_prompt: usize,
    ) -> Result<SampledToken, SamplerError> {
        if logits.len() != self.vocab_size {
            return Err(SamplerError::LogitCount {
                got: logits.len(),
                wanted: self.vocab_size,
            });
        }
        self.adjust(logits, tokens, n_prompt);
        let chosen = self.choose(logits, tokens.len());
        self.changes.revert(logits);
        let id = chosen?;
        let logprobs = match self.options.logprobs {
            Some(n) => Some(self.logprobs(logits, id, n as usize)?),
            None => None,
        };
        Ok(SampledToken { id, logprobs })
    }

    /// Bias and penalties.
    fn adjust(&mut self, logits: &mut [f32], tokens: &[u32], n_prompt: usize) {
        let (options, numbers, changes) = (&self.options, &mut self.numbers, &mut self.changes);
        for (&id, &bias) in &options.logit_bias {
            changes.apply(logits, id, |logit| logit + bias);
        }
        penalties::penalise(options, logits, tokens, n_prompt, numbers, changes);
        self.dry
            .penalise(&options.dry, logits, tokens, numbers, changes);
    }

    /// The token for adjusted logits at a position.
    fn choose(&mut self, logits: &[f32], position: usize) -> Result<u32, SamplerError> {
        let max = softmax::find_max(logits)?;
        if self.options.temperature == 0.0 {
            return Ok(max.id);
        }
        let point = random::uniform(self.options.seed.unwrap_or(0), position as u64);
        if !self.candidates.narrow(logits, max, &self.options) {
            let temperature = self.options.temperature;
            return Ok(self
                .candidates
                .draw_from_all(logits, max, temperature, point));
        }
        Ok(self.candidates.draw(point).unwrap_or(max.id))
    }

    fn logprobs(
        &mut self,
        logits: &[f32],
        id: u32,
        n_top: usize,
    ) -> Result<TokenLogprobs, SamplerError> {
        let max = softmax::find_max(logits)?.logit;
        let log_sum = softmax::sum(logits, max, 1.0).ln();
        let logprob = |logit: f32| (f64::from(logit) - f64::from(max) - log_sum) as f32;
        let top = self.candidates.top(logits, n_top);
        Ok(TokenLogprobs {
            chosen: logprob(logits[id as usize]),
            top: top
                .iter()
                .map(|&(id, logit)| (id, logprob(logit)))
                .collect(),
        })
    }
}
