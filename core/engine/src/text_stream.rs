//! From tokens to text: whole characters only, and nothing of a stop string.

use crate::error::EngineError;
use crate::sampler::StopMatcher;
use kvant_text::{DecodeOptions, StreamDecoder, Tokenizer};

/// Text of one sequence as its tokens arrive. The pieces together are what decoding all tokens at once
/// and cutting at the first stop string gives.
#[derive(Debug, Clone)]
pub struct TextStream {
    decoder: Option<StreamDecoder>,
    stops: StopMatcher,
}

impl TextStream {
    /// A stream that stops at any of `stops`.
    ///
    /// # Errors
    /// [`EngineError::Sampler`] when a stop string is empty or too long.
    pub fn new<S: AsRef<str>>(options: DecodeOptions, stops: &[S]) -> Result<Self, EngineError> {
        Ok(Self {
            decoder: Some(StreamDecoder::new(options)),
            stops: StopMatcher::new(stops)?,
        })
    }

    /// Appends to `out` the text that a token completes. Returns true once a stop string is complete:
    /// the sequence should then be aborted.
    ///
    /// # Errors
    /// [`EngineError::Text`] when the id is outside the vocabulary.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer,
        id: u32,
        out: &mut String,
    ) -> Result<bool, EngineError> {
        let Some(decoder) = &mut self.decoder else {
            return Ok(true);
        };
        let piece = decoder.push(tokenizer, id)?;
        Ok(self.stops.push(&piece, out).is_some())
    }

    /// Appends what was held back, at the end of the sequence.
    pub fn finish(&mut self, out: &mut String) {
        if let Some(decoder) = self.decoder.take() {
            self.stops.push(&decoder.finish(), out);
        }
        self.stops.flush(out);
    }

    /// Whether a stop string was found.
    pub fn stopped(&self) -> bool {
        self.stops.stopped().is_some()
    }
}
