//! Compiling and rendering a chat template.

use std::sync::Arc;

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, syntax::SyntaxConfig};
use serde_json::Map;

use super::jinja;
use super::message::{Content, ContentPart, Message};
use super::named::NamedTemplate;
use super::python;
use super::time::LocalTime;
use crate::TextError;

/// Longer templates are refused. Real ones stay below 20 KiB.
const LONGEST_TEMPLATE_BYTES: usize = 64 << 10;

/// Instructions (or 64-byte pieces of data) that rendering may always use.
const BASE_FUEL: u64 = 80_000;
/// The same for each message and each tool on top.
const FUEL_PER_ITEM: u64 = 200;
/// How often each byte of the messages may be copied on top.
const COPIES: u64 = 32;
/// How deep template calls may nest.
const RECURSION_LIMIT: usize = 120;

/// What a template may read beside the messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderOptions {
    /// End with the start of an assistant's turn.
    pub add_generation_prompt: bool,
    /// Descriptions of the tools that may be called, in the shape that the template expects.
    pub tools: Vec<serde_json::Value>,
    /// Text of the beginning-of-text token.
    pub bos_token: String,
    /// Text of the end-of-text token.
    pub eos_token: String,
    /// Other variables, such as `enable_thinking`.
    pub variables: Map<String, serde_json::Value>,
    /// What `strftime_now` prints; a template that asks for it fails without.
    pub now: Option<LocalTime>,
}

/// A compiled chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    origin: Arc<str>,
}

const NAME: &str = "chat";

/// The message of a template that called `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl ChatTemplate {
    /// Compiles a Jinja template. `origin` says in errors where it comes from.
    ///
    /// # Errors
    /// If the template is too long or has a syntax error.
    pub fn compile(source: &str, origin: impl Into<String>) -> Result<Self, TextError> {
        let origin: Arc<str> = origin.into().into();
        if source.len() > LONGEST_TEMPLATE_BYTES {
            return Err(TextError::Template {
                origin: origin.to_string(),
                line: 0,
                reason: format!(
                    "it is {} bytes long; at most {LONGEST_TEMPLATE_BYTES} are allowed",
                    source.len()
                ),
            });
        }
        let rewritten = jinja::rewrite(source).map_err(|fault| TextError::Template {
            origin: origin.to_string(),
            line: fault.line,
            reason: fault.reason,
        })?;
        let mut environment = environment().map_err(|e| describe(&origin, &e))?;
        environment
            .add_template_owned(NAME, rewritten)
            .map_err(|e| describe(&origin, &e))?;
        Ok(Self {
            environment,
            origin,
        })
    }

    /// Compiles a built-in template.
    ///
    /// # Errors
    /// As [`ChatTemplate::compile`].
    pub fn named(template: &NamedTemplate) -> Result<Self, TextError> {
        Self::compile(template.source, format!("family `{}`", template.name))
    }

    /// Where the template comes from.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The prompt for `messages`.
    ///
    /// # Errors
    /// If the template refuses the messages, fails, or does more work than the messages can
    /// need.
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        let has_parts = |m: &Message| matches!(m.content, Content::Parts(_));
        if !messages.iter().any(has_parts) || self.reads_parts() {
            return self.render_as_given(messages, options);
        }
        let plain = |message: &Message| {
            let content = message
                .content
                .joined()
                .map_err(|kind| TextError::Template {
                    origin: self.origin.to_string(),
                    line: 0,
                    reason: format!(
                        "it reads plain text only, and a message has a part of type `{kind}`"
                    ),
                })?;
            Ok(Message {
                content: content.map_or(Content::Nothing, Content::Text),
                ..message.clone()
            })
        };
        let messages = messages.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        self.render_as_given(&messages, options)
    }

    fn render_as_given(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        let data_bytes = messages.iter().map(|m| {
            let extra: usize = m.extra.values().map(json_bytes).sum();
            m.content.text_bytes() + extra
        });
        let data_bytes =
            data_bytes.sum::<usize>() + options.tools.iter().map(json_bytes).sum::<usize>();
        let items = (messages.len() + options.tools.len()) as u64;
        let fuel = BASE_FUEL + FUEL_PER_ITEM * items + data_bytes as u64 * COPIES / 64;

        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let now = options.now;
        environment.add_function("strftime_now", move |format: &str| {
            let fail = |reason| Error::new(ErrorKind::InvalidOperation, reason);
            let now = now.ok_or_else(|| fail("strftime_now: the time is not known here".into()))?;
            now.strftime(format)
                .map_err(|c| fail(format!("strftime_now: unknown directive `%{c}`")))
        });
        let template = environment
            .get_template(NAME)
            .map_err(|e| describe(&self.origin, &e))?;
        let prompt = template.render(context(messages, options));
        prompt.map_err(|e| describe(&self.origin, &e))
    }

    /// True if the template understands content that is a list of parts. Asked by trying.
    fn reads_parts(&self) -> bool {
        const PROBE: &str = "c0ntent";
        let message = |content| Message {
            role: "user".into(),
            content,
            extra: Map::new(),
        };
        let options = RenderOptions::default();
        let probe = |content| self.render_as_given(&[message(content)], &options);
        let parts = probe(Content::Parts(vec![ContentPart::text(PROBE)]));
        // A list that is printed as such shows its keys.
        parts.is_ok_and(|prompt| prompt.contains(PROBE) && !prompt.contains("'text'"))
    }
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::empty();
    // The rewriting has already taken the blanks that tags take.
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_unknown_method_callback(python::methods);
    environment.set_formatter(python::print);
    jinja::install(&mut environment);
    environment.add_function(
        "raise_exception",
        |state: &State<'_, '_>, message: &Value| -> Result<Value, Error> {
            let message = python::to_str(state, message)?;
            let error = Error::new(ErrorKind::InvalidOperation, message.clone());
            Err(error.with_source(Refusal(message)))
        },
    );
    Ok(environment)
}

fn context(messages: &[Message], options: &RenderOptions) -> Value {
    let mut variables: Vec<(String, Value)> = vec![
        ("messages".into(), Value::from(Serde(messages))),
        (
            "add_generation_prompt".into(),
            Value::from(options.add_generation_prompt),
        ),
        ("bos_token".into(), Value::from(options.bos_token.as_str())),
        ("eos_token".into(), Value::from(options.eos_token.as_str())),
        (
            "tools".into(),
            match options.tools.as_slice() {
                [] => Value::from(()),
                tools => Value::from(Serde(tools)),
            },
        ),
        ("documents".into(), Value::from(())),
    ];
    variables.extend(
        options
            .variables
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(Serde(value)))),
    );
    variables
        .into_iter()
        .collect::<std::collections::BTreeMap<_, _>>()
        .into()
}

/// About how many bytes a value takes.
fn json_bytes(value: &serde_json::Value) -> usize {
    use serde_json::Value as V;
    8 + match value {
        V::String(text) => text.len(),
        V::Array(items) => items.iter().map(json_bytes).sum(),
        V::Object(fields) => fields.iter().map(|(k, v)| k.len() + json_bytes(v)).sum(),
        V::Null | V::Bool(_) | V::Number(_) => 0,
    }
}

fn describe(origin: &str, error: &Error) -> TextError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut line = error.line();
    let mut reason = error
        .detail()
        .map_or_else(|| error.kind().to_string(), String::from);
    while let Some(cause) = source {
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return TextError::TemplateRefused {
                origin: origin.into(),
                reason: refusal.0.clone(),
            };
        }
        if let Some(inner) = cause.downcast_ref::<Error>() {
            line = inner.line().or(line);
            reason = inner
                .detail()
                .map_or_else(|| inner.kind().to_string(), String::from);
            if inner.kind() == ErrorKind::OutOfFuel {
                reason = "it does more work than these messages can need".into();
            }
        }
        source = cause.source();
    }
    TextError::Template {
        origin: origin.into(),
        line: line.unwrap_or(0),
        reason,
    }
}
