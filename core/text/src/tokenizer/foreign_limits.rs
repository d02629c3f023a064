//! What a `tokenizer.json` may ask of the `tokenizers` crate, which trusts its files.

use serde_json::Value;

/// How many times longer a text may become before it is cut into tokens.
const MOST_GROWTH: usize = 64;
/// Longest text that is put before, after or between others, in bytes.
const LONGEST_AFFIX: usize = 64;
/// Longest expression, in bytes.
const LONGEST_EXPRESSION: usize = 4096;
/// Longest word that is cut by trying all its beginnings, in characters.
const LONGEST_WORD: u64 = 1000;

/// Refuses what would panic, or take time or memory beyond any proportion to file and text.
pub(super) fn check(file: &Value) -> Result<(), String> {
    let model = &file["model"];
    for field in ["continuing_subword_prefix", "end_of_word_suffix"] {
        let affix = model[field].as_str().unwrap_or_default();
        if affix.len() > LONGEST_AFFIX {
            return Err(format!("`{field}` is longer than {LONGEST_AFFIX} bytes"));
        }
    }
    let longest = model["max_input_chars_per_word"].as_u64();
    if longest.is_some_and(|longest| longest > LONGEST_WORD) {
        return Err(format!(
            "`max_input_chars_per_word` is above {LONGEST_WORD}"
        ));
    }
    let mut growth = 1;
    check_step(&file["normalizer"], &mut growth)?;
    check_step(&file["pre_tokenizer"], &mut growth)
}

fn check_step(step: &Value, growth: &mut usize) -> Result<(), String> {
    match step {
        Value::Array(steps) => steps.iter().try_for_each(|step| check_step(step, growth)),
        Value::Object(fields) => {
            if step["type"] == "Precompiled" || fields.contains_key("precompiled_charsmap") {
                return Err("a normalizer of type `Precompiled` is not supported".into());
            }
            if let Some(expression) = step["Regex"].as_str() {
                check_expression(expression)?;
            }
            if let Some(content) = step["content"].as_str() {
                // An expression may match nothing between any two bytes.
                let factor = match step["pattern"]["String"].as_str() {
                    Some(pattern) => content.len().div_ceil(pattern.len().max(1)).max(1),
                    None => 1 + content.len(),
                };
                *growth = growth.saturating_mul(factor);
                if *growth > MOST_GROWTH {
                    let reason = "its replacements may make a text more than";
                    return Err(format!("{reason} {MOST_GROWTH} times as long"));
                }
            }
            for field in ["prepend", "replacement"] {
                if step[field]
                    .as_str()
                    .is_some_and(|s| s.len() > LONGEST_AFFIX)
                {
                    return Err(format!("`{field}` is longer than {LONGEST_AFFIX} bytes"));
                }
            }
            fields
                .values()
                .try_for_each(|step| check_step(step, growth))
        }
        _ => Ok(()),
    }
}

/// Refuses expressions that are matched by trying: the crate tries a million times at each
/// position of a text. The one look-ahead of the common word rules cannot try much.
fn check_expression(expression: &str) -> Result<(), String> {
    if expression.len() > LONGEST_EXPRESSION {
        return Err(format!(
            "an expression is longer than {LONGEST_EXPRESSION} bytes"
        ));
    }
    let rest = expression.replace(r"\s+(?!\S)", "");
    let looks = ["(?=", "(?!", "(?<", "(?>", "(?("]
        .iter()
        .any(|s| rest.contains(s));
    let mut bytes = rest.bytes();
    let mut refers = false;
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            refers |= matches!(bytes.next(), Some(b'1'..=b'9' | b'k' | b'g' | b'K' | b'G'));
        }
    }
    match looks || refers {
        true => Err("an expression looks around or back, which is not supported".into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pipelines_without_proportion_are_refused() {
        let doubling = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
        let looking = json!({"type": "Split", "pattern": {"Regex": "(?=(a*)*b)"}});
        let refused = [
            json!({"normalizer": {"type": "Precompiled"}}),
            json!({"normalizer": {"type": "Sequence", "normalizers": [{"precompiled_charsmap": ""}]}}),
            json!({"normalizer": {"type": "Sequence", "normalizers": vec![doubling; 7]}}),
            json!({"normalizer": {"type": "Prepend", "prepend": "a".repeat(65)}}),
            json!({"pre_tokenizer": looking}),
            json!({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(a)\1"}}}),
            json!({"model": {"max_input_chars_per_word": 1001}}),
            json!({"model": {"end_of_word_suffix": "a".repeat(65)}}),
        ];
        for file in refused {
            assert!(check(&file).is_err(), "{file}");
        }
    }

    #[test]
    fn usual_pipelines_pass() {
        let expression =
            r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        let file = json!({
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
            ]},
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated"},
            "model": {"type": "WordPiece", "max_input_chars_per_word": 100},
        });
        assert_eq!(check(&file), Ok(()));
    }
}
