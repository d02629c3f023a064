//! Results as text and as JSON.

use kvant_engine::eval::{Divergence, Perplexity};
use serde::Serialize;

/// Everything measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    model: String,
    chunk_tokens: usize,
    /// Perplexity of everything up to the end of each chunk.
    running_perplexity: Vec<f64>,
    measured_tokens: usize,
    perplexity: f64,
    standard_error: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    divergence: Option<DivergenceReport>,
    #[serde(skip)]
    base_model: Option<String>,
}

/// Distance from the baseline; KL divergences in nats.
#[derive(Debug, Serialize)]
struct DivergenceReport {
    base_model: String,
    mean_kl: f64,
    median_kl: f64,
    kl_99_percent: f64,
    max_kl: f64,
    /// 0 to 1.
    top_1_agreement: f64,
}

impl Report {
    pub(super) fn new(model: &str, chunk_tokens: usize, base_model: Option<&str>) -> Self {
        Self {
            model: model.to_owned(),
            chunk_tokens,
            running_perplexity: Vec::new(),
            measured_tokens: 0,
            perplexity: f64::NAN,
            standard_error: f64::NAN,
            divergence: None,
            base_model: base_model.map(str::to_owned),
        }
    }

    /// Notes the perplexity so far at the end of a chunk.
    pub(super) fn chunk(&mut self, perplexity: f64) {
        self.running_perplexity.push(perplexity);
    }

    pub(super) fn finish(&mut self, perplexity: &Perplexity, divergence: Option<&Divergence>) {
        self.measured_tokens = perplexity.n_tokens();
        self.perplexity = perplexity.perplexity();
        self.standard_error = perplexity.standard_error();
        self.divergence = divergence.map(|divergence| DivergenceReport {
            base_model: self.base_model.clone().unwrap_or_default(),
            mean_kl: divergence.mean_kl(),
            median_kl: divergence.quantile_kl(0.5),
            kl_99_percent: divergence.quantile_kl(0.99),
            max_kl: divergence.quantile_kl(1.0),
            top_1_agreement: divergence.top_1_agreement(),
        });
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "perplexity {:.4} ± {:.4} over {} tokens in {} chunks of {}\n",
            self.perplexity,
            self.standard_error,
            self.measured_tokens,
            self.running_perplexity.len(),
            self.chunk_tokens
        );
        if let Some(divergence) = &self.divergence {
            text.push_str(&format!(
                "KL divergence from {}: mean {:.6}, median {:.6}, 99 % {:.6}, max {:.6} nats\nsame first token: {:.2} %\n",
                divergence.base_model,
                divergence.mean_kl,
                divergence.median_kl,
                divergence.kl_99_percent,
                divergence.max_kl,
                divergence.top_1_agreement * 100.0
            ));
        }
        text
    }
}
