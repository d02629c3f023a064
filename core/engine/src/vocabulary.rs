//! The tokenizer of a checkpoint.

use crate::error::EngineError;
use kvant_format::gguf::StringArray;
use kvant_format::{Checkpoint, Gguf};
use kvant_text::{StringTable, Tokenizer, TokenizerParts};

/// Builds the tokenizer that a checkpoint describes.
///
/// # Errors
/// [`EngineError`] when the checkpoint has no tokenizer, or one that is damaged or unknown.
pub async fn tokenizer(checkpoint: &Checkpoint) -> Result<Tokenizer, EngineError> {
    match checkpoint {
        Checkpoint::Gguf(gguf) => Ok(Tokenizer::from_parts(parts(gguf)?)?),
        Checkpoint::HfFolder(folder) => {
            let json = folder
                .tokenizer_json()
                .await
                .map_err(EngineError::TokenizerFile)?;
            let json = json.ok_or(EngineError::NoTokenizer)?;
            let config = folder
                .tokenizer_config
                .as_ref()
                .map(|config| config.to_string());
            Ok(Tokenizer::from_json(
                &json,
                config.as_ref().map(String::as_bytes),
            )?)
        }
    }
}

/// The tokenizer section of GGUF metadata.
fn parts(gguf: &Gguf) -> Result<TokenizerParts, EngineError> {
    let metadata = &gguf.metadata;
    let table = |key: &str| -> Result<Option<StringTable>, EngineError> {
        Ok(metadata
            .find::<&StringArray>(key)?
            .map(|strings| strings.iter().collect()))
    };
    let string = |key: &str| -> Result<Option<String>, EngineError> {
        Ok(metadata.find::<&str>(key)?.map(str::to_owned))
    };
    let id = |key: &str| metadata.find::<u32>(&format!("tokenizer.ggml.{key}_token_id"));
    let flag = |key: &str| metadata.find::<bool>(&format!("tokenizer.ggml.{key}"));
    Ok(TokenizerParts {
        model: string("tokenizer.ggml.model")?.ok_or(EngineError::NoTokenizer)?,
        pre: string("tokenizer.ggml.pre")?,
        architecture: string("general.architecture")?,
        tokens: table("tokenizer.ggml.tokens")?.ok_or(EngineError::NoTokenizer)?,
        scores: metadata.find("tokenizer.ggml.scores")?,
        token_types: metadata.find("tokenizer.ggml.token_type")?,
        merges: table("tokenizer.ggml.merges")?,
        bos: id("bos")?,
        eos: id("eos")?,
        eot: id("eot")?,
        eom: id("eom")?,
        unk: id("unknown")?,
        pad: id("padding")?,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_space_prefix: flag("add_space_prefix")?,
    })
}
