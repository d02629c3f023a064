//! The tokenizer: all parts joined.

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::bpe::Bpe;
use super::merge::Merger;
use super::special::{Fragment, SpecialTokens, Strip};
use super::split::{self, PreTokenizer};
use super::spm::Spm;
use super::vocab::{SPACE_MARK, Spelling, TokenKind, Vocab};
use super::{StringTable, TokenizerParts};
use crate::TextError;

/// Longest text that is tokenized at once, in bytes: positions fit 32 bits.
const LONGEST_TEXT: usize = u32::MAX as usize / 2;

/// The kinds of tokenizer, by the name that files give them.
const MODELS: &str = "gpt2, llama, gemma4";

/// How to encode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add the beginning and end tokens that the model wants around a prompt.
    pub add_special: bool,
    /// Turn the text of control tokens into these tokens. Only for text that is trusted to
    /// steer the model, as a rendered chat prompt is.
    pub parse_special: bool,
}

/// How to decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Leave control and unknown tokens out.
    pub skip_special: bool,
    /// The tokens are a whole text, not the continuation of one: the space that encoding put
    /// before the text is taken away again.
    pub whole_text: bool,
}

/// Turns text into token ids and back.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    encoder: Encoder,
    bos: Option<u32>,
    eos: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Text is encoded as if a space stood before it.
    add_space_prefix: bool,
    /// Tokens that end generation, in rising order.
    end_of_generation: Vec<u32>,
}

/// How text between literal tokens becomes ids.
#[derive(Clone, Debug)]
enum Encoder {
    /// Byte-level BPE inside words.
    ByteBpe { bpe: Bpe, pre: PreTokenizer },
    /// SentencePiece merges over the whole text.
    Spm(Spm),
    /// BPE over the characters of each line.
    CharBpe(Bpe),
}

impl Tokenizer {
    /// Builds a tokenizer from what a model file says.
    ///
    /// # Errors
    /// If the kind of tokenizer or its pre-tokenizer is unknown, a needed list is missing or
    /// has the wrong length, or an id is outside the vocabulary.
    pub fn from_parts(parts: TokenizerParts) -> Result<Self, TextError> {
        match parts.model.as_str() {
            "gpt2" => {
                let name = parts.pre.as_deref().unwrap_or("default");
                let pre = split::by_name(name).ok_or_else(|| TextError::UnknownPreTokenizer {
                    pre: name.into(),
                    known: split::names().collect::<Vec<_>>().join(", "),
                })?;
                let vocab = new_vocab(&parts, Spelling::ByteLevel)?;
                let bpe = Bpe::new(
                    merges(&parts)?,
                    &vocab,
                    Spelling::ByteLevel,
                    pre.ignore_merges,
                )?;
                let encoder = Encoder::ByteBpe { bpe, pre };
                Self::assemble(parts, vocab, encoder, pre.add_bos, false)
            }
            "llama" => {
                let vocab = new_vocab(&parts, Spelling::EscapedSpace)?;
                let scores = parts.scores.as_deref().unwrap_or_default();
                let encoder = Encoder::Spm(Spm::new(scores, &vocab)?);
                Self::assemble(parts, vocab, encoder, true, true)
            }
            "gemma4" => {
                let vocab = new_vocab(&parts, Spelling::EscapedSpace)?;
                let bpe = Bpe::new(merges(&parts)?, &vocab, Spelling::EscapedSpace, false)?;
                Self::assemble(parts, vocab, Encoder::CharBpe(bpe), true, false)
            }
            _ => Err(TextError::UnknownTokenizerModel {
                model: parts.model,
                known: MODELS.into(),
            }),
        }
    }

    fn assemble(
        parts: TokenizerParts,
        mut vocab: Vocab,
        encoder: Encoder,
        add_bos: bool,
        add_space_prefix: bool,
    ) -> Result<Self, TextError> {
        let vocab_size = vocab.len();
        let check = |what, id: Option<u32>| match id {
            Some(id) if id as usize >= vocab_size => Err(TextError::IdOutOfRange {
                what,
                found: id.into(),
                vocab_size,
            }),
            id => Ok(id),
        };
        let is_spm = matches!(encoder, Encoder::Spm(_));
        let bos = check("bos", parts.bos.or(is_spm.then_some(1)))?;
        let eos = check("eos", parts.eos.or(is_spm.then_some(2)))?;
        let unk = check("unk", parts.unk.or(is_spm.then_some(0)))?;
        let pad = check("pad", parts.pad)?;
        let ends = [eos, check("eot", parts.eot)?, check("eom", parts.eom)?];
        let end_of_generation = end_of_generation(&mut vocab, ends);
        let strips_right = is_spm && parts.architecture.as_deref() == Some("phi3");
        let special = SpecialTokens::new(&vocab, |id| Strip {
            left: false,
            right: strips_right && phi3_strips_right(vocab.token_bytes(id)),
        })?;
        Ok(Self {
            special,
            encoder,
            bos,
            eos,
            unk,
            pad,
            add_bos: parts.add_bos.unwrap_or(add_bos) && bos.is_some(),
            add_eos: parts.add_eos.unwrap_or(false) && eos.is_some(),
            add_space_prefix: parts.add_space_prefix.unwrap_or(add_space_prefix),
            end_of_generation,
            vocab,
        })
    }

    /// Token ids of `text`.
    ///
    /// # Errors
    /// If the text is too long, or holds a character that the vocabulary cannot express.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TextError> {
        if text.len() > LONGEST_TEXT {
            return Err(TextError::TooLong {
                bytes: text.len(),
                limit: LONGEST_TEXT,
            });
        }
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special && self.add_bos {
            ids.extend(self.bos);
        }
        let mut merger = Merger::default();
        let mut after_special = true;
        for fragment in self.special.split(text, options.parse_special) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => {
                    self.encode_fragment(text, after_special, &mut merger, &mut ids)?;
                }
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if options.add_special && self.add_eos {
            ids.extend(self.eos);
        }
        Ok(ids)
    }

    /// Token ids of a rendered chat prompt: special tokens are parsed, and the beginning token
    /// is added only if the template has not written it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, prompt: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = self.encode(
            prompt,
            EncodeOptions {
                add_special: false,
                parse_special: true,
            },
        )?;
        if let Some(bos) = self.bos
            && self.add_bos
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn encode_fragment(
        &self,
        text: &str,
        after_special: bool,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        match &self.encoder {
            Encoder::ByteBpe { bpe, pre } => {
                let normal: String;
                let text = if pre.nfc && is_nfc_quick(text.chars()) != IsNormalized::Yes {
                    normal = text.nfc().collect();
                    &normal
                } else {
                    text
                };
                split::split(pre.stages, text, &mut |word| {
                    bpe.encode(&self.vocab, self.unk, word, merger, ids)
                })
            }
            Encoder::Spm(spm) => {
                let text = self.unescape(text, after_special);
                spm.encode(&self.vocab, self.unk, &text, merger, ids)
            }
            Encoder::CharBpe(bpe) => {
                let text = self.unescape(text, after_special);
                bpe.encode(&self.vocab, self.unk, &text, merger, ids)
            }
        }
    }

    /// Text as SentencePiece sees it: a space before it if the model wants one, and U+2581 no
    /// different from a space.
    fn unescape(&self, text: &str, after_special: bool) -> String {
        let mut out = String::with_capacity(text.len() + 1);
        if self.add_space_prefix && after_special {
            out.push(' ');
        }
        let mut parts = text.split(SPACE_MARK);
        out.extend(parts.next());
        for part in parts {
            out.push(' ');
            out.push_str(part);
        }
        out
    }

    /// The bytes that `ids` decode to. They need not be UTF-8: a token may hold a part of a
    /// character, and a model may produce such tokens in any order.
    ///
    /// # Errors
    /// If an id is outside the vocabulary.
    pub fn decode_bytes(&self, ids: &[u32], options: DecodeOptions) -> Result<Vec<u8>, TextError> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        let mut at_start = options.whole_text;
        for &id in ids {
            bytes.extend_from_slice(self.piece(id, options.skip_special, &mut at_start)?);
        }
        Ok(bytes)
    }

    /// The text that `ids` decode to, with U+FFFD for bytes that are no UTF-8.
    ///
    /// # Errors
    /// If an id is outside the vocabulary.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> Result<String, TextError> {
        let bytes = self.decode_bytes(ids, options)?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        })
    }

    /// What one token adds to a decoded text. `at_start` is true until the first text token of
    /// a whole text.
    pub(super) fn piece(
        &self,
        id: u32,
        skip_special: bool,
        at_start: &mut bool,
    ) -> Result<&[u8], TextError> {
        let kind = self.vocab.kind(id).ok_or(TextError::UnknownToken {
            id,
            vocab_size: self.vocab.len(),
        })?;
        let bytes = self.vocab.token_bytes(id);
        if matches!(kind, TokenKind::Control | TokenKind::Unknown) {
            return Ok(if skip_special { &[] } else { bytes });
        }
        if std::mem::take(at_start) && self.add_space_prefix && kind == TokenKind::Normal {
            return Ok(bytes.strip_prefix(b" ").unwrap_or(bytes));
        }
        Ok(bytes)
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// What a token decodes to, which need not be UTF-8; nothing for an id outside the
    /// vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocab.token_bytes(id)
    }

    /// What a token is for; `None` for an id outside the vocabulary.
    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// True for tokens that steer the model and are no part of a text.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kind(id) == Some(TokenKind::Control)
    }

    /// True for tokens after which generation stops: end of text, of a turn, of a message.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// The tokens after which generation stops, in rising order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// The token of this text, of any kind.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.find_any(text.as_bytes())
    }

    /// Beginning of text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End of text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Stands for text that the vocabulary cannot express.
    pub fn unk(&self) -> Option<u32> {
        self.unk
    }

    /// Padding.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// Whether a prompt starts with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether a prompt ends with [`Tokenizer::eos`].
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }
}

fn new_vocab(parts: &TokenizerParts, spelling: Spelling) -> Result<Vocab, TextError> {
    Vocab::new(&parts.tokens, parts.token_types.as_deref(), spelling)
}

fn merges(parts: &TokenizerParts) -> Result<&StringTable, TextError> {
    parts.merges.as_ref().ok_or(TextError::BadLength {
        what: "merges",
        expected: 1,
        found: 0,
    })
}

/// Texts of tokens that end a turn, a message or a text in the vocabularies of known families.
/// Files often name only one of several.
const END_NAMES: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|repo_name|>",
    "<|fim_repo|>",
    "<fim-repo>",
    "<reponame>",
    "<|file_sep|>",
];

/// Collects the tokens that end generation, and makes them control tokens: files mark some of
/// them wrongly.
fn end_of_generation(vocab: &mut Vocab, known: [Option<u32>; 3]) -> Vec<u32> {
    let mut ends: Vec<u32> = known.into_iter().flatten().collect();
    for name in END_NAMES {
        if let Some(id) = vocab.find_any(name.as_bytes()) {
            vocab.set_kind(id, TokenKind::Control);
            ends.push(id);
        }
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Phi-3's chat tokens swallow the white space after them; its file does not say so.
fn phi3_strips_right(token: &[u8]) -> bool {
    ![&b"<unk>"[..], b"<s>", b"<|endoftext|>"].contains(&token)
}
