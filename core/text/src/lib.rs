//! Text in, token ids out, and back: tokenizers and chat templates.
//!
//! Nothing here knows a tensor or a file. A [`Tokenizer`] is built from the plain
//! [`TokenizerParts`] that a GGUF file carries in its metadata, or from the bytes of
//! `tokenizer.json`; a [`ChatTemplate`] from its Jinja text. Both treat their
//! input as hostile: time and memory are bounded, and what cannot be done exactly is an error.

mod chat;
mod error;
mod tokenizer;

pub use chat::{
    ChatTemplate, Content, ContentPart, LocalTime, Message, NamedTemplate, RenderOptions,
    default_template, named_template, named_templates,
};
pub use error::TextError;
pub use tokenizer::{
    DecodeOptions, EncodeOptions, StreamDecoder, StringTable, TokenKind, Tokenizer, TokenizerParts,
    chat_template_of_config,
};
