//! Tokenizers: text to token ids and back.
//!
//! `parts` is what a model file tells; `vocab` holds the tokens; `special` finds the tokens
//! that are matched before anything else; `split` cuts text into words
//! by the rules in `words`; `merge` is the one
//! merge loop, driven by `bpe` (ranked merges) or `spm` (scores); `model` joins them; `stream`
//! decodes token by token. `hf`, `hf_model` and `hf_steps` read `tokenizer.json`, with `foreign`
//! for what only the `tokenizers` crate can do, within `foreign_limits`.

mod bpe;
mod byte_map;
mod foreign;
mod foreign_limits;
mod hf;
mod hf_model;
mod hf_steps;
mod merge;
mod model;
mod parts;
mod special;
mod split;
mod spm;
mod stream;
mod strings;
mod unicode;
mod vocab;
mod words;

pub use hf::chat_template_of_config;
pub use model::{DecodeOptions, EncodeOptions, Tokenizer};
pub use parts::TokenizerParts;
pub use stream::StreamDecoder;
pub use strings::StringTable;
pub use vocab::TokenKind;
