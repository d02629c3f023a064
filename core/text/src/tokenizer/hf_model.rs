//! The `model` section of `tokenizer.json`: vocabulary and merges, read without copying text.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// What the section says.
#[derive(Deserialize)]
pub(super) struct Model<'a> {
    /// `BPE`, `Unigram`…; old files leave it out.
    #[serde(rename = "type", default)]
    pub(super) kind: Option<String>,
    #[serde(borrow)]
    pub(super) vocab: Vocabulary<'a>,
    #[serde(default, borrow)]
    pub(super) merges: Vec<Merge<'a>>,
    #[serde(default)]
    pub(super) unk_token: Option<String>,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    dropout: Option<f32>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

impl Model<'_> {
    /// True if it is BPE without the extras that no known language model uses.
    pub(super) fn is_plain_bpe(&self) -> bool {
        let empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        let is_bpe = match self.kind.as_deref() {
            Some(kind) => kind == "BPE",
            None => !self.merges.is_empty(),
        };
        is_bpe
            && self.dropout.unwrap_or(0.0) == 0.0
            && empty(&self.continuing_subword_prefix)
            && empty(&self.end_of_word_suffix)
    }
}

/// `{"text": id, …}`, or `[["text", score], …]` in the order of ids.
pub(super) struct Vocabulary<'a>(Vec<(Text<'a>, u32)>);

impl Vocabulary<'_> {
    /// Text and id of each token.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(text, id)| (text.0.as_ref(), *id))
    }
}

/// A string, borrowed from the file where it has no escapes.
struct Text<'a>(Cow<'a, str>);

/// `"left right"` or `["left", "right"]`.
pub(super) struct Merge<'a> {
    left: Text<'a>,
    /// `None`: `left` holds both.
    right: Option<Text<'a>>,
}

impl Merge<'_> {
    /// Left and right part.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        let left = &self.left.0;
        let (left, right) = match &self.right {
            Some(right) => (left.as_ref(), right.0.as_ref()),
            None => left.split_once(' ').unwrap_or((left, "")),
        };
        (left.as_bytes(), right.as_bytes())
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(text.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(text.to_owned().into()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(Text(text.into()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from token to id, or a list of tokens with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Vocabulary(entries))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((text, _)) = seq.next_element::<(Text<'de>, f64)>()? {
                    entries.push((text, entries.len() as u32));
                }
                Ok(Vocabulary(entries))
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Merge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two tokens")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                let left = TextVisitor.visit_borrowed_str(text)?;
                Ok(Merge { left, right: None })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let left = TextVisitor.visit_str(text)?;
                Ok(Merge { left, right: None })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let missing = || A::Error::custom("a merge has two tokens");
                let left = seq.next_element()?.ok_or_else(missing)?;
                let right = Some(seq.next_element()?.ok_or_else(missing)?);
                Ok(Merge { left, right })
            }
        }
        deserializer.deserialize_any(Parts)
    }
}
