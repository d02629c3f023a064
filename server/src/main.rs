//! The `kvant` program.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use kvant::{bench, chat, eval, inspect, pull, run, signals, tokenize};

/// Run quantised language models on this machine.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 done, 1 failed, 2 the command line makes no sense, \
                  130 stopped by Ctrl-C, 143 stopped by SIGTERM."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Chat(chat::ChatArgs),
    Run(run::RunArgs),
    Tokenize(tokenize::TokenizeArgs),
    Inspect(inspect::InspectArgs),
    Bench(bench::BenchArgs),
    Eval(eval::EvalArgs),
    Pull(pull::command::PullArgs),
}

fn main() -> ExitCode {
    let started = Instant::now();
    let cli = Cli::parse();
    if let Err(error) = signals::install() {
        eprintln!("error: cannot listen for signals: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match &cli.command {
        Command::Chat(args) => chat::run(args),
        Command::Run(args) => run::run(args, started),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Pull(args) => pull::command::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_silent() {
                eprintln!("error: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
