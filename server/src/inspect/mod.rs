//! `kvant inspect`: what a model's files say, and what it will take to run.

mod metadata;
mod report;

use std::path::PathBuf;

use clap::Args;
use kvant_engine::EngineOptions;

use crate::error::CliError;
use crate::session::{
    EngineArgs, MODEL_HELP, OpenModel, caps, memory_plan, open_checkpoint, open_model, token_count,
};
use crate::terminal;
use report::{Files, Memory, Report, Shape, TensorRow};

/// Show a model's metadata, its bytes by type and the memory it will take.
///
/// No weights are loaded. A model that cannot run is shown as far as it makes sense.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvant inspect smollm2-135m
  kvant inspect model.gguf --ctx 32768
  kvant inspect model.gguf --plan
  kvant inspect ./checkpoint-folder --tensors --json")]
pub struct InspectArgs {
    #[arg(help = MODEL_HELP)]
    model: String,

    /// Predict memory for this context, in tokens
    #[arg(long, value_name = "TOKENS", value_parser = token_count)]
    ctx: Option<usize>,

    /// Print the program that runs a step, and the KV plan
    #[arg(long)]
    plan: bool,

    /// List every tensor
    #[arg(long)]
    tensors: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    engine: EngineArgs,
}

/// Runs the subcommand.
pub fn run(args: &InspectArgs) -> Result<(), CliError> {
    let (path, checkpoint) = open_checkpoint(&args.model)?;
    let files = Files::new(&path, &checkpoint);
    let metadata = metadata::summary(&checkpoint);
    let tensors = args
        .tensors
        .then(|| checkpoint.tensors().iter().map(TensorRow::new).collect());
    let by_type = report::by_type(checkpoint.tensors());
    let mut report = Report {
        model: args.model.clone(),
        files,
        shape: None,
        by_type,
        memory: None,
        cannot_run: None,
        plan: None,
        metadata,
        tensors,
    };
    match model_part(args, path, checkpoint, &mut report) {
        Ok(()) => {}
        Err(error) if args.plan => return Err(error),
        Err(error) => report.cannot_run = Some(error.to_string()),
    }
    if args.json {
        return terminal::print_json(&report);
    }
    terminal::print(&report.text())
}

/// The part that needs a model that can run.
fn model_part(
    args: &InspectArgs,
    path: PathBuf,
    checkpoint: kvant_format::Checkpoint,
    report: &mut Report,
) -> Result<(), CliError> {
    let open = open_model(&args.model, path, checkpoint)?;
    report.shape = Some(Shape::new(open.model.spec()));
    let mut options = EngineOptions::single(open.context_len(args.ctx));
    args.engine
        .apply(&mut options, open.model.spec().layers.len());
    let plan = memory_plan(&args.engine, &open.model, &options)?;
    let device = caps(&args.engine)?;
    report.memory = Some(Memory::new(&device, &options, args.engine.kv, &plan));
    if args.plan {
        report.plan = Some(plan_text(&open, &options));
    }
    Ok(())
}

/// The lowered program and where keys and values go, as text.
fn plan_text(open: &OpenModel, options: &EngineOptions) -> String {
    let spec = open.model.spec();
    let plan = options.plan(spec.layers.len());
    format!("{}\n{}", open.model.program(), report::kv_plan(spec, &plan))
}
