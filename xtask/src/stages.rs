//! Runs stages one after another with a heading and a time each, and sums up at the end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::run::Counts;

/// How a stage ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything held.
    Done,
    /// Tests ran.
    Tests(Counts),
    /// It does not apply here; the reason.
    Skipped(String),
}

/// One step of a task.
pub(crate) struct Stage {
    /// What `--only` takes.
    pub(crate) name: &'static str,
    /// One line of what it does.
    pub(crate) about: &'static str,
    /// The work.
    pub(crate) work: fn() -> Result<Outcome>,
}

/// Runs the stages in order until one fails, prints the table of times and, last, the sum of all
/// tests.
pub(crate) fn run_all(stages: &[Stage]) -> Result<()> {
    let started = Instant::now();
    let mut rows: Vec<(&str, String, Duration)> = Vec::new();
    let mut counts = Counts::default();
    for (index, stage) in stages.iter().enumerate() {
        println!(
            "\n== {} ({}/{}): {}",
            stage.name,
            index + 1,
            stages.len(),
            stage.about
        );
        let begun = Instant::now();
        let outcome = (stage.work)();
        let took = begun.elapsed();
        let text = match &outcome {
            Ok(Outcome::Done) => "ok".to_owned(),
            Ok(Outcome::Tests(run)) => {
                counts += *run;
                format!("{} passed, {} ignored", run.passed, run.ignored)
            }
            Ok(Outcome::Skipped(why)) => format!("skipped: {why}"),
            Err(_) => "FAILED".to_owned(),
        };
        println!("-- {}: {text} ({:.1} s)", stage.name, took.as_secs_f64());
        rows.push((stage.name, text, took));
        if let Err(error) = outcome {
            print_table(&rows, started.elapsed());
            let name = stage.name;
            return Err(error)
                .with_context(|| format!("stage {name} (cargo xtask test --only {name})"));
        }
    }
    print_table(&rows, started.elapsed());
    if counts == Counts::default() {
        return Ok(());
    }
    println!(
        "\ntest: {} passed, {} failed, {} ignored",
        counts.passed, counts.failed, counts.ignored
    );
    Ok(())
}

fn print_table(rows: &[(&str, String, Duration)], total: Duration) {
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    println!();
    for (name, text, took) in rows {
        println!("{name:width$}  {:>7.1} s  {text}", took.as_secs_f64());
    }
    println!("{:width$}  {:>7.1} s", "total", total.as_secs_f64());
}
