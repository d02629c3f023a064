//! Changes to the logits of single tokens: bias, and penalties on what was said already.

use super::options::SamplerOptions;

/// The changed logits of a step, so that they can be set back.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    /// Token and logit before, in the order of the changes.
    undo: Vec<(u32, f32)>,
}

impl Changes {
    /// Replaces a token's logit by a function of it. Logits that are not finite stay: a token that
    /// is ruled out stays ruled out, and what is broken is found later. Results stay finite.
    pub(super) fn apply(&mut self, logits: &mut [f32], id: u32, change: impl FnOnce(f32) -> f32) {
        if let Some(logit) = logits.get_mut(id as usize).filter(|x| x.is_finite()) {
            self.undo.push((id, *logit));
            *logit = change(*logit).clamp(f32::MIN, f32::MAX);
        }
    }

    /// Sets every logit back to what it was.
    pub(super) fn revert(&mut self, logits: &mut [f32]) {
        while let Some((id, before)) = self.undo.pop() {
            logits[id as usize] = before;
        }
    }
}

/// A number for each token of the vocabulary, all zero but for few; cleared in the time of those.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenNumbers {
    numbers: Vec<u32>,
    touched: Vec<u32>,
}

impl TokenNumbers {
    /// Makes room; nothing is allocated before the first use.
    pub(super) fn prepare(&mut self, vocab_size: usize) {
        self.numbers.resize(vocab_size, 0);
    }

    /// Replaces a token's number by a function of it that is never zero. Tokens outside the
    /// vocabulary are passed over.
    pub(super) fn update(&mut self, id: u32, change: impl FnOnce(u32) -> u32) {
        if let Some(number) = self.numbers.get_mut(id as usize) {
            if *number == 0 {
                self.touched.push(id);
            }
            *number = change(*number);
        }
    }

    /// Yields tokens and their numbers in the order of their first update, and clears.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let numbers = &mut self.numbers;
        self.touched
            .drain(..)
            .map(|id| (id, std::mem::take(&mut numbers[id as usize])))
    }
}

/// The last `window` of the tokens.
pub(super) fn last(tokens: &[u32], window: Option<u32>) -> &[u32] {
    let n = window.map_or(tokens.len(), |w| tokens.len().min(w as usize));
    &tokens[tokens.len() - n..]
}

/// Repetition, frequency and presence penalties. `tokens` are the whole sequence, of which the first
/// `n_prompt` are the prompt.
pub(super) fn penalise(
    options: &SamplerOptions,
    logits: &mut [f32],
    tokens: &[u32],
    n_prompt: usize,
    counts: &mut TokenNumbers,
    changes: &mut Changes,
) {
    let repetition = options.repetition_penalty;
    let (presence, frequency) = (options.presence_penalty, options.frequency_penalty);
    if repetition == 1.0 && presence == 0.0 && frequency == 0.0 {
        return;
    }
    counts.prepare(logits.len());
    let window = last(tokens, options.penalty_window);
    let n_prompt_here = n_prompt.saturating_sub(tokens.len() - window.len());
    let (prompt, generated) = window.split_at(n_prompt_here.min(window.len()));
    // One more than the times a token was generated, so that prompt tokens count as seen.
    for &id in generated {
        counts.update(id, |n| n.max(1).saturating_add(1));
    }
    if repetition != 1.0 {
        for &id in prompt {
            counts.update(id, |n| n.max(1));
        }
    }
    for (id, number) in counts.drain() {
        let n_generated = number - 1;
        changes.apply(logits, id, |logit| {
            let logit = if logit > 0.0 {
                logit / repetition
            } else {
                logit * repetition
            };
            if n_generated == 0 {
                return logit;
            }
            logit - n_generated as f32 * frequency - presence
        });
    }
}
