//! The merge loop that both BPE and SentencePiece vocabularies use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocab::Vocab;
use crate::TextError;

/// No symbol, no token.
pub(super) const NONE: u32 = u32::MAX;

/// A stretch of the text that merging has not joined to its neighbours yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// First byte in the text.
    pub(super) start: u32,
    /// Length in bytes; 0 once merged into its left neighbour.
    pub(super) len: u32,
    /// The token it is, or [`NONE`] for text without one.
    pub(super) id: u32,
    prev: u32,
    next: u32,
}

/// A rule that says which neighbours may merge, and how urgent it is.
pub(super) trait MergeRule {
    /// Priority (lower merges first) and token of `left` joined to `right`.
    fn join(&self, vocab: &Vocab, text: &[u8], left: &Symbol, right: &Symbol)
    -> Option<(u32, u32)>;
}

/// A possible merge. Ordered by priority, then from left to right, as the reference
/// implementations of both algorithms do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    priority: u32,
    left: u32,
    /// Length of both together: a candidate whose symbols have changed since is stale.
    len: u32,
    id: u32,
}

/// Symbols of one text and the merges that are possible. Reused from word to word.
#[derive(Debug, Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Forgets the last text.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a symbol; symbols cover the text in order.
    pub(super) fn push(&mut self, start: usize, len: usize, id: u32) {
        let index = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = index;
        }
        self.symbols.push(Symbol {
            start: start as u32,
            len: len as u32,
            id,
            prev: index.checked_sub(1).unwrap_or(NONE),
            next: NONE,
        });
    }

    /// Merges until nothing more can be joined: O(n log n) in the number of symbols.
    pub(super) fn run(&mut self, rule: &impl MergeRule, vocab: &Vocab, text: &[u8]) {
        for i in 1..self.symbols.len() as u32 {
            self.consider(rule, vocab, text, i - 1, i);
        }
        while let Some(Reverse(best)) = self.queue.pop() {
            let left = self.symbols[best.left as usize];
            if left.len == 0 || left.next == NONE {
                continue;
            }
            let right = self.symbols[left.next as usize];
            if left.len + right.len != best.len {
                continue;
            }
            self.symbols[left.next as usize].len = 0;
            if right.next != NONE {
                self.symbols[right.next as usize].prev = best.left;
            }
            let merged = &mut self.symbols[best.left as usize];
            merged.len = best.len;
            merged.id = best.id;
            merged.next = right.next;
            self.consider(rule, vocab, text, left.prev, best.left);
            self.consider(rule, vocab, text, best.left, right.next);
        }
    }

    fn consider(
        &mut self,
        rule: &impl MergeRule,
        vocab: &Vocab,
        text: &[u8],
        left: u32,
        right: u32,
    ) {
        if left == NONE || right == NONE {
            return;
        }
        let (l, r) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((priority, id)) = rule.join(vocab, text, l, r) {
            self.queue.push(Reverse(Candidate {
                priority,
                left,
                len: l.len + r.len,
                id,
            }));
        }
    }

    /// The symbols that are left, in order.
    pub(super) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|s| s.len > 0)
    }

    /// Appends the tokens of the symbols that are left; text without a token becomes byte
    /// tokens or the unknown token.
    pub(super) fn emit(
        &self,
        vocab: &Vocab,
        unknown: Unknown,
        text: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let mut after_unknown = false;
        for symbol in self.symbols() {
            if symbol.id != NONE {
                ids.push(symbol.id);
                after_unknown = false;
                continue;
            }
            let bytes = &text[symbol.start as usize..][..symbol.len as usize];
            if bytes.iter().all(|&b| vocab.byte_token(b).is_some()) {
                ids.extend(bytes.iter().filter_map(|&b| vocab.byte_token(b)));
                after_unknown = false;
                continue;
            }
            let id = unknown.id.ok_or_else(|| TextError::Unencodable {
                text: String::from_utf8_lossy(bytes).into_owned(),
            })?;
            if !(after_unknown && unknown.fuse) {
                ids.push(id);
            }
            after_unknown = true;
        }
        Ok(())
    }
}

/// What stands for text that has neither a token nor byte tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unknown {
    /// The unknown token; without one such text is an error.
    pub(super) id: Option<u32>,
    /// Neighbouring characters share one unknown token.
    pub(super) fuse: bool,
}
