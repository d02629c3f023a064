//! Messages of a conversation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool` or what the template knows.
    pub role: String,
    /// What is said.
    #[serde(default)]
    pub content: Content,
    /// Everything else that a template may read: `name`, `tool_calls`, `reasoning_content`…
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: Content::Text(text.into()),
            extra: Map::new(),
        }
    }
}

/// The content of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Nothing, as beside a tool call.
    #[default]
    Nothing,
    /// Plain text.
    Text(String),
    /// Typed parts.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// Length of the text, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Text(text) => text.len(),
            Self::Parts(parts) => parts
                .iter()
                .filter_map(|p| p.text.as_ref())
                .map(String::len)
                .sum(),
        }
    }

    /// The text of all parts, one a line: for templates that know only plain text. `Err` with
    /// its type if a part is not text.
    pub(super) fn joined(&self) -> Result<Option<String>, &str> {
        match self {
            Self::Nothing => Ok(None),
            Self::Text(text) => Ok(Some(text.clone())),
            Self::Parts(parts) => {
                let texts = parts
                    .iter()
                    .map(|p| p.text.as_deref().ok_or(p.kind.as_str()));
                Ok(Some(texts.collect::<Result<Vec<_>, _>>()?.join("\n")))
            }
        }
    }
}

/// One part of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContentPart {
    /// `text`, `image`…
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The other fields of the part.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ContentPart {
    /// A part of plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            kind: "text".into(),
            text: Some(text.into()),
            extra: Map::new(),
        }
    }
}
