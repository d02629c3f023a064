//! The tokenizer section of a model file, as JSON; after a zero byte a text.
//!
//! Where `model` is a string, the fields are those of `TokenizerParts`; else the whole is a
//! `tokenizer.json`. Whatever it says, it is refused with an error, or every text is encoded
//! or refused, and every token decodes the same way alone, in a stream and together.

#![no_main]

use kvant_fuzz::{bounded, split_at_zero};
use kvant_text::{DecodeOptions, EncodeOptions, StreamDecoder, Tokenizer, TokenizerParts};
use libfuzzer_sys::fuzz_target;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Parts {
    model: String,
    pre: Option<String>,
    architecture: Option<String>,
    tokens: Vec<String>,
    scores: Option<Vec<f32>>,
    token_types: Option<Vec<i32>>,
    merges: Option<Vec<String>>,
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    unk: Option<u32>,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    add_space_prefix: Option<bool>,
}

fuzz_target!(|data: &[u8]| {
    let (file, text) = split_at_zero(data);
    let text = String::from_utf8_lossy(text);
    let tokenizer = match serde_json::from_slice::<Parts>(file) {
        Ok(parts) => {
            let parts = parts.into();
            bounded(data.len(), || Tokenizer::from_parts(parts))
        }
        Err(_) => bounded(data.len(), || Tokenizer::from_json(file, None)),
    };
    match tokenizer {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(tokenizer) => bounded(data.len(), || try_out(&tokenizer, &text)),
    }
});

impl From<Parts> for TokenizerParts {
    fn from(parts: Parts) -> Self {
        Self {
            model: parts.model,
            pre: parts.pre,
            architecture: parts.architecture,
            tokens: parts.tokens.iter().collect(),
            scores: parts.scores,
            token_types: parts.token_types,
            merges: parts.merges.map(|merges| merges.iter().collect()),
            bos: parts.bos,
            eos: parts.eos,
            eot: parts.eot,
            unk: parts.unk,
            add_bos: parts.add_bos,
            add_eos: parts.add_eos,
            add_space_prefix: parts.add_space_prefix,
            ..Self::default()
        }
    }
}

fn try_out(tokenizer: &Tokenizer, text: &str) {
    for (add_special, parse_special) in [(false, false), (true, true)] {
        let options = EncodeOptions {
            add_special,
            parse_special,
        };
        let Ok(ids) = tokenizer.encode(text, options) else {
            continue;
        };
        for whole_text in [false, true] {
            let options = DecodeOptions {
                skip_special: !parse_special,
                whole_text,
            };
            let mut decoder = StreamDecoder::new(options);
            let mut streamed = String::new();
            for &id in &ids {
                streamed += &decoder
                    .push(tokenizer, id)
                    .expect("encoding gives known tokens");
            }
            streamed += &decoder.finish();
            assert_eq!(tokenizer.decode(&ids, options), Ok(streamed));
        }
    }
}
