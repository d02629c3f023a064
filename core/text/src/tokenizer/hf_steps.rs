//! The steps of a `tokenizer.json` pipeline, and which of them have an exact equal here.

use serde_json::Value;

use super::hf_model::Model;
use super::model::SpacePrefix;
use super::split::Stage;
use super::vocab::{SPACE_MARK, Spelling};
use super::words;

/// The steps around the model.
pub(super) struct Steps<'a> {
    pub(super) normalizer: &'a Value,
    pub(super) pre_tokenizer: &'a Value,
    pub(super) post_processor: &'a Value,
    pub(super) decoder: &'a Value,
}

/// A pipeline that can be run here.
pub(super) enum Pipeline {
    /// Byte-level BPE inside words.
    Words { stages: Vec<Stage>, nfc: bool },
    /// BPE over the characters of the whole text.
    Characters { space_prefix: SpacePrefix },
}

/// Texts of the tokens that are put around a prompt.
#[derive(Default)]
pub(super) struct Around {
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

/// A step, or the steps of a sequence, flat.
fn flatten<'a>(step: &'a Value, list: &str) -> Vec<&'a Value> {
    if step.is_null() {
        Vec::new()
    } else if step["type"] == "Sequence" {
        let steps = step[list].as_array().into_iter().flatten();
        steps.flat_map(|step| flatten(step, list)).collect()
    } else {
        vec![step]
    }
}

fn is_true(step: &Value, field: &str, default: bool) -> bool {
    step[field].as_bool().unwrap_or(default)
}

impl Steps<'_> {
    /// The pipeline, if it can be run here exactly.
    pub(super) fn recognise(&self, model: &Model<'_>) -> Option<Pipeline> {
        if !model.is_plain_bpe() {
            return None;
        }
        let (mut nfc, mut marks_spaces) = (false, false);
        let mut space_prefix = SpacePrefix::Never;
        for step in flatten(self.normalizer, "normalizers") {
            match step["type"].as_str()? {
                "NFC" => nfc = true,
                "Prepend" if step["prepend"] == SPACE_MARK => space_prefix = SpacePrefix::EachText,
                "Replace" if step["pattern"]["String"] == " " && step["content"] == SPACE_MARK => {
                    marks_spaces = true;
                }
                _ => return None,
            }
        }
        let mut stages = Vec::new();
        let mut byte_level = false;
        for step in flatten(self.pre_tokenizer, "pretokenizers") {
            match step["type"].as_str()? {
                "ByteLevel" if !is_true(step, "add_prefix_space", true) => {
                    if is_true(step, "use_regex", true) {
                        stages.push(words::GPT2);
                    }
                    byte_level = true;
                }
                "Digits" if is_true(step, "individual_digits", false) => {
                    stages.push(words::EACH_DIGIT);
                }
                // Without spaces left in the text there is nothing to cut at.
                "Split" if step["pattern"]["String"] == " " && marks_spaces => {}
                "Split" => {
                    let expression = step["pattern"]["Regex"].as_str()?;
                    let stage = words::by_expression(expression)?;
                    let covers_all = matches!(stage, Stage::Words(_));
                    match (step["behavior"].as_str()?, is_true(step, "invert", false)) {
                        ("Isolated", _) => {}
                        ("Removed", true) if covers_all => {}
                        _ => return None,
                    }
                    stages.push(stage);
                }
                "Metaspace"
                    if step["replacement"] == SPACE_MARK && !is_true(step, "split", true) =>
                {
                    space_prefix = match step["prepend_scheme"].as_str()? {
                        "never" => space_prefix,
                        "first" => SpacePrefix::StartUnlessThere,
                        "always" => SpacePrefix::EachTextUnlessThere,
                        _ => return None,
                    };
                    marks_spaces = true;
                }
                _ => return None,
            }
        }
        let no_spaces = !marks_spaces && space_prefix == SpacePrefix::Never;
        if byte_level && no_spaces && !model.byte_fallback {
            Some(Pipeline::Words { stages, nfc })
        } else if !byte_level && stages.is_empty() && !nfc && marks_spaces {
            Some(Pipeline::Characters { space_prefix })
        } else {
            None
        }
    }

    /// How tokens spell text, told from how they are decoded.
    pub(super) fn spelling(&self) -> Option<Spelling> {
        let steps = flatten(self.decoder, "decoders");
        let has = |kind: &str| steps.iter().any(|step| step["type"] == kind);
        if has("ByteLevel") {
            Some(Spelling::ByteLevel)
        } else if has("Metaspace") || has("Replace") {
            Some(Spelling::EscapedSpace)
        } else {
            None
        }
    }

    /// True if decoding takes a space away from the start.
    pub(super) fn prefixes_space(&self) -> bool {
        flatten(self.decoder, "decoders")
            .iter()
            .any(|step| match step["type"].as_str() {
                Some("Strip") => step["content"] == " " && step["start"] != 0,
                Some("Metaspace") => step["prepend_scheme"] != "never",
                _ => false,
            })
    }

    /// What is put around a prompt; `None` if the file leaves that to its configuration.
    pub(super) fn around(&self) -> Result<Option<Around>, String> {
        let mut found = None;
        for step in flatten(self.post_processor, "processors") {
            match step["type"].as_str().unwrap_or_default() {
                "ByteLevel" => {}
                "TemplateProcessing" => found = Some(template(step)?),
                "BertProcessing" | "RobertaProcessing" => {
                    found = Some(Around {
                        before: step["cls"][0].as_str().map(String::from),
                        after: step["sep"][0].as_str().map(String::from),
                    });
                }
                other => {
                    return Err(format!(
                        "`post_processor` of type `{other}` is not supported"
                    ));
                }
            }
        }
        Ok(found)
    }
}

/// The `single` template: tokens before and after the text.
fn template(step: &Value) -> Result<Around, String> {
    let mut around = Around::default();
    let mut after_text = false;
    for piece in step["single"].as_array().into_iter().flatten() {
        if piece.get("Sequence").is_some() {
            after_text = true;
            continue;
        }
        let token = piece["SpecialToken"]["id"].as_str().map(String::from);
        let side = if after_text {
            &mut around.after
        } else {
            &mut around.before
        };
        if side.is_some() || token.is_none() {
            return Err("`post_processor` puts more than one token on one side of the text".into());
        }
        *side = token;
    }
    Ok(around)
}
