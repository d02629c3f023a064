//! `kvant bench`: how fast a model runs here, and how far that is from what memory allows.

mod limits;
mod measure;
mod report;

use clap::Args;
use kvant_engine::EngineOptions;
use kvant_kv::{KvFormat, KvFormats};

use crate::error::CliError;
use crate::session::{
    BackendKind, CountBar, EngineArgs, MODEL_HELP, Session, open_checkpoint, open_model, stop_line,
    thread_count, token_count,
};
use crate::signals::{self, Outcome};
use crate::terminal;
use measure::{Kind, Test};
use report::{Report, Row};

/// Tokens of one step of a prompt, as the engine's default.
const STEP_TOKENS: usize = 512;

/// Measure tokens a second: prompts (prefill) and answers (decode), at depth and in batches.
///
/// Each row is the median of several runs after a warm-up. Decode rows also say how many bytes a second
/// of weights, keys and values they read (GB/s), how fast as many threads read plain memory here (reads
/// GB/s), and the share of the first in the second.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvant bench smollm2-135m
  kvant bench smollm2-135m -p 128,512,2048 -n 128 --depth 0,4096 --threads 1,2
  kvant bench smollm2-135m -p 0 -n 64 --batch 1,4,16 --reps 3
  kvant bench smollm2-135m --depth 4096 --kv f32/f16
  kvant bench model.gguf --json > bench.json")]
pub struct BenchArgs {
    #[arg(help = MODEL_HELP)]
    model: String,

    /// Prompt lengths in tokens; 0 measures no prompts
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "512"
    )]
    prompt: Vec<usize>,

    /// Tokens to generate; 0 measures no answers
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    generate: usize,

    /// Tokens in the context before an answer is measured
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    depth: Vec<usize>,

    /// Sequences at a time
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", value_parser = token_count)]
    batch: Vec<usize>,

    /// Threads; the machine's cores when not given
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = thread_count)]
    threads: Vec<usize>,

    /// Runs of each measurement
    #[arg(long, value_name = "N", default_value = "5", value_parser = token_count)]
    reps: usize,

    /// What computes
    #[arg(long, value_enum, default_value_t = BackendKind::DEFAULT)]
    backend: BackendKind,

    /// Format of keys and values (`f16`, `f32`), or of keys and of values (`f32/f16`)
    #[arg(long, value_name = "K[/V]", default_value_t = KvFormat::F16.into())]
    kv: KvFormats,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    let tests = tests(args);
    if tests.is_empty() {
        return Err(CliError::Usage(
            "nothing to measure: give -p or -n a number above 0".to_owned(),
        ));
    }
    let threads: Vec<Option<usize>> = match args.threads.as_slice() {
        [] => vec![None],
        given => given.iter().copied().map(Some).collect(),
    };
    let mut report = Report::new(&args.model);
    let bar = CountBar::new(
        "measuring",
        (threads.len() * tests.len() * args.reps) as u64,
    );
    let stopped = bar.clone();
    let _guard = signals::on_signal(move |_| {
        stopped.clear();
        stop_line("while measuring");
        Outcome::Exit
    });
    let mut rows = Vec::new();
    for threads in threads {
        let engine = EngineArgs {
            backend: args.backend,
            threads,
            kv: args.kv,
            deterministic: false,
        };
        measure_on(args, &engine, &tests, &bar, &mut report, &mut rows)?;
    }
    bar.clear();
    report.peak_rss_bytes = limits::peak_rss_bytes();
    for row in rows {
        report.add(row);
    }
    if args.json {
        return terminal::print_json(&report);
    }
    terminal::print(&report.text())
}

/// All rows but for the threads: prompts first, then answers.
fn tests(args: &BenchArgs) -> Vec<Test> {
    let mut tests = Vec::new();
    for &batch in &args.batch {
        for &n_tokens in args.prompt.iter().filter(|n| **n > 0) {
            let (kind, depth) = (Kind::Prefill, 0);
            tests.push(Test {
                kind,
                n_tokens,
                depth,
                batch,
            });
        }
        for &depth in args.depth.iter().filter(|_| args.generate > 0) {
            let (kind, n_tokens) = (Kind::Decode, args.generate);
            tests.push(Test {
                kind,
                n_tokens,
                depth,
                batch,
            });
        }
    }
    tests
}

/// All tests with one number of threads.
fn measure_on(
    args: &BenchArgs,
    engine: &EngineArgs,
    tests: &[Test],
    bar: &CountBar,
    report: &mut Report,
    rows: &mut Vec<Row>,
) -> Result<(), CliError> {
    let context_len = tests
        .iter()
        .map(|test| test.context_len(STEP_TOKENS))
        .max()
        .unwrap_or(1);
    let n_sequences = tests.iter().map(|test| test.batch).max().unwrap_or(1);
    let options = EngineOptions {
        max_sequences: n_sequences,
        max_step_tokens: STEP_TOKENS.max(n_sequences),
        max_outputs: n_sequences,
        ..EngineOptions::single(context_len)
    };
    let (path, checkpoint) = open_checkpoint(&args.model)?;
    let open = open_model(&args.model, path, checkpoint)?;
    let mut session = Session::load_opened(open, engine, |_| Ok(options))?;
    report.loaded(&session);
    let threads = session.engine.caps().parallelism;
    for test in tests {
        measure::warm_up(&mut session, test)?;
        let mut seconds = Vec::with_capacity(args.reps);
        for _ in 0..args.reps {
            seconds.push(measure::run(&mut session, test)?);
            rows_done(bar, test, &seconds);
        }
        let step_bytes = match test.kind {
            Kind::Prefill => None,
            Kind::Decode => Some(limits::step_bytes(&session.open.model, args.kv, test)),
        };
        rows.push(Row::new(*test, threads, &seconds, step_bytes));
    }
    Ok(())
}

fn rows_done(bar: &CountBar, test: &Test, seconds: &[f64]) {
    let rate = test.total_tokens() as f64 / seconds.last().copied().unwrap_or(f64::NAN);
    bar.advance(format!("{}: {rate:.1} tok/s", test.name()));
}
