//! `kvant eval`: perplexity of a text, and how far a model is from saved predictions.

mod logits_file;
mod report;

use std::path::PathBuf;

use clap::Args;
use kvant_engine::EngineOptions;
use kvant_engine::eval::{Divergence, EvalOptions, Perplexity, n_chunks};
use kvant_text::EncodeOptions;

use crate::error::CliError;
use crate::session::{
    CountBar, EngineArgs, MODEL_HELP, OpenModel, Session, stop_line, token_count,
};
use crate::signals::{self, Outcome};
use crate::terminal;
use logits_file::{Header, Reader, Writer};
use report::Report;

/// Bytes of logits that are read from the device at a time.
const LOGIT_BYTES: usize = 64 << 20;

/// Measure how well a model predicts a text, and how far it is from a baseline.
///
/// The text is cut into chunks of --ctx tokens; the second half of each is measured, as llama.cpp's
/// perplexity tool does, so that numbers compare. --save-logits keeps the predictions of a baseline;
/// --base compares with them: KL divergence (mean, median, 99 %, max, in nats) and the share of tokens
/// where both put the same token first. The arithmetic is the one that answers are generated with token
/// by token; --as-prompt takes the faster one that prompts are read with, where the processor has one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvant eval smollm2-135m --text wiki.txt --ctx 512
  kvant eval model-f16.gguf --text wiki.txt --ctx 512 --chunks 8 --save-logits f16.kvl
  kvant eval model-q4.gguf --text wiki.txt --ctx 512 --chunks 8 --base f16.kvl --json")]
pub struct EvalArgs {
    #[arg(help = MODEL_HELP)]
    model: String,

    /// Text file in UTF-8
    #[arg(long, value_name = "FILE")]
    text: PathBuf,

    /// Tokens of a chunk
    #[arg(long, value_name = "TOKENS", default_value = "512", value_parser = token_count)]
    ctx: usize,

    /// Measure only the first N chunks
    #[arg(long, value_name = "N", value_parser = token_count)]
    chunks: Option<usize>,

    /// Save the predictions: about 2 bytes a token measured and vocabulary entry
    #[arg(long, value_name = "FILE")]
    save_logits: Option<PathBuf>,

    /// Compare with saved predictions
    #[arg(long, value_name = "FILE", conflicts_with = "save_logits")]
    base: Option<PathBuf>,

    /// Read the text as a prompt is read, whose arithmetic may differ from that of an answer
    #[arg(long, conflicts_with = "deterministic")]
    as_prompt: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    engine: EngineArgs,
}

/// Runs the subcommand.
pub fn run(args: &EvalArgs) -> Result<(), CliError> {
    if args.ctx < 4 {
        return Err(CliError::Usage("--ctx must be at least 4".to_owned()));
    }
    let text = terminal::read_text(&args.text)?;
    let base = args.base.as_deref().map(Reader::open).transpose()?;
    let mut session = Session::load(&args.model, &args.engine, |open| Ok(options(open, args)))?;
    let encode = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokens = session
        .tokenizer
        .encode(&text, encode)
        .map_err(|error| CliError::Failed(format!("{}: {error}", args.text.display())))?;
    drop(text);
    let options = EvalOptions {
        chunk_tokens: args.ctx,
        max_chunks: args.chunks,
        bos: session
            .tokenizer
            .bos()
            .filter(|_| session.tokenizer.adds_bos()),
    };
    let n_chunks = n_chunks(tokens.len(), &options);
    if n_chunks == 0 {
        return Err(CliError::Failed(format!(
            "{} has {} tokens, less than one chunk of {}; give a longer text or a smaller --ctx",
            args.text.display(),
            tokens.len(),
            args.ctx
        )));
    }
    let header = Header::new(
        &args.model,
        session.engine.vocab_size(),
        args.ctx,
        &tokens[..n_chunks * args.ctx],
    );
    let report = measure(args, &mut session, &tokens, &options, header, base)?;
    if args.json {
        return terminal::print_json(&report);
    }
    terminal::print(&report.text())
}

/// An engine for one chunk at a time, with as many rows of logits at once as memory allows.
fn options(open: &OpenModel, args: &EvalArgs) -> EngineOptions {
    let row_bytes = open.model.spec().vocab_size.max(1) * 4;
    EngineOptions {
        max_outputs: (LOGIT_BYTES / row_bytes).clamp(8, 256),
        deterministic: !args.as_prompt,
        ..EngineOptions::single(args.ctx)
    }
}

fn measure(
    args: &EvalArgs,
    session: &mut Session,
    tokens: &[u32],
    options: &EvalOptions,
    header: Header,
    base: Option<Reader>,
) -> Result<Report, CliError> {
    let n_chunks = header.n_chunks();
    let mut base = base.map(|base| base.matching(&header)).transpose()?;
    let mut report = Report::new(
        &args.model,
        args.ctx,
        base.as_ref().map(|base| base.model()),
    );
    let mut writer = match &args.save_logits {
        Some(path) => Some(Writer::create(path, &header)?),
        None => None,
    };
    let bar = CountBar::new("chunk", n_chunks as u64);
    let (stopped, part) = (bar.clone(), writer.as_ref().map(Writer::part));
    let _guard = signals::on_signal(move |_| {
        stopped.clear();
        if let Some(part) = &part {
            let _ = std::fs::remove_file(part);
        }
        stop_line("while measuring");
        Outcome::Exit
    });
    let mut perplexity = Perplexity::default();
    let mut divergence = base.as_ref().map(|_| Divergence::default());
    let mut baseline = Vec::new();
    for chunk in 0..n_chunks {
        let part = &tokens[chunk * args.ctx..(chunk + 1) * args.ctx];
        // A row cannot stop the engine, so what went wrong in one is kept for the end of the chunk.
        let mut failed = Ok(());
        session.engine.evaluate(part, options, &mut |row| {
            perplexity.add(&row);
            if failed.is_err() {
                return;
            }
            if let Some(writer) = &mut writer {
                failed = writer.write(row.logits);
            }
            if let (Some(base), Some(divergence)) = (&mut base, &mut divergence) {
                failed = base.read(&mut baseline);
                if failed.is_ok() {
                    divergence.add(&baseline, row.logits);
                }
            }
        })?;
        failed?;
        let so_far = perplexity.perplexity();
        if !so_far.is_finite() {
            return Err(CliError::Failed(format!(
                "the perplexity of chunk {} is not a number: the model or its file is damaged",
                chunk + 1
            )));
        }
        report.chunk(so_far);
        bar.show(chunk as u64 + 1, format!("perplexity {so_far:.4}"));
        bar.note_in_log(&format!(
            "chunk {}/{n_chunks}: perplexity {so_far:.4}",
            chunk + 1
        ));
    }
    bar.clear();
    if let Some(writer) = writer {
        writer.finish()?;
    }
    report.finish(&perplexity, divergence.as_ref());
    Ok(report)
}
