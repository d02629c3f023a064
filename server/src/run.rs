//! `kvant run`: plain completion of a prompt.

use std::time::Instant;

use clap::Args;
use kvant_engine::EngineOptions;
use kvant_engine::sampler::SamplerOptions;
use kvant_text::{DecodeOptions, EncodeOptions};
use serde::Serialize;

use crate::error::CliError;
use crate::generate::{Answer, Ask, Finish, generate};
use crate::sampling::{SamplerArgs, fresh_seed};
use crate::session::{EngineArgs, MODEL_HELP, OpenModel, Session, stop_line, token_count};
use crate::signals::{self, Outcome};
use crate::terminal;

/// Complete a text, without a chat template.
///
/// Standard output gets the completion as it is generated, or one JSON object with --json. Without
/// sampling options tokens are drawn from the model's own distribution.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvant run smollm2-135m -p \"The capital of France is\" -n 16 --temperature 0
  kvant run model.gguf -p - --stop \"\\n\\n\" < prompt.txt
  kvant run smollm2-135m -p \"Once\" -n 4 --logprobs 5 --json
  kvant run smollm2-135m --tokens 504,1573,33059 -n 8")]
pub struct RunArgs {
    #[arg(help = MODEL_HELP)]
    model: String,

    /// Text to complete; `-` reads standard input
    #[arg(
        short,
        long,
        required_unless_present = "tokens",
        conflicts_with = "tokens"
    )]
    prompt: Option<String>,

    /// Token ids to complete, instead of a text
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',')]
    tokens: Option<Vec<u32>>,

    /// Most tokens to generate
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = token_count)]
    max_tokens: usize,

    /// Stop before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Go on after the model ends the text
    #[arg(long)]
    ignore_eos: bool,

    /// Turn the text of special tokens in the prompt into these tokens
    #[arg(long)]
    special: bool,

    /// Do not put the model's beginning-of-text token before the prompt
    #[arg(long, conflicts_with = "tokens")]
    no_bos: bool,

    /// Report log-probabilities of the N likeliest tokens of each step (needs --json)
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<u32>,

    /// Context in tokens, prompt and completion together
    #[arg(long, value_name = "TOKENS", value_parser = token_count)]
    ctx: Option<usize>,

    /// Print one JSON object: text, token ids, logprobs, timings
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    sampler: SamplerArgs,

    #[command(flatten)]
    engine: EngineArgs,
}

/// `run --json`.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a str,
    text: &'a str,
    prompt_ids: &'a [u32],
    token_ids: Vec<u32>,
    finish_reason: Finish,
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<Step>>,
    timings: TimingReport,
}

/// Log-probabilities of one step, in nats.
#[derive(Serialize)]
struct Step {
    id: u32,
    text: String,
    logprob: f32,
    top: Vec<Alternative>,
}

#[derive(Serialize)]
struct Alternative {
    id: u32,
    text: String,
    logprob: f32,
}

/// Seconds and tokens a second.
#[derive(Serialize)]
struct TimingReport {
    load_seconds: f64,
    prompt_tokens: usize,
    prefill_seconds: f64,
    prefill_tokens_per_second: f64,
    decode_tokens: usize,
    decode_seconds: f64,
    decode_tokens_per_second: f64,
    time_to_first_token_seconds: f64,
}

/// Runs the subcommand. `started` is when the program started.
pub fn run(args: &RunArgs, started: Instant) -> Result<(), CliError> {
    let mut sampler = SamplerOptions::default();
    args.sampler.apply(&mut sampler)?;
    sampler.logprobs = args.logprobs;
    if sampler.temperature > 0.0 && sampler.seed.is_none() {
        sampler.seed = Some(fresh_seed());
    }
    sampler
        .validate()
        .map_err(|error| CliError::Usage(error.to_string()))?;
    let seed = sampler.seed;
    let prompt_text = match args.prompt.as_deref() {
        Some("-") => Some(terminal::read_stdin()?),
        text => text.map(str::to_owned),
    };
    let options = |open: &OpenModel| Ok(EngineOptions::single(open.context_len(args.ctx)));
    let mut session = Session::load(&args.model, &args.engine, options)?;
    let prompt = match (&args.tokens, &prompt_text) {
        (Some(tokens), _) => tokens.clone(),
        (None, text) => {
            let encode = EncodeOptions {
                add_special: !args.no_bos,
                parse_special: args.special,
            };
            let text = text.as_deref().unwrap_or_default();
            session
                .tokenizer
                .encode(text, encode)
                .map_err(|error| CliError::Failed(error.to_string()))?
        }
    };
    let stop_tokens = if args.ignore_eos {
        Vec::new()
    } else {
        session.tokenizer.end_of_generation().to_vec()
    };
    let ask = Ask {
        prompt: prompt.clone(),
        sampler,
        stop_tokens,
        stops: args.stop.clone(),
        max_tokens: args.max_tokens,
    };
    let _guard = signals::on_signal(|_| {
        stop_line("while generating");
        Outcome::Exit
    });
    let before_prefill = started.elapsed().as_secs_f64();
    let mut on_text = |piece: &str| {
        if args.json {
            return Ok(());
        }
        terminal::print(piece)
    };
    let answer = generate(&mut session, ask, &mut on_text, &|| false)?;
    if !args.json {
        return terminal::print("\n");
    }
    let timings = answer.timings;
    terminal::print_json(&Report {
        model: &args.model,
        text: &answer.text,
        prompt_ids: &prompt,
        token_ids: answer.tokens.iter().map(|token| token.id).collect(),
        finish_reason: answer.finish,
        seed,
        logprobs: args.logprobs.map(|_| steps(&session, &answer)),
        timings: TimingReport {
            load_seconds: session.load_seconds,
            prompt_tokens: timings.prompt_tokens,
            prefill_seconds: timings.prefill_seconds,
            prefill_tokens_per_second: timings.prefill_rate(),
            decode_tokens: timings.decode_tokens,
            decode_seconds: timings.decode_seconds,
            decode_tokens_per_second: timings.decode_rate(),
            time_to_first_token_seconds: before_prefill + timings.prefill_seconds,
        },
    })
}

fn steps(session: &Session, answer: &Answer) -> Vec<Step> {
    let text = |id: u32| {
        let all = DecodeOptions::default();
        session.tokenizer.decode(&[id], all).unwrap_or_default()
    };
    let logprobs = |token: &kvant_engine::sampler::SampledToken| {
        let logprobs = token.logprobs.as_ref()?;
        Some(Step {
            id: token.id,
            text: text(token.id),
            logprob: logprobs.chosen,
            top: logprobs
                .top
                .iter()
                .map(|&(id, logprob)| Alternative {
                    id,
                    text: text(id),
                    logprob,
                })
                .collect(),
        })
    };
    answer.tokens.iter().filter_map(logprobs).collect()
}
