//! Pipelines of `tokenizer.json` that have no exact equal here, run by the `tokenizers` crate.

use std::sync::Arc;

use serde_json::Value;

use super::foreign_limits;
use crate::TextError;

/// The crate's backtracking expressions give up on longer runs of white space, and would then
/// leave the rest of the text in one piece without an error.
const LONGEST_SPACE_RUN: usize = 100_000;

/// A pipeline without its special tokens: those are cut out of the text before it.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    pipeline: Arc<tokenizers::Tokenizer>,
}

impl Foreign {
    /// Builds the pipeline that `tokenizer.json` describes.
    pub(super) fn new(mut file: Value) -> Result<Self, String> {
        if let Some(fields) = file.as_object_mut() {
            for unused in [
                "added_tokens",
                "decoder",
                "post_processor",
                "truncation",
                "padding",
            ] {
                fields.remove(unused);
            }
            fields.insert("added_tokens".into(), Value::Array(Vec::new()));
        }
        foreign_limits::check(&file)?;
        let pipeline = serde_json::from_value(file).map_err(|e| e.to_string())?;
        Ok(Self {
            pipeline: Arc::new(pipeline),
        })
    }

    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TextError> {
        let fail = |reason: String| TextError::BadTokenizerFile {
            file: "tokenizer.json",
            reason,
        };
        let mut run = 0;
        for c in text.chars() {
            run = if c.is_whitespace() { run + 1 } else { 0 };
            if run > LONGEST_SPACE_RUN {
                return Err(fail(format!(
                    "its rules cannot cut a run of more than {LONGEST_SPACE_RUN} spaces"
                )));
            }
        }
        let encoding = self
            .pipeline
            .encode_fast(text, false)
            .map_err(|e| fail(e.to_string()))?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}
