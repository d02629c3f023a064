//! Text in, token ids out, and back: tokenizers and chat templates.
//!
//! Nothing here knows a tensor or a file. A [`Tokenizer`] is built from the plain
//! [`TokenizerParts`] that a GGUF file carries in its metadata, or from the bytes of
//! `tokenizer.json`; a chat template from its Jinja text. Both treat their
//! input as hostile: time and memory are bounded, and what cannot be done exactly is an error.

mod error;
mod tokenizer;

pub use error::TextError;
pub use tokenizer::{
    DecodeOptions, EncodeOptions, StreamDecoder, StringTable, TokenKind, Tokenizer, TokenizerParts,
};
