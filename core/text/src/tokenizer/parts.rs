//! What a model file says about its tokenizer, as plain data.

use super::StringTable;

/// The tokenizer section of a model file. Field names follow the GGUF keys
/// `tokenizer.ggml.*`; `None` means that the file does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenizerParts {
    /// Kind of tokenizer: `gpt2` (byte-level BPE), `llama` (SentencePiece merges by score) or
    /// `gemma4` (BPE over characters with byte fallback).
    pub model: String,
    /// Name of the rule that cuts text into words (byte-level BPE only).
    pub pre: Option<String>,
    /// The model's architecture: some families have rules that the file does not tell.
    pub architecture: Option<String>,
    /// Text of each token, in the file's own spelling.
    pub tokens: StringTable,
    /// Merge priority of each token (`llama` only): higher merges first.
    pub scores: Option<Vec<f32>>,
    /// Kind of each token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// `left right` pairs, most important first (`gpt2`, `gemma4`).
    pub merges: Option<StringTable>,
    /// Beginning of text.
    pub bos: Option<u32>,
    /// End of text.
    pub eos: Option<u32>,
    /// End of a turn in a chat.
    pub eot: Option<u32>,
    /// End of a message that continues with a tool call.
    pub eom: Option<u32>,
    /// Stands for text that the vocabulary cannot express.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Whether a prompt starts with `bos`.
    pub add_bos: Option<bool>,
    /// Whether a prompt ends with `eos`.
    pub add_eos: Option<bool>,
    /// Whether text is tokenized as if it started with a space (`llama` only).
    pub add_space_prefix: Option<bool>,
}
