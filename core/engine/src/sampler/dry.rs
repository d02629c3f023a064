//! DRY: a penalty on the token that would go on with a repeated passage.

use super::options::DryOptions;
use super::penalties::{Changes, TokenNumbers, last};
use std::collections::HashMap;

/// Sequence breakers by their last token, and buffers.
#[derive(Debug, Clone, Default)]
pub(super) struct Dry {
    /// For each token that ends breakers, the tokens before it in each of them.
    breakers: HashMap<u32, Vec<Vec<u32>>>,
    /// For each distance from the end of the text, how many tokens before it equal the text's last.
    matches: Vec<u32>,
}

impl Dry {
    pub(super) fn new(options: &DryOptions) -> Self {
        let mut breakers: HashMap<u32, Vec<Vec<u32>>> = HashMap::new();
        if options.multiplier > 0.0 {
            for breaker in &options.sequence_breakers {
                if let Some((&end, before)) = breaker.split_last() {
                    breakers.entry(end).or_default().push(before.to_vec());
                }
            }
        }
        Self {
            breakers,
            matches: Vec::new(),
        }
    }

    /// Lowers the logit of every token that would lengthen a repetition of at least
    /// `allowed_length` tokens.
    pub(super) fn penalise(
        &mut self,
        options: &DryOptions,
        logits: &mut [f32],
        tokens: &[u32],
        lengths: &mut TokenNumbers,
        changes: &mut Changes,
    ) {
        if options.multiplier == 0.0 {
            return;
        }
        let text = last(tokens, options.range);
        let longest = self.find_matches(text);
        let limit = self.n_unbroken(text, longest);
        // A repetition is at least one token long.
        let allowed = options.allowed_length.max(1);
        if limit < allowed {
            return;
        }
        lengths.prepare(logits.len());
        for (distance, &length) in self.matches.iter().enumerate().skip(1) {
            let length = length.min(limit);
            let next = text[text.len() - distance];
            if length >= allowed && !self.is_breaker(next) {
                lengths.update(next, |best| best.max(length));
            }
        }
        let (multiplier, base) = (f64::from(options.multiplier), f64::from(options.base));
        for (id, length) in lengths.drain() {
            let excess = f64::from(length) - f64::from(options.allowed_length);
            let penalty = multiplier * base.powf(excess);
            changes.apply(logits, id, |logit| {
                (f64::from(logit) - penalty).max(f64::from(f32::MIN)) as f32
            });
        }
    }

    /// Fills `matches`: entry `d` is how many tokens that end `d` before the end of the text equal
    /// the last tokens of the text. This is the Z function of the reversed text. Returns the largest
    /// beyond entry 0.
    fn find_matches(&mut self, text: &[u32]) -> u32 {
        let n = text.len();
        let reversed = |at: usize| text[n - 1 - at];
        let z = &mut self.matches;
        z.clear();
        z.resize(n, 0);
        let (mut left, mut right, mut longest) = (0, 0, 0);
        for at in 1..n {
            let mut length = if at < right {
                (z[at - left] as usize).min(right - at)
            } else {
                0
            };
            while at + length < n && reversed(length) == reversed(at + length) {
                length += 1;
            }
            if at + length > right {
                (left, right) = (at, at + length);
            }
            z[at] = length as u32;
            longest = longest.max(z[at]);
        }
        longest
    }

    /// Tokens at the end of the text after its last breaker; `most` when there are as many or more.
    fn n_unbroken(&self, text: &[u32], most: u32) -> u32 {
        if self.breakers.is_empty() {
            return most;
        }
        for n in 0..most {
            let before = text.len() - 1 - n as usize;
            let ends = self.breakers.get(&text[before]);
            if ends.is_some_and(|b| b.iter().any(|start| text[..before].ends_with(start))) {
                return n;
            }
        }
        most
    }

    fn is_breaker(&self, id: u32) -> bool {
        self.breakers
            .get(&id)
            .is_some_and(|b| b.iter().any(Vec::is_empty))
    }
}
