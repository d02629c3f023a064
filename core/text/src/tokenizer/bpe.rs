//! Byte pair encoding: the pair that was learned first merges first.

use hashbrown::HashMap;

use super::byte_map;
use super::merge::{MergeRule, Merger, NONE, Symbol, Unknown};
use super::vocab::{self, Spelling, Vocab};
use crate::TextError;

/// Ranked merges of a BPE vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Bpe {
    /// `(left, right)` to `(rank, joined)`, all token ids but the rank.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Token of each byte if text is merged from bytes; `None` if from characters.
    bytes: Option<Box<[u32; 256]>>,
    /// A word that is a token as a whole is taken as such, without merging.
    ignore_merges: bool,
}

impl Bpe {
    /// From pairs of token texts in the file's spelling, most important first.
    pub(super) fn new<'a>(
        pairs: impl ExactSizeIterator<Item = Result<(&'a [u8], &'a [u8]), TextError>>,
        vocab: &Vocab,
        spelling: Spelling,
        ignore_merges: bool,
    ) -> Result<Self, TextError> {
        let mut merges = HashMap::with_capacity(pairs.len());
        let mut joined = Vec::new();
        for (index, pair) in pairs.enumerate() {
            let (left, right) = pair?;
            joined.clear();
            spell(left, spelling, &mut joined);
            let middle = joined.len();
            spell(right, spelling, &mut joined);
            let find = |bytes, reason| {
                let id = vocab.find(bytes);
                id.ok_or_else(|| bad_merge(index, &[left, b" ", right].concat(), reason))
            };
            let left_id = find(&joined[..middle], "starts with text that is not a token")?;
            let right_id = find(&joined[middle..], "ends with text that is not a token")?;
            let id = find(&joined, "joins into text that is not a token")?;
            merges
                .entry((left_id, right_id))
                .or_insert((index as u32, id));
        }
        let bytes = (spelling == Spelling::ByteLevel).then(|| {
            let mut table = Box::new([NONE; 256]);
            for byte in 0..=255u8 {
                table[byte as usize] = vocab.find(&[byte]).unwrap_or(NONE);
            }
            table
        });
        Ok(Self {
            merges,
            bytes,
            ignore_merges,
        })
    }

    /// Appends the tokens of one word.
    ///
    /// Merging from characters, text without a token becomes byte tokens or `unknown`.
    pub(super) fn encode(
        &self,
        vocab: &Vocab,
        unknown: Unknown,
        word: &str,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        if self.ignore_merges
            && let Some(id) = vocab.find(word.as_bytes())
        {
            ids.push(id);
            return Ok(());
        }
        merger.clear();
        if let Some(table) = &self.bytes {
            for (start, &byte) in word.as_bytes().iter().enumerate() {
                merger.push(start, 1, table[byte as usize]);
            }
            merger.run(self, vocab, word.as_bytes());
            // A byte without a token vanishes, as it does in both reference implementations
            // (vocabularies lack bytes that their training text had none of).
            ids.extend(merger.symbols().map(|s| s.id).filter(|&id| id != NONE));
            return Ok(());
        }
        for (start, c) in word.char_indices() {
            let len = c.len_utf8();
            let id = vocab.find(&word.as_bytes()[start..start + len]);
            merger.push(start, len, id.unwrap_or(NONE));
        }
        merger.run(self, vocab, word.as_bytes());
        merger.emit(vocab, unknown, word.as_bytes(), ids)
    }
}

impl MergeRule for Bpe {
    fn join(&self, _: &Vocab, _: &[u8], left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
        self.merges.get(&(left.id, right.id)).copied()
    }
}

/// The two parts of a `left right` rule. Neither holds a space, but the first byte is never the
/// separator: a token may be a space itself.
pub(super) fn split_rule((index, rule): (usize, &[u8])) -> Result<(&[u8], &[u8]), TextError> {
    let space = rule.iter().skip(1).position(|&b| b == b' ');
    match space {
        Some(before) => Ok((&rule[..before + 1], &rule[before + 2..])),
        None => Err(bad_merge(index, rule, "has no space between its two parts")),
    }
}

fn bad_merge(index: usize, rule: &[u8], reason: &'static str) -> TextError {
    TextError::BadMerge {
        index,
        merge: String::from_utf8_lossy(&rule[..rule.len().min(60)]).into_owned(),
        reason,
    }
}

/// Appends the bytes that a part of a rule stands for.
fn spell(part: &[u8], spelling: Spelling, out: &mut Vec<u8>) {
    match spelling {
        Spelling::ByteLevel => {
            if !byte_map::decode_into(part, out) {
                out.extend_from_slice(part);
            }
        }
        Spelling::EscapedSpace => vocab::unescape_into(part, out),
    }
}
