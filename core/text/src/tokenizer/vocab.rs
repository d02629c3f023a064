//! The vocabulary: bytes of each token, and the token of given bytes.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{StringTable, byte_map};
use crate::TextError;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Ordinary text, found by merging.
    Normal,
    /// Stands for text that the vocabulary cannot express.
    Unknown,
    /// Steers the model (turn markers, end of text): matched in text only if asked.
    Control,
    /// Literal text that is matched before anything is merged.
    UserDefined,
    /// Never produced.
    Unused,
    /// One byte, for characters that have no token.
    Byte,
}

impl TokenKind {
    /// From `tokenizer.ggml.token_type`; unknown numbers count as normal.
    fn from_gguf(number: i32) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    /// True for tokens whose text is written as it is, not in the file's alphabet.
    fn is_literal(self) -> bool {
        matches!(self, Self::Unknown | Self::Control | Self::UserDefined)
    }
}

/// How a file spells the text of normal tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// One character for each byte (see [`byte_map`]).
    ByteLevel,
    /// As it is, with U+2581 for a space.
    EscapedSpace,
}

/// The character that stands for a space in SentencePiece vocabularies.
pub(super) const SPACE_MARK: &str = "\u{2581}";

const NO_TOKEN: u32 = u32::MAX;

/// Tokens by id and by text.
#[derive(Clone, Debug)]
pub(super) struct Vocab {
    /// What each token decodes to.
    bytes: StringTable,
    kinds: Vec<TokenKind>,
    by_bytes: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Token of kind [`TokenKind::Byte`] for each byte value.
    byte_tokens: [u32; 256],
    longest_bytes: usize,
}

impl Vocab {
    /// Decodes the spelling of `tokens` and indexes them.
    pub(super) fn new(
        tokens: &StringTable,
        token_types: Option<&[i32]>,
        spelling: Spelling,
    ) -> Result<Self, TextError> {
        let n = tokens.len();
        if n == 0 || n >= NO_TOKEN as usize {
            return Err(TextError::BadLength {
                what: "tokens",
                expected: 1,
                found: n,
            });
        }
        if let Some(types) = token_types
            && types.len() != n
        {
            return Err(TextError::BadLength {
                what: "token types",
                expected: n,
                found: types.len(),
            });
        }
        let mut vocab = Self {
            bytes: StringTable::with_capacity(n, tokens.total_bytes()),
            kinds: match token_types {
                Some(types) => types.iter().map(|&t| TokenKind::from_gguf(t)).collect(),
                None => vec![TokenKind::Normal; n],
            },
            by_bytes: HashTable::with_capacity(n),
            hasher: DefaultHashBuilder::default(),
            byte_tokens: [NO_TOKEN; 256],
            longest_bytes: 0,
        };
        let mut scratch = Vec::new();
        for (id, text) in tokens.iter().enumerate() {
            scratch.clear();
            let kind = &mut vocab.kinds[id];
            if spelling == Spelling::EscapedSpace && *kind == TokenKind::Byte {
                match parse_byte_token(text) {
                    Some(byte) => {
                        vocab.byte_tokens[byte as usize] = id as u32;
                        scratch.push(byte);
                    }
                    None => *kind = TokenKind::Normal,
                }
            }
            match (spelling, *kind) {
                (Spelling::EscapedSpace, TokenKind::Byte) => {}
                (_, kind) if kind.is_literal() => scratch.extend_from_slice(text),
                (Spelling::ByteLevel, _) => {
                    if !byte_map::decode_into(text, &mut scratch) {
                        scratch.extend_from_slice(text);
                    }
                }
                (Spelling::EscapedSpace, _) => unescape_into(text, &mut scratch),
            }
            vocab.longest_bytes = vocab.longest_bytes.max(scratch.len());
            vocab.bytes.push(&scratch);
        }
        // A literal token may spell the same bytes as a normal one (runs of spaces often do);
        // merging must find the normal one.
        for id in 0..n as u32 {
            let kind = vocab.kinds[id as usize];
            if !kind.is_literal() && kind != TokenKind::Byte {
                vocab.index(id);
            }
        }
        for id in 0..n as u32 {
            let kind = vocab.kinds[id as usize];
            let hidden =
                spelling == Spelling::EscapedSpace && vocab.token_bytes(id).contains(&b' ');
            if kind.is_literal() && !hidden {
                vocab.index(id);
            }
        }
        Ok(vocab)
    }

    fn index(&mut self, id: u32) {
        let bytes = self.bytes.get(id as usize).unwrap_or_default();
        if bytes.is_empty() {
            return;
        }
        let table = &self.bytes;
        let hasher = &self.hasher;
        self.by_bytes
            .entry(
                hasher.hash_one(bytes),
                |&other| table.get(other as usize) == Some(bytes),
                |&other| hasher.hash_one(table.get(other as usize).unwrap_or_default()),
            )
            .or_insert(id);
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// What a token decodes to; nothing if there is no such token.
    pub(super) fn token_bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).unwrap_or_default()
    }

    /// What a token is for.
    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Changes what a token is for. Its bytes stay.
    pub(super) fn set_kind(&mut self, id: u32, kind: TokenKind) {
        if let Some(k) = self.kinds.get_mut(id as usize) {
            *k = kind;
        }
    }

    /// The token that ordinary text `bytes` may become. Control and unknown tokens are never
    /// found: text must not turn into them unless special tokens are parsed.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<u32> {
        let id = self.find_any(bytes)?;
        let kind = self.kinds[id as usize];
        (!matches!(kind, TokenKind::Control | TokenKind::Unknown)).then_some(id)
    }

    /// The token that decodes to exactly `bytes`, whatever it is for. Tokens of kind
    /// [`TokenKind::Byte`] are not found by their byte (see [`Vocab::byte_token`]).
    pub(super) fn find_any(&self, bytes: &[u8]) -> Option<u32> {
        if bytes.len() > self.longest_bytes {
            return None;
        }
        self.by_bytes
            .find(self.hasher.hash_one(bytes), |&id| {
                self.token_bytes(id) == bytes
            })
            .copied()
    }

    /// The token of kind [`TokenKind::Byte`] for `byte`.
    pub(super) fn byte_token(&self, byte: u8) -> Option<u32> {
        match self.byte_tokens[byte as usize] {
            NO_TOKEN => None,
            id => Some(id),
        }
    }
}

/// The byte in `<0xAB>`.
pub(super) fn parse_byte_token(text: &[u8]) -> Option<u8> {
    let hex = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if hex.len() != 2 || !hex.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// Appends `text` with each [`SPACE_MARK`] turned into a space.
pub(super) fn unescape_into(text: &[u8], out: &mut Vec<u8>) {
    let mark = SPACE_MARK.as_bytes();
    let mut i = 0;
    while i < text.len() {
        if text[i..].starts_with(mark) {
            out.push(b' ');
            i += mark.len();
        } else {
            out.push(text[i]);
            i += 1;
        }
    }
}
