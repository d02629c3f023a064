//! From messages to the tokens of a prompt.

use std::path::Path;

use kvant_format::Checkpoint;
use kvant_text::{
    ChatTemplate, EncodeOptions, Message, RenderOptions, TextError, Tokenizer, default_template,
    named_template,
};
use serde_json::Value;

use super::clock;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal;

/// The chat template of a conversation.
pub(super) struct ChatPrompt {
    template: ChatTemplate,
    bos_token: String,
    eos_token: String,
}

impl ChatPrompt {
    /// The template that the user chose, else the model's own, else the usual one of its family.
    pub(super) fn new(session: &Session, chosen: Option<&str>) -> Result<Self, CliError> {
        let tokenizer = &session.tokenizer;
        let checkpoint = session.open.model.checkpoint();
        let template = match chosen {
            Some(chosen) => chosen_template(chosen)?,
            None => match own_template(checkpoint) {
                Some(source) => {
                    ChatTemplate::compile(&source, "the model's own").map_err(explain)?
                }
                None => {
                    let architecture = session.open.model.spec().architecture;
                    let family = default_template(architecture, tokenizer).map_err(explain)?;
                    ChatTemplate::named(family).map_err(explain)?
                }
            },
        };
        let text = |id: Option<u32>| {
            let bytes = id.map(|id| tokenizer.token_bytes(id)).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        Ok(Self {
            template,
            bos_token: text(tokenizer.bos()),
            eos_token: text(tokenizer.eos()),
        })
    }

    /// Where the template comes from, for people.
    pub(super) fn describe(&self) -> String {
        format!("chat template: {}", self.template.origin())
    }

    /// The prompt that asks for the next answer, as token ids.
    pub(super) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
    ) -> Result<Vec<u32>, CliError> {
        let options = RenderOptions {
            add_generation_prompt: true,
            bos_token: self.bos_token.clone(),
            eos_token: self.eos_token.clone(),
            now: Some(clock::now()),
            ..RenderOptions::default()
        };
        let text = self.template.render(messages, &options).map_err(explain)?;
        let encode = EncodeOptions {
            add_special: false,
            parse_special: true,
        };
        let mut tokens = tokenizer.encode(&text, encode).map_err(explain)?;
        // Most templates write the beginning-of-text token themselves; twice would be wrong.
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos())
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }
}

fn explain(error: TextError) -> CliError {
    CliError::Failed(error.to_string())
}

/// A file where there is one, else a built-in name.
fn chosen_template(chosen: &str) -> Result<ChatTemplate, CliError> {
    let path = Path::new(chosen);
    if path.is_file() {
        return ChatTemplate::compile(&terminal::read_text(path)?, chosen).map_err(explain);
    }
    let named = named_template(chosen).map_err(|error| {
        CliError::Usage(format!(
            "--chat-template: there is no such file, and {error}"
        ))
    })?;
    ChatTemplate::named(named).map_err(explain)
}

/// The template that the model's files bring.
fn own_template(checkpoint: &Checkpoint) -> Option<String> {
    match checkpoint {
        Checkpoint::Gguf(gguf) => {
            let template = gguf.metadata.get::<&str>("tokenizer.chat_template");
            template.ok().map(str::to_owned)
        }
        Checkpoint::HfFolder(folder) => folder.chat_template.clone().or_else(|| {
            match folder.tokenizer_config.as_ref()?.get("chat_template")? {
                Value::String(template) => Some(template.clone()),
                // Several by name, of which one is for plain conversation.
                Value::Array(named) => named.iter().find_map(|entry| {
                    (entry.get("name")? == "default")
                        .then(|| entry.get("template")?.as_str().map(str::to_owned))?
                }),
                _ => None,
            }
        }),
    }
}
