//! What a plan may cost, in one measure for all layers.

use super::error::SolveError;
use super::sensitivity::Sensitivity;
use crate::{KV_BLOCK_TOKENS, KvGroup};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a plan may cost.
///
/// The first two count what one more token of a long sequence adds: layers with a window cost
/// nothing then, since they hold no more than their window. (Where every layer has a window, all
/// count.) The last counts what a sequence of some length holds, windows included. Blocks that stay
/// open are no part of either: take their bytes off the budget first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KvBudget {
    /// Bits an element of keys and values, scales included:
    /// `8 * bytes of a block / (32 * elements_per_token)`, over layers that count.
    AverageBits(f64),
    /// Bytes a token.
    BytesPerToken(f64),
    /// Bytes of sealed blocks of one sequence.
    Sequence {
        /// Its tokens.
        tokens: u64,
        /// Its bytes.
        bytes: u64,
    },
}

impl fmt::Display for KvBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AverageBits(bits) => write!(f, "{bits} average bits"),
            Self::BytesPerToken(bytes) => write!(f, "{bytes} bytes a token"),
            Self::Sequence { tokens, bytes } => write!(f, "{bytes} bytes for {tokens} tokens"),
        }
    }
}

/// A measure of cost: how many blocks of each layer are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KvMeasure {
    /// One block of each layer that grows with the sequence.
    Block,
    /// The blocks that a sequence of so many tokens holds.
    Sequence {
        /// Its tokens.
        tokens: u64,
    },
}

impl fmt::Display for KvMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => write!(f, "a block of {KV_BLOCK_TOKENS} tokens"),
            Self::Sequence { tokens } => write!(f, "a sequence of {tokens} tokens"),
        }
    }
}

/// Bytes are whole, and a budget often comes from bytes by a division: so much of it is taken for
/// rounding.
const ROUNDING: f64 = 1e-9;

impl KvBudget {
    /// The measure that it is in.
    pub fn measure(&self) -> KvMeasure {
        match *self {
            Self::AverageBits(_) | Self::BytesPerToken(_) => KvMeasure::Block,
            Self::Sequence { tokens, .. } => KvMeasure::Sequence { tokens },
        }
    }

    /// The budget in bytes of its measure.
    ///
    /// # Errors
    /// When it is no positive number, or too large for one.
    pub(crate) fn limit_bytes(&self, sensitivity: &Sensitivity) -> Result<u64, SolveError> {
        let refuse = |wanted| SolveError::Budget {
            given: self.to_string(),
            wanted,
        };
        let block_bytes = match *self {
            Self::AverageBits(bits) => bits / 8.0 * counted_elements(sensitivity) as f64,
            Self::BytesPerToken(bytes) => bytes * KV_BLOCK_TOKENS as f64,
            Self::Sequence { tokens: 0, .. } => {
                return Err(refuse("a sequence has at least one token"));
            }
            Self::Sequence { tokens, .. } if tokens > u64::from(u32::MAX) => {
                return Err(refuse("a sequence has at most 4294967295 tokens"));
            }
            Self::Sequence { bytes, .. } => return Ok(bytes),
        };
        if !(block_bytes > 0.0 && block_bytes.is_finite()) {
            return Err(refuse("it must be a number above 0"));
        }
        // A float as large as 64 bits are becomes the largest integer, which no plan reaches.
        Ok((block_bytes * (1.0 + ROUNDING)) as u64)
    }

    /// The least budget of this kind that allows `bytes` of its measure, for messages.
    pub(crate) fn with_bytes(&self, bytes: u64, sensitivity: &Sensitivity) -> Self {
        match *self {
            Self::AverageBits(_) => {
                Self::AverageBits(bytes as f64 * 8.0 / counted_elements(sensitivity) as f64)
            }
            Self::BytesPerToken(_) => Self::BytesPerToken(bytes as f64 / KV_BLOCK_TOKENS as f64),
            Self::Sequence { tokens, .. } => Self::Sequence { tokens, bytes },
        }
    }
}

impl KvMeasure {
    /// Blocks of each layer that are counted.
    pub(crate) fn blocks(&self, sensitivity: &Sensitivity) -> Vec<u64> {
        let layers = &sensitivity.layers;
        match *self {
            Self::Block => {
                let any_grows = layers.iter().any(|layer| layer.window.is_none());
                let counts = |window: Option<u64>| u64::from(window.is_none() || !any_grows);
                layers.iter().map(|layer| counts(layer.window)).collect()
            }
            Self::Sequence { tokens } => {
                let blocks = |window: Option<u64>| {
                    let group = KvGroup {
                        window: window.map(|tokens| tokens as usize),
                    };
                    group.max_blocks(tokens as usize, 1) as u64
                };
                layers.iter().map(|layer| blocks(layer.window)).collect()
            }
        }
    }
}

/// Elements of a block of all layers that [`KvMeasure::Block`] counts.
pub(crate) fn counted_elements(sensitivity: &Sensitivity) -> u64 {
    let blocks = KvMeasure::Block.blocks(sensitivity);
    sensitivity
        .layers
        .iter()
        .zip(blocks)
        .map(|(layer, blocks)| layer.elements_per_token.saturating_mul(blocks))
        .fold(0u64, u64::saturating_add)
        .saturating_mul(KV_BLOCK_TOKENS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::solve::testing::{layer, sensitivity};

    fn windowed(windows: &[Option<u64>]) -> Sensitivity {
        let mut all = sensitivity(vec![layer(&[(64, 0.0)]); windows.len()]);
        for (layer, window) in all.layers.iter_mut().zip(windows) {
            layer.window = *window;
        }
        all
    }

    #[test]
    fn bits_and_bytes_a_token_are_bytes_of_a_block() {
        let all = windowed(&[None, None]);
        // Two layers of 8 elements.
        assert_eq!(KvBudget::AverageBits(4.5).limit_bytes(&all), Ok(288));
        assert_eq!(KvBudget::BytesPerToken(9.0).limit_bytes(&all), Ok(288));
        let sequence = KvBudget::Sequence {
            tokens: 100,
            bytes: 1000,
        };
        assert_eq!(sequence.limit_bytes(&all), Ok(1000));
        for bytes in [1, 3, 287, 288, 289, 1_000_003] {
            for kind in [
                KvBudget::AverageBits(1.0),
                KvBudget::BytesPerToken(1.0),
                sequence,
            ] {
                assert_eq!(
                    kind.with_bytes(bytes, &all).limit_bytes(&all),
                    Ok(bytes),
                    "{kind}"
                );
            }
        }
    }

    #[test]
    fn windows_count_only_as_far_as_they_grow() {
        let mixed = windowed(&[None, Some(64), Some(1000)]);
        assert_eq!(KvMeasure::Block.blocks(&mixed), [1, 0, 0]);
        assert_eq!(counted_elements(&mixed), 32 * 8);
        let sequence = KvMeasure::Sequence { tokens: 320 };
        assert_eq!(sequence.blocks(&mixed), [10, 3, 10]);
        let all = windowed(&[Some(64), Some(64)]);
        assert_eq!(KvMeasure::Block.blocks(&all), [1, 1]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let all = windowed(&[None]);
        let sequence = |tokens| KvBudget::Sequence { tokens, bytes: 1 };
        for budget in [
            KvBudget::AverageBits(0.0),
            KvBudget::AverageBits(-1.0),
            KvBudget::AverageBits(f64::NAN),
            KvBudget::BytesPerToken(f64::INFINITY),
            sequence(0),
            sequence(1 << 40),
        ] {
            let error = budget.limit_bytes(&all).unwrap_err();
            assert!(matches!(error, SolveError::Budget { .. }), "{error}");
        }
    }
}
