//! `kvant chat`: a conversation in the terminal, or one answer for a script.

mod clock;
mod conversation;
mod prompt;
mod repl;
mod stop;

use clap::Args;
use kvant_engine::EngineOptions;
use serde::Serialize;

use crate::error::CliError;
use crate::generate::{Answer, Finish};
use crate::sampling::{SamplerArgs, recommended};
use crate::session::{EngineArgs, MODEL_HELP, OpenModel, Session, token_count};
use crate::terminal;
use conversation::Conversation;
use prompt::ChatPrompt;
use stop::StopFlag;

/// Talk to a model.
///
/// On a terminal this is a conversation: type /help for its commands; Ctrl-C stops an answer, twice at
/// the prompt (or Ctrl-D) ends the program. With -p, or when standard input is not a terminal, it gives
/// one answer and ends. Each turn computes the whole conversation again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvant chat smollm2-135m
  kvant chat smollm2-135m -p \"Name three primary colours.\"
  kvant chat smollm2-135m --system \"Answer in French.\" --temperature 0.2 --ctx 4096
  echo \"What is a lighthouse?\" | kvant chat smollm2-135m
  kvant chat model.gguf --chat-template chatml -p \"Hi\" --json")]
pub struct ChatArgs {
    #[arg(help = MODEL_HELP)]
    model: String,

    /// Answer this and end; `-` reads standard input
    #[arg(short, long)]
    prompt: Option<String>,

    /// Instructions that the conversation starts with
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// Chat template: a built-in name, or a Jinja file; the model's own when not given
    #[arg(long, value_name = "NAME|FILE")]
    chat_template: Option<String>,

    /// Most tokens of an answer; what the context holds when not given
    #[arg(short = 'n', long, value_name = "N", value_parser = token_count)]
    max_tokens: Option<usize>,

    /// Context in tokens, the whole conversation together
    #[arg(long, value_name = "TOKENS", value_parser = token_count)]
    ctx: Option<usize>,

    /// Print one JSON object with the answer; for one answer only
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    sampler: SamplerArgs,

    #[command(flatten)]
    engine: EngineArgs,
}

/// `chat -p --json`.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    answer: &'a str,
    finish_reason: Finish,
    prompt_tokens: usize,
    answer_tokens: usize,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
}

/// Runs the subcommand.
pub fn run(args: &ChatArgs) -> Result<(), CliError> {
    let question = question(args)?;
    if question.is_none() && args.json {
        return Err(CliError::Usage(
            "--json needs a question: pass -p TEXT".to_owned(),
        ));
    }
    // Wrong options are refused before anything is downloaded or loaded.
    args.sampler.apply(&mut Default::default())?;
    let options = |open: &OpenModel| Ok(EngineOptions::single(open.context_len(args.ctx)));
    let session = Session::load(&args.model, &args.engine, options)?;
    let prompt = ChatPrompt::new(&session, args.chat_template.as_deref())?;
    if !args.json {
        eprintln!("{}; {}", session.describe(), prompt.describe());
    }
    let recommended = recommended(session.open.model.checkpoint());
    let mut conversation = Conversation::new(
        session,
        prompt,
        recommended,
        args.sampler.clone(),
        args.system.clone(),
        args.max_tokens,
    );
    match question {
        Some(question) => one_answer(args, &mut conversation, question),
        None => repl::run(&mut conversation),
    }
}

/// What to answer at once; `None` when a person is going to type.
fn question(args: &ChatArgs) -> Result<Option<String>, CliError> {
    let text = match args.prompt.as_deref() {
        Some("-") => terminal::read_stdin()?,
        Some(text) => text.to_owned(),
        None if terminal::stdin_is_terminal() => return Ok(None),
        None => terminal::read_stdin()?,
    };
    if text.trim().is_empty() {
        return Err(CliError::Usage(
            "the question is empty: pass -p TEXT, or pipe some text in".to_owned(),
        ));
    }
    Ok(Some(text))
}

fn one_answer(
    args: &ChatArgs,
    conversation: &mut Conversation,
    question: String,
) -> Result<(), CliError> {
    let _guard = stop::end_the_program();
    let mut on_text = |piece: &str| {
        if args.json {
            Ok(())
        } else {
            terminal::print(piece)
        }
    };
    let answer = conversation.ask(question, &mut on_text, &StopFlag::default())?;
    if args.json {
        return terminal::print_json(&Report {
            model: &args.model,
            answer: &answer.text,
            finish_reason: answer.finish,
            prompt_tokens: answer.timings.prompt_tokens,
            answer_tokens: answer.tokens.len(),
            prefill_tokens_per_second: answer.timings.prefill_rate(),
            decode_tokens_per_second: answer.timings.decode_rate(),
        });
    }
    terminal::print("\n")?;
    if let Some(note) = cut_note(&answer) {
        eprintln!("{note}");
    }
    Ok(())
}

/// Says why an answer is not whole.
fn cut_note(answer: &Answer) -> Option<&'static str> {
    match answer.finish {
        Finish::ContextLength => {
            Some("note: the context is full, so the answer was cut; a larger --ctx holds more")
        }
        Finish::MaxTokens => Some("note: the answer was cut at --max-tokens"),
        Finish::Cancelled => Some("note: the answer was stopped"),
        Finish::EndOfText | Finish::StopString => None,
    }
}
