//! What can go wrong between text and tokens.

/// An error of a tokenizer or a chat template.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// `tokenizer.ggml.model` names a kind of tokenizer that is not built in.
    #[error("unknown tokenizer model `{model}`; known: {known}")]
    UnknownTokenizerModel {
        /// The name found.
        model: String,
        /// The names that work, separated by commas.
        known: String,
    },
    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not built in.
    #[error("unknown pre-tokenizer `{pre}`; known: {known}")]
    UnknownPreTokenizer {
        /// The name found.
        pre: String,
        /// The names that work, separated by commas.
        known: String,
    },
    /// A list that the tokenizer needs is missing or has the wrong length.
    #[error("tokenizer: {what}: expected {expected}, found {found}")]
    BadLength {
        /// Which list.
        what: &'static str,
        /// The length that would be right.
        expected: usize,
        /// The length found.
        found: usize,
    },
    /// A number in the tokenizer is out of range.
    #[error("tokenizer: {what} is {found}, which is outside the vocabulary of {vocab_size} tokens")]
    IdOutOfRange {
        /// What the number stands for.
        what: &'static str,
        /// The number.
        found: u64,
        /// Number of tokens.
        vocab_size: usize,
    },
    /// A token's score is not a finite number.
    #[error("tokenizer: the score of token {id} is not a finite number")]
    BadScore {
        /// The token.
        id: u32,
    },
    /// A merge rule does not join two known tokens into a third.
    #[error("tokenizer: merge {index} (`{merge}`) {reason}")]
    BadMerge {
        /// Position in the list of merges.
        index: usize,
        /// The rule as written, shortened.
        merge: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A special token is longer than any sane one: matching it would cost too much.
    #[error("tokenizer: special token {id} is {bytes} bytes long; at most {limit} are allowed")]
    SpecialTooLong {
        /// The token.
        id: u32,
        /// Its length in bytes.
        bytes: usize,
        /// The longest allowed, in bytes.
        limit: usize,
    },
    /// `tokenizer.json` cannot be read, or asks for something not built in.
    #[error("{file}: {reason}")]
    BadTokenizerFile {
        /// Which file.
        file: &'static str,
        /// What is wrong, with the place.
        reason: String,
    },
    /// The text holds a character that this vocabulary cannot express.
    #[error("the vocabulary has no token for {text:?} and no token for unknown text")]
    Unencodable {
        /// The piece of text.
        text: String,
    },
    /// The text is longer than a tokenizer may take at once.
    #[error("text of {bytes} bytes; at most {limit} can be tokenized at once")]
    TooLong {
        /// Length in bytes.
        bytes: usize,
        /// The longest allowed, in bytes.
        limit: usize,
    },
    /// Decoding met an id that is not in the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab_size} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Number of tokens.
        vocab_size: usize,
    },
    /// A chat template does not compile or its rendering failed.
    #[error("chat template of {origin}, line {line}: {reason}")]
    Template {
        /// Where the template comes from.
        origin: String,
        /// Line in the template, from 1; 0 where it is not known.
        line: usize,
        /// What went wrong.
        reason: String,
    },
    /// The template itself refused the messages by calling `raise_exception`.
    #[error("chat template of {origin} refuses these messages: {reason}")]
    TemplateRefused {
        /// Where the template comes from.
        origin: String,
        /// The template's own words.
        reason: String,
    },
    /// No template of that name is built in.
    #[error("unknown chat template `{name}`; known: {known}")]
    UnknownTemplate {
        /// The name asked for.
        name: String,
        /// The names that work, separated by commas.
        known: String,
    },
    /// The model brings no chat template and its family is not known for one.
    #[error(
        "this model has no chat template and architecture `{architecture}` has no usual one (it may \
         be a base model): use `kvant run` for plain completion, or name a template with \
         `--chat-template NAME` ({known})"
    )]
    NoTemplate {
        /// The model's architecture.
        architecture: String,
        /// The names of the built-in templates, separated by commas.
        known: String,
    },
}
