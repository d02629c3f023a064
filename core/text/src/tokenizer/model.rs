//! The tokenizer: all parts joined.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::TokenizerParts;
use super::bpe::{self, Bpe};
use super::foreign::Foreign;
use super::merge::{Merger, Unknown};
use super::special::{Fragment, SpecialTokens, Strip};
use super::split::{self, Stage};
use super::spm::Spm;
use super::vocab::{SPACE_MARK, Spelling, TokenKind, Vocab};
use super::words;
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
    ends: Ends,
    space_prefix: SpacePrefix,
    unknown: Unknown,
    /// Tokens that end generation, in rising order.
    end_of_generation: Vec<u32>,
}

/// How text between literal tokens becomes ids.
#[derive(Clone, Debug)]
pub(super) enum Encoder {
    /// Byte-level BPE inside words.
    ByteBpe {
        bpe: Bpe,
        stages: Cow<'static, [Stage]>,
        /// Text is brought to Unicode normal form C first.
        nfc: bool,
    },
    /// SentencePiece merges over the whole text.
    Spm(Spm),
    /// BPE over the characters of the whole text, with U+2581 for a space.
    CharBpe(Bpe),
    /// A pipeline that the `tokenizers` crate runs.
    Foreign(Foreign),
}

/// The tokens around a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) eot: Option<u32>,
    pub(super) eom: Option<u32>,
    pub(super) pad: Option<u32>,
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
}

/// Where encoding puts a space that is not in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpacePrefix {
    Never,
    /// Before each stretch of text between special tokens.
    EachText,
    /// The same, unless the text starts with a space.
    EachTextUnlessThere,
    /// Before a prompt that starts with text, unless that starts with a space.
    StartUnlessThere,
}

/// What a tokenizer is made of, however its file spells it.
pub(super) struct Assembly<S> {
    pub(super) vocab: Vocab,
    pub(super) encoder: Encoder,
    pub(super) ends: Ends,
    pub(super) unknown: Unknown,
    pub(super) space_prefix: SpacePrefix,
    /// What white space around each special token belongs to it.
    pub(super) strip: S,
}

impl Tokenizer {
    /// Builds a tokenizer from what a model file says.
    ///
    /// # Errors
    /// If the kind of tokenizer or its pre-tokenizer is unknown, a needed list is missing or
    /// has the wrong length, or an id is outside the vocabulary.
    pub fn from_parts(parts: TokenizerParts) -> Result<Self, TextError> {
        let spelling = match parts.model.as_str() {
            "gpt2" => Spelling::ByteLevel,
            "llama" | "gemma4" => Spelling::EscapedSpace,
            _ => {
                return Err(TextError::UnknownTokenizerModel {
                    model: parts.model,
                    known: MODELS.into(),
                });
            }
        };
        let vocab = Vocab::new(&parts.tokens, parts.token_types.as_deref(), spelling)?;
        let bpe = |ignore_merges| {
            let rules = parts.merges.as_ref().ok_or(TextError::BadLength {
                what: "merges",
                expected: 1,
                found: 0,
            })?;
            let pairs = rules.iter().enumerate().map(bpe::split_rule);
            Bpe::new(pairs, &vocab, spelling, ignore_merges)
        };
        let (encoder, add_bos) = match parts.model.as_str() {
            "gpt2" => {
                let name = parts.pre.as_deref().unwrap_or("default");
                let pre = words::by_name(name).ok_or_else(|| TextError::UnknownPreTokenizer {
                    pre: name.into(),
                    known: words::names().collect::<Vec<_>>().join(", "),
                })?;
                let encoder = Encoder::ByteBpe {
                    bpe: bpe(pre.ignore_merges)?,
                    stages: pre.stages.into(),
                    nfc: pre.nfc,
                };
                (encoder, pre.add_bos)
            }
            "llama" => {
                let scores = parts.scores.as_deref().unwrap_or_default();
                (Encoder::Spm(Spm::new(scores, &vocab)?), true)
            }
            _ => (Encoder::CharBpe(bpe(false)?), true),
        };
        let is_spm = matches!(encoder, Encoder::Spm(_));
        let strips = is_spm && parts.architecture.as_deref() == Some("phi3");
        Self::assemble(Assembly {
            ends: Ends {
                bos: parts.bos.or(is_spm.then_some(1)),
                eos: parts.eos.or(is_spm.then_some(2)),
                eot: parts.eot,
                eom: parts.eom,
                pad: parts.pad,
                add_bos: parts.add_bos.unwrap_or(add_bos),
                add_eos: parts.add_eos.unwrap_or(false),
            },
            unknown: Unknown {
                id: parts.unk.or(is_spm.then_some(0)),
                fuse: false,
            },
            space_prefix: match parts.add_space_prefix.unwrap_or(is_spm) {
                true => SpacePrefix::EachText,
                false => SpacePrefix::Never,
            },
            strip: |_: u32, token: &[u8]| Strip {
                left: false,
                right: strips && phi3_strips_right(token),
            },
            vocab,
            encoder,
        })
    }

    /// Joins the parts after checking the ids in them.
    pub(super) fn assemble<S>(parts: Assembly<S>) -> Result<Self, TextError>
    where
        S: Fn(u32, &[u8]) -> Strip,
    {
        let mut vocab = parts.vocab;
        let mut ends = parts.ends;
        let named = [
            ("bos", ends.bos),
            ("eos", ends.eos),
            ("eot", ends.eot),
            ("eom", ends.eom),
            ("pad", ends.pad),
            ("unk", parts.unknown.id),
        ];
        for (what, id) in named {
            if let Some(id) = id
                && id as usize >= vocab.len()
            {
                return Err(TextError::IdOutOfRange {
                    what,
                    found: id.into(),
                    vocab_size: vocab.len(),
                });
            }
        }
        ends.add_bos &= ends.bos.is_some();
        ends.add_eos &= ends.eos.is_some();
        let end_of_generation = end_of_generation(&mut vocab, [ends.eos, ends.eot, ends.eom]);
        let special = SpecialTokens::new(&vocab, |id| (parts.strip)(id, vocab.token_bytes(id)))?;
        Ok(Self {
            special,
            encoder: parts.encoder,
            ends,
            space_prefix: parts.space_prefix,
            unknown: parts.unknown,
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
        if options.add_special && self.ends.add_bos {
            ids.extend(self.ends.bos);
        }
        let mut merger = Merger::default();
        for (i, fragment) in self
            .special
            .split(text, options.parse_special)
            .into_iter()
            .enumerate()
        {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => self.encode_text(text, i == 0, &mut merger, &mut ids)?,
            }
        }
        if options.add_special && self.ends.add_eos {
            ids.extend(self.ends.eos);
        }
        Ok(ids)
    }

    /// Token ids of a rendered chat prompt: special tokens are parsed, and the beginning token
    /// is added only if the template has not written it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, prompt: &str) -> Result<Vec<u32>, TextError> {
        let options = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        let mut ids = self.encode(prompt, options)?;
        if let Some(bos) = self.ends.bos
            && self.ends.add_bos
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// Encodes text without literal tokens in it. `at_start`: nothing comes before it.
    fn encode_text(
        &self,
        text: &str,
        at_start: bool,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let (vocab, unknown) = (&self.vocab, self.unknown);
        match &self.encoder {
            Encoder::ByteBpe { bpe, stages, nfc } => {
                let normal: String;
                let text = if *nfc && is_nfc_quick(text.chars()) != IsNormalized::Yes {
                    normal = text.nfc().collect();
                    &normal
                } else {
                    text
                };
                split::split(stages, text, &mut |word| {
                    bpe.encode(vocab, unknown, word, merger, ids)
                })
            }
            Encoder::Spm(spm) => {
                let text = self.unescape(text, at_start);
                spm.encode(vocab, unknown, &text, merger, ids)
            }
            Encoder::CharBpe(bpe) => {
                let text = self.unescape(text, at_start);
                bpe.encode(vocab, unknown, &text, merger, ids)
            }
            Encoder::Foreign(pipeline) => pipeline.encode(text, ids),
        }
    }

    /// Text as SentencePiece sees it: a space before it if the model wants one, and U+2581 no
    /// different from a space.
    fn unescape(&self, text: &str, at_start: bool) -> String {
        let starts_with_space = text.starts_with([' ', '\u{2581}']);
        let add_space = match self.space_prefix {
            SpacePrefix::Never => false,
            SpacePrefix::EachText => true,
            SpacePrefix::EachTextUnlessThere => !starts_with_space,
            SpacePrefix::StartUnlessThere => at_start && !starts_with_space,
        };
        let mut out = String::with_capacity(text.len() + 1);
        if add_space {
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
        let is_prefixed = self.space_prefix != SpacePrefix::Never && kind == TokenKind::Normal;
        if std::mem::take(at_start) && is_prefixed {
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
        self.ends.bos
    }

    /// End of text.
    pub fn eos(&self) -> Option<u32> {
        self.ends.eos
    }

    /// Stands for text that the vocabulary cannot express.
    pub fn unk(&self) -> Option<u32> {
        self.unknown.id
    }

    /// Padding.
    pub fn pad(&self) -> Option<u32> {
        self.ends.pad
    }

    /// Whether a prompt starts with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.ends.add_bos
    }

    /// Whether a prompt ends with [`Tokenizer::eos`].
    pub fn adds_eos(&self) -> bool {
        self.ends.add_eos
    }
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
