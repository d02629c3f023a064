//! Compiling and rendering a chat template.

use std::sync::Arc;

use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, syntax::SyntaxConfig};
use serde_json::Map;

use super::message::{Content, ContentPart, Message};
use super::named::NamedTemplate;
use super::python;
use super::time::LocalTime;
use crate::TextError;

/// Longer templates are refused. Real ones stay below 20 KiB.
const LONGEST_TEMPLATE_BYTES: usize = 1 << 20;

/// Instructions (or 64-byte pieces of data) that rendering may always use.
const BASE_FUEL: u64 = 150_000;
/// The same for each message and each tool on top.
const FUEL_PER_ITEM: u64 = 1_000;
/// How often each byte of the messages may be copied on top.
const COPIES: u64 = 16;
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
        let mut environment = environment().map_err(|e| describe(&origin, &e))?;
        environment
            .add_template_owned(NAME, without_generation_tags(source))
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
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_unknown_method_callback(python::methods);
    environment.set_formatter(python::print);
    // Both print whole values without paying for them.
    environment.remove_global("debug");
    environment.add_filter("pprint", python::string_filter);
    environment.add_filter("string", python::string_filter);
    environment.add_filter("tojson", python::tojson_filter);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("iterable", python::is_iterable);
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<Value, Error> {
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

/// Turns `{% generation %}` blocks into plain ones. They mark the assistant's tokens for
/// training and print what is inside them.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let inner = tag.trim_start_matches(['-', '+']);
        out.push_str(&tag[..tag.len() - inner.len()]);
        let word = inner.trim_start();
        let blank = &inner[..inner.len() - word.len()];
        let ends = |rest: &str| {
            rest.trim_start()
                .trim_start_matches(['-', '+'])
                .starts_with("%}")
        };
        rest = match (
            word.strip_prefix("generation"),
            word.strip_prefix("endgeneration"),
        ) {
            (Some(after), _) if ends(after) => {
                out.push_str(blank);
                out.push_str("if true");
                after
            }
            (_, Some(after)) if ends(after) => {
                out.push_str(blank);
                out.push_str("endif");
                after
            }
            _ => inner,
        };
    }
    out.push_str(rest);
    out
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
