//! What can be wrong with sampler options or logits.

/// Why a token could not be chosen, or options were refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// A number is outside its range, or not a number.
    #[error("{field} is {value}; allowed is {allowed}")]
    Range {
        /// The option.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The range.
        allowed: &'static str,
    },
    /// A list or text is longer than allowed.
    #[error("{field} has length {len}; allowed is at most {max}")]
    TooLong {
        /// The option.
        field: &'static str,
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A list holds something empty that could match everywhere.
    #[error("{field}: entry {index} is empty")]
    EmptyEntry {
        /// The option.
        field: &'static str,
        /// Which entry.
        index: usize,
    },
    /// A token id is outside the vocabulary.
    #[error("{field}: token {token} is outside the vocabulary of {vocab_size}")]
    Token {
        /// The option.
        field: &'static str,
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// Another number of logits than the vocabulary has tokens.
    #[error("{got} logits for a vocabulary of {wanted}")]
    LogitCount {
        /// Logits given.
        got: usize,
        /// Size of the vocabulary.
        wanted: usize,
    },
    /// The model computed something that is not a number, or positive infinity.
    #[error("the logit of token {token} is {value}: the model's weights or arithmetic are broken")]
    BadLogit {
        /// The first such token.
        token: u32,
        /// `NaN` or `inf`, as text so that errors compare equal.
        value: &'static str,
    },
    /// Every token is ruled out (all logits are negative infinity).
    #[error("no token is possible: every logit is negative infinity")]
    NoCandidate,
}
