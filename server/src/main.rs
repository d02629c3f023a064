//! The `kvant` program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kvant::{pull, signals};

/// Run quantised language models on this machine.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Pull(pull::command::PullArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = signals::install() {
        eprintln!("error: cannot listen for signals: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match &cli.command {
        Command::Pull(args) => pull::command::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
