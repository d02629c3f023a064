//! Stop strings in streamed text.

use super::error::SamplerError;

/// Most stop strings of one [`StopMatcher`].
pub const MAX_STOP_STRINGS: usize = 64;
/// Most bytes of one stop string.
pub const MAX_STOP_BYTES: usize = 1024;

/// Finds stop strings in text that arrives in pieces, however the pieces are cut.
///
/// Text is let through at once, except for an end that could still become a stop string. The stop
/// string itself is never let through. The first stop string to be complete wins; of several that
/// end together, the one that begins first.
///
/// Pieces are whole characters, as a streaming decoder gives them.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    /// Text that has not been let through: an end of what has arrived.
    held: String,
    stopped: Option<usize>,
}

/// One stop string as a Knuth–Morris–Pratt automaton.
#[derive(Debug, Clone)]
struct Pattern {
    bytes: Vec<u8>,
    /// For each length of a matched beginning, the length of its longest proper end that is a
    /// beginning too.
    fallback: Vec<usize>,
    /// Bytes matched at the end of the text so far.
    matched: usize,
}

impl StopMatcher {
    /// A matcher for some stop strings; none at all is fine.
    ///
    /// # Errors
    /// [`SamplerError::EmptyEntry`] for an empty string, [`SamplerError::TooLong`].
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self, SamplerError> {
        let field = "stop";
        if stops.len() > MAX_STOP_STRINGS {
            return Err(SamplerError::TooLong {
                field,
                len: stops.len(),
                max: MAX_STOP_STRINGS,
            });
        }
        let patterns = stops
            .iter()
            .enumerate()
            .map(|(index, stop)| {
                let bytes = stop.as_ref().as_bytes();
                if bytes.is_empty() {
                    return Err(SamplerError::EmptyEntry { field, index });
                }
                if bytes.len() > MAX_STOP_BYTES {
                    return Err(SamplerError::TooLong {
                        field,
                        len: bytes.len(),
                        max: MAX_STOP_BYTES,
                    });
                }
                Ok(Pattern::new(bytes))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            patterns,
            held: String::new(),
            stopped: None,
        })
    }

    /// Takes the next piece and appends to `out` what can be let through. Returns the index of the
    /// stop string once one is complete; from then on all text is swallowed.
    pub fn push(&mut self, piece: &str, out: &mut String) -> Option<usize> {
        if self.stopped.is_some() {
            return self.stopped;
        }
        if self.patterns.is_empty() {
            out.push_str(piece);
            return None;
        }
        let mut end = self.held.len();
        self.held.push_str(piece);
        for &byte in piece.as_bytes() {
            end += 1;
            // Index and length.
            let mut longest: Option<(usize, usize)> = None;
            for (index, pattern) in self.patterns.iter_mut().enumerate() {
                let len = pattern.bytes.len();
                if pattern.advance(byte) && longest.is_none_or(|(_, best)| best < len) {
                    longest = Some((index, len));
                }
            }
            if let Some((index, len)) = longest {
                out.push_str(&self.held[..end - len]);
                self.held.clear();
                self.stopped = Some(index);
                return self.stopped;
            }
        }
        let keep = self.patterns.iter().map(|p| p.matched).max().unwrap_or(0);
        // A matched beginning is of whole characters, so this cuts between characters.
        let ready = self.held.len() - keep;
        out.push_str(&self.held[..ready]);
        self.held.drain(..ready);
        None
    }

    /// Appends to `out` the text still held, when nothing more will come.
    pub fn flush(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        for pattern in &mut self.patterns {
            pattern.matched = 0;
        }
    }

    /// The stop string that was found.
    pub fn stopped(&self) -> Option<usize> {
        self.stopped
    }
}

impl Pattern {
    fn new(bytes: &[u8]) -> Self {
        let mut fallback = vec![0; bytes.len() + 1];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = fallback[length];
            }
            if bytes[at] == bytes[length] {
                length += 1;
            }
            fallback[at + 1] = length;
        }
        Self {
            bytes: bytes.to_vec(),
            fallback,
            matched: 0,
        }
    }

    /// Takes a byte; true when the whole pattern ends with it.
    fn advance(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched];
        }
        if self.bytes[self.matched] == byte {
            self.matched += 1;
        }
        self.matched == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is let through of a whole text, and the stop string found, straight from the definition.
    fn naive(text: &str, stops: &[String]) -> (String, Option<usize>) {
        for end in 0..=text.len() {
            let found = stops
                .iter()
                .enumerate()
                .filter(|(_, stop)| text.as_bytes()[..end].ends_with(stop.as_bytes()))
                .max_by_key(|(index, stop)| (stop.len(), std::cmp::Reverse(*index)));
            if let Some((index, stop)) = found {
                return (text[..end - stop.len()].to_string(), Some(index));
            }
        }
        (text.to_string(), None)
    }

    /// The longest end of a text that is a proper beginning of a stop string.
    fn naive_held(text: &str, stops: &[String]) -> usize {
        stops
            .iter()
            .flat_map(|stop| {
                (1..stop.len()).filter(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n]))
            })
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn a_stop_string_over_three_pieces_leaves_nothing_behind() {
        let mut matcher = StopMatcher::new(&["</end>"]).unwrap();
        let mut out = String::new();
        assert_eq!(matcher.push("answer <", &mut out), None);
        assert_eq!(out, "answer ");
        assert_eq!(matcher.push("/e", &mut out), None);
        assert_eq!(matcher.push("nd> more", &mut out), Some(0));
        assert_eq!(matcher.push("more", &mut out), Some(0));
        matcher.flush(&mut out);
        assert_eq!(out, "answer ");
    }

    #[test]
    fn a_false_start_comes_through_and_the_flush_gives_the_rest() {
        let mut matcher = StopMatcher::new(&["</end>"]).unwrap();
        let mut out = String::new();
        matcher.push("a </en", &mut out);
        matcher.push("d of <", &mut out);
        assert_eq!(out, "a </end of ");
        matcher.flush(&mut out);
        assert_eq!(out, "a </end of <");
        assert_eq!(matcher.stopped(), None);
    }

    #[test]
    fn limits_are_errors() {
        assert!(StopMatcher::new(&["a", ""]).is_err());
        assert!(StopMatcher::new(&["a".repeat(MAX_STOP_BYTES + 1)]).is_err());
        assert!(StopMatcher::new(&vec!["a"; MAX_STOP_STRINGS + 1]).is_err());
        let mut matcher = StopMatcher::new::<&str>(&[]).unwrap();
        let mut out = String::new();
        assert_eq!(matcher.push("all", &mut out), None);
        assert_eq!(out, "all");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Few letters, some of two and four bytes, make overlaps and false starts frequent.
        #[test]
        fn any_cutting_gives_the_same(
            pieces in prop::collection::vec("[abé😀]{0,4}", 0..20),
            stops in prop::collection::vec("[abé😀]{1,5}", 0..4),
        ) {
            let whole: String = pieces.concat();
            let (want, want_stop) = naive(&whole, &stops);
            let mut matcher = StopMatcher::new(&stops).unwrap();
            let (mut out, mut seen) = (String::new(), String::new());
            for piece in &pieces {
                matcher.push(piece, &mut out);
                seen.push_str(piece);
                if matcher.stopped().is_none() {
                    let held = naive_held(&seen, &stops);
                    prop_assert_eq!(&out, &seen[..seen.len() - held], "no more held than needed");
                }
            }
            matcher.flush(&mut out);
            prop_assert_eq!(out, want);
            prop_assert_eq!(matcher.stopped(), want_stop);
        }
    }
}
