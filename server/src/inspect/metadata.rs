//! Metadata as JSON, huge arrays and texts cut short.

use kvant_format::Checkpoint;
use kvant_format::gguf::{Array, Value};
use serde_json::{Map, Value as Json, json};

/// Elements of an array that are shown.
const SHOWN_ELEMENTS: usize = 8;
/// Characters of a text that are shown.
const SHOWN_CHARS: usize = 400;

/// Everything the files say, by key.
pub(super) fn summary(checkpoint: &Checkpoint) -> Map<String, Json> {
    match checkpoint {
        Checkpoint::Gguf(gguf) => gguf
            .metadata
            .iter()
            .map(|(key, value)| (key.to_owned(), from_gguf(value)))
            .collect(),
        Checkpoint::HfFolder(folder) => match &folder.config {
            Json::Object(config) => config
                .iter()
                .map(|(key, value)| (key.clone(), shortened(value)))
                .collect(),
            _ => Map::new(),
        },
    }
}

fn from_gguf(value: &Value) -> Json {
    match value {
        // The shortest text of an f32 is what its author wrote; widening it first would not be.
        Value::F32(value) => value
            .to_string()
            .parse::<f64>()
            .map_or(Json::Null, Json::from),
        Value::F64(value) => json!(value),
        Value::Bool(value) => json!(value),
        Value::String(bytes) => text(&String::from_utf8_lossy(bytes)),
        Value::Array(array) => from_array(array),
        value => match value.as_integer() {
            Some(number) => i64::try_from(number).map_or_else(|_| json!(number as u64), Json::from),
            None => Json::Null,
        },
    }
}

fn from_array(array: &Array) -> Json {
    let shown = array.len().min(SHOWN_ELEMENTS);
    let mut first = (0..shown)
        .filter_map(|index| array.get(index))
        .map(|value| from_gguf(&value));
    if array.len() <= SHOWN_ELEMENTS {
        return first.collect();
    }
    elided(array.len(), array.type_name(), &mut first)
}

fn elided(len: usize, what: &str, first: &mut dyn Iterator<Item = Json>) -> Json {
    json!({ "elided": what, "length": len, "first": first.collect::<Json>() })
}

/// A JSON value with long arrays and texts cut.
fn shortened(value: &Json) -> Json {
    match value {
        Json::String(string) => text(string),
        Json::Array(items) if items.len() > SHOWN_ELEMENTS => {
            let first = &items[..SHOWN_ELEMENTS];
            elided(items.len(), "array", &mut first.iter().map(shortened))
        }
        Json::Array(items) => items.iter().map(shortened).collect(),
        Json::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), shortened(value)))
            .collect(),
        other => other.clone(),
    }
}

fn text(string: &str) -> Json {
    match string.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => {
            let n_chars = string.chars().count();
            Json::from(format!("{}… ({n_chars} characters)", &string[..end]))
        }
        None => Json::from(string),
    }
}

/// One value on one line, at most `width` characters.
pub(super) fn one_line(value: &Json, width: usize) -> String {
    let line = match value {
        Json::Object(map) if map.contains_key("elided") => {
            let first = map.get("first").map(Json::to_string).unwrap_or_default();
            let length = map.get("length").and_then(Json::as_u64).unwrap_or(0);
            let first = first
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned();
            return format!("[{length}] {}", cut(&first, width.saturating_sub(12)));
        }
        other => other.to_string(),
    };
    cut(&line, width)
}

fn cut(line: &str, width: usize) -> String {
    match line.char_indices().nth(width) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arrays_and_texts_are_cut() {
        let long = from_array(&Array::U32((0..1000).collect()));
        assert_eq!(long["length"], 1000);
        assert_eq!(long["first"].as_array().map(Vec::len), Some(SHOWN_ELEMENTS));
        assert_eq!(from_array(&Array::I8(vec![1, 2])), json!([1, 2]));
        let string = Value::String("é".repeat(1000).into_bytes());
        assert!(from_gguf(&string).to_string().chars().count() < SHOWN_CHARS + 40);
        assert!(one_line(&long, 40).chars().count() <= 42);
    }

    #[test]
    fn the_largest_number_stays_one() {
        assert_eq!(from_gguf(&Value::U64(u64::MAX)), json!(u64::MAX));
        assert_eq!(from_gguf(&Value::I64(-3)), json!(-3));
    }
}
