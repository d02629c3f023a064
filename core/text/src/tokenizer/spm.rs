//! SentencePiece vocabularies: the neighbours that form the best-scored token merge first.

use super::merge::{MergeRule, Merger, NONE, Symbol, Unknown};
use super::vocab::Vocab;
use crate::TextError;

/// Merge priorities of a SentencePiece vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Spm {
    /// Priority of each token, lower first: the order of falling scores.
    priorities: Vec<u32>,
}

impl Spm {
    /// From the score of each token.
    pub(super) fn new(scores: &[f32], vocab: &Vocab) -> Result<Self, TextError> {
        if scores.len() != vocab.len() {
            return Err(TextError::BadLength {
                what: "token scores",
                expected: vocab.len(),
                found: scores.len(),
            });
        }
        let priority = |(id, &score): (usize, &f32)| {
            if score.is_finite() {
                Ok(descending(score))
            } else {
                Err(TextError::BadScore { id: id as u32 })
            }
        };
        let priorities = scores
            .iter()
            .enumerate()
            .map(priority)
            .collect::<Result<_, _>>()?;
        Ok(Self { priorities })
    }

    /// Appends the tokens of `text`, in which U+2581 has become a space.
    pub(super) fn encode(
        &self,
        vocab: &Vocab,
        unknown: Unknown,
        text: &str,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        merger.clear();
        for (start, c) in text.char_indices() {
            let len = c.len_utf8();
            let id = vocab.find(&text.as_bytes()[start..start + len]);
            merger.push(start, len, id.unwrap_or(NONE));
        }
        merger.run(self, vocab, text.as_bytes());
        merger.emit(vocab, unknown, text.as_bytes(), ids)
    }
}

impl MergeRule for Spm {
    fn join(
        &self,
        vocab: &Vocab,
        text: &[u8],
        left: &Symbol,
        right: &Symbol,
    ) -> Option<(u32, u32)> {
        let start = left.start as usize;
        let joined = &text[start..start + (left.len + right.len) as usize];
        let id = vocab.find(joined)?;
        Some((self.priorities[id as usize], id))
    }
}

/// Maps floats to integers in falling order: the larger float gives the smaller integer.
fn descending(score: f32) -> u32 {
    // Zero has two bit patterns and they must tie.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 1 {
        bits
    } else {
        !bits & (u32::MAX >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn priorities_order_as_falling_scores(a in -1e6f32..1e6, b in -1e6f32..1e6) {
            prop_assert_eq!(descending(a).cmp(&descending(b)), b.total_cmp(&a));
        }
    }

    #[test]
    fn zeros_tie() {
        assert_eq!(descending(0.0), descending(-0.0));
    }
}
