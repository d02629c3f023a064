//! Reads `tokenizer.json` of a model folder.
//!
//! Its pipeline of steps becomes the same tokenizer that a GGUF file would give. A pipeline that
//! has no exact equal here is left to the `tokenizers` crate (see `foreign`).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::bpe::Bpe;
use super::foreign::Foreign;
use super::hf_model::Model;
use super::hf_steps::{Pipeline, Steps};
use super::merge::Unknown;
use super::model::{Assembly, Encoder, Ends, SpacePrefix};
use super::special::Strip;
use super::vocab::{Spelling, Vocab, parse_byte_token};
use super::{StringTable, Tokenizer};
use crate::TextError;

const FILE: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";

/// `tokenizer.json`.
#[derive(Deserialize)]
struct File<'a> {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(borrow)]
    model: Model<'a>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    special: bool,
}

/// `tokenizer_config.json`, as far as `tokenizer.json` does not say the same.
#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    bos_token: Option<TokenText>,
    #[serde(default)]
    eos_token: Option<TokenText>,
    #[serde(default)]
    unk_token: Option<TokenText>,
    #[serde(default)]
    pad_token: Option<TokenText>,
    #[serde(default)]
    add_bos_token: Option<bool>,
    #[serde(default)]
    add_eos_token: Option<bool>,
    #[serde(default)]
    chat_template: Option<Value>,
}

/// A token's text, alone or with its properties.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenText {
    Text(String),
    Properties { content: String },
}

impl TokenText {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Properties { content: text } => text,
        }
    }
}

fn bad(file: &'static str, reason: impl ToString) -> TextError {
    TextError::BadTokenizerFile {
        file,
        reason: reason.to_string(),
    }
}

fn read_config(bytes: Option<&[u8]>) -> Result<Config, TextError> {
    bytes.map_or(Ok(Config::default()), |bytes| {
        serde_json::from_slice(bytes).map_err(|e| bad(CONFIG, e))
    })
}

/// The chat template in `tokenizer_config.json`. Where there are several, the one for ordinary
/// chats, which is named `default`.
///
/// # Errors
/// If the file is no valid JSON.
pub fn chat_template_of_config(tokenizer_config: &[u8]) -> Result<Option<String>, TextError> {
    Ok(match read_config(Some(tokenizer_config))?.chat_template {
        Some(Value::String(template)) => Some(template),
        Some(Value::Array(named)) => named
            .iter()
            .find(|t| t["name"] == "default")
            .and_then(|t| t["template"].as_str())
            .map(String::from),
        _ => None,
    })
}

impl Tokenizer {
    /// Builds a tokenizer from the bytes of `tokenizer.json` and, if there is one,
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// If a file is no valid JSON, or asks for what can be done neither here nor by the
    /// `tokenizers` crate.
    pub fn from_json(
        tokenizer_json: &[u8],
        tokenizer_config: Option<&[u8]>,
    ) -> Result<Self, TextError> {
        let file: File<'_> = serde_json::from_slice(tokenizer_json).map_err(|e| bad(FILE, e))?;
        let steps = Steps {
            normalizer: &file.normalizer,
            pre_tokenizer: &file.pre_tokenizer,
            post_processor: &file.post_processor,
            decoder: &file.decoder,
        };
        let config = read_config(tokenizer_config)?;
        let pipeline = steps.recognise(&file.model);
        let spelling = match &pipeline {
            Some(Pipeline::Words { .. }) => Spelling::ByteLevel,
            Some(Pipeline::Characters { .. }) => Spelling::EscapedSpace,
            None => steps.spelling().ok_or_else(|| {
                bad(
                    FILE,
                    "its `decoder` is neither ByteLevel nor one that restores spaces",
                )
            })?,
        };
        let vocab = vocabulary(&file, spelling)?;
        let find = |text: &str| vocab.find_any(text.as_bytes());
        let token = |text: &Option<TokenText>| text.as_ref().and_then(|t| find(t.text()));

        let around = steps.around().map_err(|reason| bad(FILE, reason))?;
        let named = |text: &Option<String>| match text {
            Some(text) => find(text).map(Some).ok_or_else(|| {
                bad(
                    FILE,
                    format!("`post_processor` names `{text}`, which is no token"),
                )
            }),
            None => Ok(None),
        };
        let (before, after) = match &around {
            Some(around) => (named(&around.before)?, named(&around.after)?),
            None => (None, None),
        };
        let ends = Ends {
            bos: before.or_else(|| token(&config.bos_token)),
            eos: after.or_else(|| token(&config.eos_token)),
            pad: token(&config.pad_token),
            add_bos: match around {
                Some(_) => before.is_some(),
                None => config.add_bos_token == Some(true),
            },
            add_eos: match around {
                Some(_) => after.is_some(),
                None => config.add_eos_token == Some(true),
            },
            ..Ends::default()
        };
        let unknown = Unknown {
            id: match &file.model.unk_token {
                Some(text) => find(text),
                None => token(&config.unk_token),
            },
            fuse: file.model.fuse_unk,
        };
        let mut space_prefix = SpacePrefix::Never;
        let merges = || {
            let pairs = file.model.merges.iter().map(|pair| Ok(pair.parts()));
            Bpe::new(pairs, &vocab, spelling, file.model.ignore_merges)
        };
        let encoder = match pipeline {
            Some(Pipeline::Words { stages, nfc }) => Encoder::ByteBpe {
                bpe: merges()?,
                stages: stages.into(),
                nfc,
            },
            Some(Pipeline::Characters {
                space_prefix: prefix,
            }) => {
                space_prefix = prefix;
                Encoder::CharBpe(merges()?)
            }
            None => {
                let value = serde_json::from_slice(tokenizer_json).map_err(|e| bad(FILE, e))?;
                if steps.prefixes_space() {
                    space_prefix = SpacePrefix::EachText;
                }
                Encoder::Foreign(Foreign::new(value).map_err(|reason| bad(FILE, reason))?)
            }
        };
        let strips: HashMap<u32, Strip> = file
            .added_tokens
            .iter()
            .map(|t| {
                let strip = Strip {
                    left: t.lstrip,
                    right: t.rstrip,
                };
                (t.id, strip)
            })
            .collect();
        Self::assemble(Assembly {
            vocab,
            encoder,
            ends,
            unknown,
            space_prefix,
            strip: |id: u32, _: &[u8]| strips.get(&id).copied().unwrap_or_default(),
        })
    }
}

/// All tokens in the order of their ids.
fn vocabulary(file: &File<'_>, spelling: Spelling) -> Result<Vocab, TextError> {
    if let Some(token) = file.added_tokens.iter().find(|t| t.single_word) {
        let reason = format!(
            "token `{}` is `single_word`, which is not supported",
            token.content
        );
        return Err(bad(FILE, reason));
    }
    let entries = || {
        let model = file.model.vocab.iter().map(|(text, id)| (text, id, None));
        let added = file
            .added_tokens
            .iter()
            .map(|t| (t.content.as_str(), t.id, Some(t.special)));
        model.chain(added)
    };
    let count = entries().count();
    let n = entries()
        .map(|(_, id, _)| id as usize + 1)
        .max()
        .unwrap_or(0);
    // Files leave few ids unused; a huge one is an error, not a huge table.
    if n > 2 * count + 1024 {
        return Err(bad(
            FILE,
            format!("token id {} with only {count} tokens", n - 1),
        ));
    }
    const NORMAL: i32 = 1;
    const UNKNOWN: i32 = 2;
    const CONTROL: i32 = 3;
    const USER_DEFINED: i32 = 4;
    const UNUSED: i32 = 5;
    const BYTE: i32 = 6;
    let mut texts = vec![""; n];
    let mut types = vec![UNUSED; n];
    for (text, id, special) in entries() {
        texts[id as usize] = text;
        types[id as usize] = match special {
            _ if Some(text) == file.model.unk_token.as_deref() => UNKNOWN,
            Some(true) => CONTROL,
            Some(false) => USER_DEFINED,
            None if spelling == Spelling::EscapedSpace
                && parse_byte_token(text.as_bytes()).is_some() =>
            {
                BYTE
            }
            None => NORMAL,
        };
    }
    let tokens: StringTable = texts.iter().collect();
    Vocab::new(&tokens, Some(&types), spelling)
}
