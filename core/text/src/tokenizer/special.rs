//! Finds the tokens that are matched in text before anything is split or merged.

use super::vocab::{TokenKind, Vocab};
use crate::TextError;

/// Longer special tokens are refused: each text position may cost this many comparisons.
const LONGEST_BYTES: usize = 1024;

/// Which white space around a special token belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strip {
    /// White space before the token is swallowed.
    pub(super) left: bool,
    /// White space after the token is swallowed.
    pub(super) right: bool,
}

/// One literal token.
#[derive(Clone, Debug)]
struct Special {
    bytes: Box<[u8]>,
    id: u32,
    strip: Strip,
    /// Matched only when special tokens are parsed.
    only_if_parsed: bool,
}

/// A stretch of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'a> {
    /// To be tokenized.
    Text(&'a str),
    /// A literal token.
    Token(u32),
}

/// Literal tokens, matched leftmost and then longest.
#[derive(Clone, Debug)]
pub(super) struct SpecialTokens {
    /// Sorted by bytes, so that a match narrows a range byte by byte.
    tokens: Vec<Special>,
    /// Range of `tokens` that starts with each byte.
    by_first: Vec<(u32, u32)>,
}

impl SpecialTokens {
    /// Collects the literal tokens of `vocab`; `strip` says what each swallows.
    pub(super) fn new(vocab: &Vocab, strip: impl Fn(u32) -> Strip) -> Result<Self, TextError> {
        let mut tokens = Vec::new();
        for id in 0..vocab.len() as u32 {
            let only_if_parsed = match vocab.kind(id) {
                Some(TokenKind::Control | TokenKind::Unknown) => true,
                Some(TokenKind::UserDefined) => false,
                _ => continue,
            };
            let bytes = vocab.token_bytes(id);
            if bytes.len() > LONGEST_BYTES {
                return Err(TextError::SpecialTooLong {
                    id,
                    bytes: bytes.len(),
                    limit: LONGEST_BYTES,
                });
            }
            // Text is UTF-8, so other bytes can never match (and would cut a character).
            if bytes.is_empty() || std::str::from_utf8(bytes).is_err() {
                continue;
            }
            tokens.push(Special {
                bytes: bytes.into(),
                id,
                strip: strip(id),
                only_if_parsed,
            });
        }
        tokens.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        let mut by_first = vec![(0, 0); 256];
        for (i, token) in tokens.iter().enumerate() {
            let range: &mut (u32, u32) = &mut by_first[token.bytes[0] as usize];
            if range.0 == range.1 {
                range.0 = i as u32;
            }
            range.1 = i as u32 + 1;
        }
        Ok(Self { tokens, by_first })
    }

    /// Cuts `text` at literal tokens. Control and unknown tokens count only if `parse_special`.
    pub(super) fn split<'a>(&self, text: &'a str, parse_special: bool) -> Vec<Fragment<'a>> {
        let mut fragments = Vec::new();
        let bytes = text.as_bytes();
        let (mut from, mut at) = (0, 0);
        while at < bytes.len() {
            let Some(token) = self.longest_at(&bytes[at..], parse_special) else {
                at += 1;
                continue;
            };
            let mut before = &text[from..at];
            if token.strip.left {
                before = before.trim_end();
            }
            if !before.is_empty() {
                fragments.push(Fragment::Text(before));
            }
            fragments.push(Fragment::Token(token.id));
            at += token.bytes.len();
            if token.strip.right {
                at = text.len() - text[at..].trim_start().len();
            }
            from = at;
        }
        if from < text.len() {
            fragments.push(Fragment::Text(&text[from..]));
        }
        fragments
    }

    /// The longest literal token that `bytes` starts with.
    fn longest_at(&self, bytes: &[u8], parse_special: bool) -> Option<&Special> {
        let (start, end) = self.by_first[bytes[0] as usize];
        let mut range = &self.tokens[start as usize..end as usize];
        let mut best = None;
        let mut depth = 1;
        loop {
            // Equal texts are adjacent: the first one that may match wins.
            while let Some((first, rest)) = range.split_first()
                && first.bytes.len() == depth
            {
                let longer = best.is_none_or(|b: &Special| b.bytes.len() < depth);
                if longer && (parse_special || !first.only_if_parsed) {
                    best = Some(first);
                }
                range = rest;
            }
            if let [only] = range {
                let may_match = parse_special || !only.only_if_parsed;
                return if may_match && bytes.starts_with(&only.bytes) {
                    Some(only)
                } else {
                    best
                };
            }
            let Some(&next) = bytes.get(depth) else {
                return best;
            };
            let lo = range.partition_point(|t| t.bytes[depth] < next);
            let hi = range.partition_point(|t| t.bytes[depth] <= next);
            range = &range[lo..hi];
            if range.is_empty() {
                return best;
            }
            depth += 1;
        }
    }
}
