//! `cargo xtask TASK`: the project's tasks.

mod fixtures;
mod invariants;
mod models;
mod run;
mod setup;
mod stages;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::bail;

const HELP: &str = "\
Usage: cargo xtask TASK

Tasks:
  test [--only STAGE]  Install what is missing, then check everything
  test --list          Names of the stages
  models               Download the models that tests use into target/models
  fixtures [NAME]      Write the Python-made test fixtures again (all, or one folder)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match task(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn task(args: &[&str]) -> anyhow::Result<()> {
    match args {
        ["test"] => test::all(),
        ["test", "--list"] => {
            test::list();
            Ok(())
        }
        ["test", "--only", stage] => test::only(stage),
        ["models"] => models::fetch(),
        ["fixtures"] => fixtures::generate(None),
        ["fixtures", name] => fixtures::generate(Some(name)),
        [] | ["help" | "-h" | "--help"] => {
            print!("{HELP}");
            Ok(())
        }
        other => bail!("no such task: {}\n\n{HELP}", other.join(" ")),
    }
}
