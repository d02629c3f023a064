//! What a model, a weight format or a KV plan loses: perplexity, and divergence from saved logits.

use crate::engine::Engine;
use crate::error::EngineError;
use kvant_device::Backend;

/// Which part of a text is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvalOptions {
    /// Tokens a chunk. Each chunk is a sequence of its own; its second half is measured, so that every
    /// token measured has at least half a context before it.
    pub chunk_tokens: usize,
    /// Most chunks; all that the text fills when absent.
    pub max_chunks: Option<usize>,
    /// Put in place of the first token of each chunk, for models that want it.
    pub bos: Option<u32>,
}

/// The logits that predict one token.
#[derive(Debug, Clone, Copy)]
pub struct EvalRow<'a> {
    /// Which chunk.
    pub chunk: usize,
    /// Position of the predicted token in its chunk.
    pub position: usize,
    /// The token that the text has there.
    pub token: u32,
    /// Logits, `[vocab_size]`.
    pub logits: &'a [f32],
}

/// Number of chunks that `n_tokens` tokens fill under `options`.
pub fn n_chunks(n_tokens: usize, options: &EvalOptions) -> usize {
    let whole = n_tokens / options.chunk_tokens.max(1);
    options.max_chunks.map_or(whole, |max| whole.min(max))
}

/// Runs the text and hands every measured row to `sink`, in order. Chunks, the measured half and the
/// place of the BOS token are as in llama.cpp's perplexity tool, so that numbers compare.
///
/// # Errors
/// [`EngineError`] when a chunk does not fit the engine or the device fails.
pub async fn evaluate<B: Backend>(
    engine: &mut Engine<B>,
    tokens: &[u32],
    options: &EvalOptions,
    mut sink: impl FnMut(EvalRow<'_>),
) -> Result<(), EngineError> {
    let size = options.chunk_tokens;
    if size < 4 {
        return Err(EngineError::Option {
            field: "chunk_tokens",
            value: size,
            wanted: "it must be at least 4",
        });
    }
    for chunk in 0..n_chunks(tokens.len(), options) {
        let mut part = tokens[chunk * size..(chunk + 1) * size].to_vec();
        let truth = part.clone();
        if let Some(bos) = options.bos {
            part[0] = bos;
        }
        // The last token predicts one beyond the chunk, so it is not fed.
        engine
            .score(&part[..size - 1], size / 2, |position, logits| {
                sink(EvalRow {
                    chunk,
                    position: position + 1,
                    token: truth[position + 1],
                    logits,
                });
            })
            .await?;
    }
    Ok(())
}

/// Log-probability of each token: `logit - log sum exp`. `out` is resized.
pub fn log_softmax(logits: &[f32], out: &mut Vec<f32>) {
    let log_sum = log_sum_exp(logits);
    out.clear();
    out.extend(logits.iter().map(|&x| (f64::from(x) - log_sum) as f32));
}

/// `log sum exp` of all logits, in f64.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits
        .iter()
        .map(|&x| (f64::from(x) - max).exp())
        .sum::<f64>()
        .ln()
}

/// Mean negative log-likelihood of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Perplexity {
    n_tokens: usize,
    sum: f64,
    sum_of_squares: f64,
}

impl Perplexity {
    /// Counts one row.
    pub fn add(&mut self, row: &EvalRow<'_>) {
        let loss = log_sum_exp(row.logits) - f64::from(row.logits[row.token as usize]);
        self.n_tokens += 1;
        self.sum += loss;
        self.sum_of_squares += loss * loss;
    }

    /// Rows counted.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Mean negative log-likelihood, nats a token.
    pub fn mean_loss(&self) -> f64 {
        self.sum / self.n_tokens as f64
    }

    /// `exp` of the mean loss.
    pub fn perplexity(&self) -> f64 {
        self.mean_loss().exp()
    }

    /// Standard error of the perplexity, by the delta method.
    pub fn standard_error(&self) -> f64 {
        let n = self.n_tokens as f64;
        let variance = (self.sum_of_squares / n - self.mean_loss().powi(2)).max(0.0);
        self.perplexity() * (variance / (n - 1.0).max(1.0)).sqrt()
    }
}

/// How far a model's predictions are from those of a baseline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Divergence {
    kl: Vec<f32>,
    same_top: usize,
}

impl Divergence {
    /// Counts one row: KL(baseline ‖ model) in nats, and whether both put the same token first.
    /// `baseline` holds log-probabilities, `[vocab_size]`.
    pub fn add(&mut self, baseline: &[f32], logits: &[f32]) {
        let log_sum = log_sum_exp(logits);
        let kl: f64 = baseline
            .iter()
            .zip(logits)
            .filter(|(p, _)| p.is_finite())
            .map(|(&p, &x)| {
                let p = f64::from(p);
                p.exp() * (p - (f64::from(x) - log_sum))
            })
            .sum();
        self.kl.push(kl as f32);
        self.same_top += usize::from(top(baseline) == top(logits));
    }

    /// Rows counted.
    pub fn n_tokens(&self) -> usize {
        self.kl.len()
    }

    /// Mean KL divergence, nats a token.
    pub fn mean_kl(&self) -> f64 {
        self.kl.iter().map(|&v| f64::from(v)).sum::<f64>() / self.kl.len().max(1) as f64
    }

    /// The KL divergence that a share `quantile` of all rows stays below, `0 ..= 1`.
    pub fn quantile_kl(&self, quantile: f64) -> f64 {
        let mut sorted = self.kl.clone();
        sorted.sort_by(f32::total_cmp);
        let at =
            (quantile.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64).round() as usize;
        sorted.get(at).copied().map_or(0.0, f64::from)
    }

    /// Share of rows whose most probable token is the baseline's.
    pub fn top_1_agreement(&self) -> f64 {
        self.same_top as f64 / self.kl.len().max(1) as f64
    }
}

/// Index of the largest value; the first of equal ones.
fn top(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, v) in values.iter().enumerate() {
        if *v > values[best] {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_predictions_do_not_diverge() {
        let logits = [0.5f32, -1.0, 3.0, 0.0];
        let mut baseline = Vec::new();
        log_softmax(&logits, &mut baseline);
        let mut divergence = Divergence::default();
        divergence.add(&baseline, &logits.map(|x| x + 7.0));
        assert!(divergence.mean_kl().abs() < 1e-6);
        assert_eq!(divergence.top_1_agreement(), 1.0);
        divergence.add(&baseline, &[3.0, 0.0, 0.0, 0.0]);
        assert!(divergence.mean_kl() > 0.1);
        assert_eq!(divergence.top_1_agreement(), 0.5);
    }

    #[test]
    fn a_uniform_model_has_the_vocabulary_as_perplexity() {
        let mut perplexity = Perplexity::default();
        for token in 0..8 {
            perplexity.add(&EvalRow {
                chunk: 0,
                position: 0,
                token,
                logits: &[1.0; 8],
            });
        }
        assert!((perplexity.perplexity() - 8.0).abs() < 1e-9);
        assert!(perplexity.standard_error() < 1e-6);
    }
}
