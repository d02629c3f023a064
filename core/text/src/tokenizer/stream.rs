//! Decoding token by token without ever showing half a character.

use super::{DecodeOptions, Tokenizer};
use crate::TextError;

/// Turns tokens into text as they come. The pieces together are the text that
/// [`Tokenizer::decode`] gives for all tokens at once, however the tokens arrive.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    skip_special: bool,
    at_start: bool,
    /// Bytes that begin a character but do not complete it: at most 3 between calls.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// A decoder at the start of a stream of tokens.
    pub fn new(options: DecodeOptions) -> Self {
        Self {
            skip_special: options.skip_special,
            at_start: options.whole_text,
            pending: Vec::new(),
        }
    }

    /// The text that `id` completes, possibly none.
    ///
    /// # Errors
    /// If the id is outside the vocabulary.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String, TextError> {
        let piece = tokenizer.piece(id, self.skip_special, &mut self.at_start)?;
        self.pending.extend_from_slice(piece);
        let complete = self.pending.len() - incomplete_tail(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..complete]).into_owned();
        self.pending.drain(..complete);
        Ok(text)
    }

    /// The rest at the end of the stream: U+FFFD if it ended inside a character.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Length of the last character of `bytes` if more bytes could complete it, else 0.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(_) => return 0,
            Err(e) => match e.error_len() {
                None => return rest.len() - e.valid_up_to(),
                Some(bad) => rest = &rest[e.valid_up_to() + bad..],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cutting_at_incomplete_tails_changes_nothing(bytes: Vec<u8>, cuts: Vec<usize>) {
            let mut out = String::new();
            let mut pending = Vec::new();
            let cuts: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
            for (i, &byte) in bytes.iter().enumerate() {
                pending.push(byte);
                if cuts.contains(&i) {
                    let complete = pending.len() - incomplete_tail(&pending);
                    prop_assert!(pending.len() - complete < 4);
                    out.push_str(&String::from_utf8_lossy(&pending[..complete]));
                    pending.drain(..complete);
                }
            }
            out.push_str(&String::from_utf8_lossy(&pending));
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
        }
    }
}
