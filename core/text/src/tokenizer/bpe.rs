//! Byte pair encoding: the pair that was learned first merges first.

use hashbrown::HashMap;

use super::StringTable;
use super::byte_map;
use super::merge::{MergeRule, Merger, NONE, Symbol};
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
    /// Reads `left right` rules, most important first.
    pub(super) fn new(
        rules: &StringTable,
        vocab: &Vocab,
        spelling: Spelling,
        ignore_merges: bool,
    ) -> Result<Self, TextError> {
        let mut merges = HashMap::with_capacity(rules.len());
        let mut joined = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let bad = |reason| TextError::BadMerge {
                index,
                merge: String::from_utf8_lossy(&rule[..rule.len().min(60)]).into_owned(),
                reason,
            };
            // The first byte is never the separator: a token may be a space itself.
            let space = rule.iter().skip(1).position(|&b| b == b' ').map(|p| p + 1);
            let space = space.ok_or_else(|| bad("has no space between its two parts"))?;
            let (left, right) = (&rule[..space], &rule[space + 1..]);
            joined.clear();
            spell(left, spelling, &mut joined);
            let middle = joined.len();
            spell(right, spelling, &mut joined);
            let find = |bytes, reason| vocab.find(bytes).ok_or_else(|| bad(reason));
            let left = find(&joined[..middle], "starts with text that is not a token")?;
            let right = find(&joined[middle..], "ends with text that is not a token")?;
            let id = find(&joined, "joins into text that is not a token")?;
            merges.entry((left, right)).or_insert((index as u32, id));
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
    pub(super) fn encode(
        &self,
        vocab: &Vocab,
        unk: Option<u32>,
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
        match &self.bytes {
            Some(table) => {
                for (start, &byte) in word.as_bytes().iter().enumerate() {
                    merger.push(start, 1, table[byte as usize]);
                }
            }
            None => {
                for (start, c) in word.char_indices() {
                    let len = c.len_utf8();
                    let id = vocab.find(&word.as_bytes()[start..start + len]);
                    merger.push(start, len, id.unwrap_or(NONE));
                }
            }
        }
        merger.run(self, vocab, word.as_bytes());
        merger.emit(vocab, unk, word.as_bytes(), ids)
    }
}

impl MergeRule for Bpe {
    fn join(&self, _: &Vocab, _: &[u8], left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
        self.merges.get(&(left.id, right.id)).copied()
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
