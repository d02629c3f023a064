//! One answer: from a prompt's tokens to text as it comes.

use std::time::Instant;

use kvant_engine::sampler::{SampledToken, SamplerOptions};

use kvant_engine::{Event, FinishReason, Request, TextStream};
use kvant_text::DecodeOptions;
use serde::Serialize;

use crate::error::CliError;
use crate::session::Session;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampler: SamplerOptions,
    /// Tokens that end the answer.
    pub stop_tokens: Vec<u32>,
    /// Texts that end the answer.
    pub stops: Vec<String>,
    /// Most tokens of the answer.
    pub max_tokens: usize,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it.
    EndOfText,
    /// A stop string came.
    StopString,
    /// As many tokens as asked for.
    MaxTokens,
    /// The context is full.
    ContextLength,
    /// The user stopped it.
    Cancelled,
}

/// Seconds and tokens of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Seconds from the request to the first token.
    pub prefill_seconds: f64,
    /// Tokens after the first.
    pub decode_tokens: usize,
    /// Seconds from the first token to the last.
    pub decode_seconds: f64,
}

impl Timings {
    /// Prompt tokens a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill_seconds)
    }

    /// Generated tokens a second, the first not counted.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decode_tokens, self.decode_seconds)
    }
}

/// `n / seconds`, 0 where nothing was done.
pub fn rate(n: usize, seconds: f64) -> f64 {
    if n == 0 || seconds <= 0.0 {
        return 0.0;
    }
    n as f64 / seconds
}

/// An answer, whole or cut.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Every token chosen, with the one that ended it.
    pub tokens: Vec<SampledToken>,
    /// Why it ended.
    pub finish: Finish,
    /// How long it took.
    pub timings: Timings,
}

/// Generates an answer. `on_text` gets each piece as soon as it is certain; `cancelled` is asked
/// between steps.
pub fn generate(
    session: &mut Session,
    ask: Ask,
    on_text: &mut dyn FnMut(&str) -> Result<(), CliError>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Answer, CliError> {
    let decode = DecodeOptions {
        skip_special: true,
        whole_text: false,
    };
    let mut stream = TextStream::new(decode, &ask.stops)?;
    let mut answer = Answer {
        text: String::new(),
        tokens: Vec::new(),
        finish: Finish::Cancelled,
        timings: Timings {
            prompt_tokens: ask.prompt.len(),
            ..Timings::default()
        },
    };
    let started = Instant::now();
    let id = session.engine.add(Request {
        prompt: ask.prompt,
        sampler: ask.sampler,
        stop_tokens: ask.stop_tokens.clone(),
        max_tokens: ask.max_tokens,
    })?;
    let mut first = None;
    let mut last = started;
    let finished = loop {
        if cancelled() {
            session.engine.abort(id)?;
            break Finish::Cancelled;
        }
        let mut ended = None;
        for event in step(session)? {
            match event {
                Event::Token { token, .. } => {
                    last = Instant::now();
                    first.get_or_insert(last);
                    if !ask.stop_tokens.contains(&token.id) {
                        let shown = answer.text.len();
                        if stream.push(&session.tokenizer, token.id, &mut answer.text)? {
                            ended = Some(Finish::StopString);
                        }
                        show(&answer.text[shown..], session, on_text)?;
                    }
                    answer.tokens.push(token);
                }
                Event::Finished { reason, .. } => {
                    // A stop string in the last token counts more than the reason it was the last.
                    ended = ended.or(Some(match reason {
                        FinishReason::Stop => Finish::EndOfText,
                        FinishReason::MaxTokens => Finish::MaxTokens,
                        FinishReason::ContextLength => Finish::ContextLength,
                    }));
                }
                Event::Failed { error, .. } => return Err(error.into()),
            }
        }
        if let Some(finish) = ended {
            session.engine.cleanup();
            break finish;
        }
    };
    answer.finish = finished;
    let shown = answer.text.len();
    stream.finish(&mut answer.text);
    show(&answer.text[shown..], session, on_text)?;
    let first = first.unwrap_or(last);
    answer.timings.prefill_seconds = (first - started).as_secs_f64();
    answer.timings.decode_seconds = (last - first).as_secs_f64();
    answer.timings.decode_tokens = answer.tokens.len().saturating_sub(1);
    Ok(answer)
}

/// One step; a failed engine is left empty.
fn step(session: &mut Session) -> Result<Vec<Event>, CliError> {
    let events = session.engine.step();
    if events.is_err() {
        session.engine.cleanup();
    }
    events
}

fn show(
    piece: &str,
    session: &mut Session,
    on_text: &mut dyn FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    if piece.is_empty() {
        return Ok(());
    }
    on_text(piece).inspect_err(|_| session.engine.cleanup())
}
