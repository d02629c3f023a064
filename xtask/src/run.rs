//! Running commands: shown before they start, their tests counted, a sign of life while they work.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Numbers of tests, summed over all `test result:` lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that held.
    pub(crate) passed: u64,
    /// Tests that did not.
    pub(crate) failed: u64,
    /// Tests that were not run.
    pub(crate) ignored: u64,
}

impl Counts {
    /// Adds the numbers of one line of output, if it is a test binary's summary.
    fn add_line(&mut self, line: &str) {
        let Some(rest) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Runs a command and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    run_counting(command).map(|_| ())
}

/// Runs a command, counting the tests its output reports.
pub(crate) fn run_counting(command: &mut Command) -> Result<Counts> {
    let line = describe(command);
    println!("$ {line}");
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    let output = child.stdout.take();
    let alive = sign_of_life();
    let mut counts = Counts::default();
    if let Some(output) = output {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes)? > 0 {
            let line = String::from_utf8_lossy(&bytes);
            counts.add_line(&strip_colour(&line));
            let mut out = std::io::stdout().lock();
            out.write_all(&bytes)?;
            out.flush()?;
            bytes.clear();
        }
    }
    let status = child.wait()?;
    drop(alive);
    if !status.success() {
        let failed = if counts.failed > 0 {
            format!(" ({} tests failed)", counts.failed)
        } else {
            String::new()
        };
        bail!("{status}{failed} from:\n  {line}");
    }
    Ok(counts)
}

/// Prints the time every minute until the returned value is dropped, so that a log never looks
/// dead while a compiler works.
fn sign_of_life() -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel::<()>();
    let started = Instant::now();
    thread::spawn(move || {
        let minute = Duration::from_secs(60);
        while receiver.recv_timeout(minute) == Err(RecvTimeoutError::Timeout) {
            println!("… {} s so far", started.elapsed().as_secs());
        }
    });
    sender
}

/// A command as one types it.
pub(crate) fn describe(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(&program)
        .to_owned();
    let envs = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_string_lossy();
        Some(format!("{}={}", name.to_string_lossy(), quote(&value)))
    });
    let args = command.get_args().map(|arg| quote(&arg.to_string_lossy()));
    envs.chain([program])
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Removes terminal colour codes (`ESC [ … m`).
fn strip_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..at]);
        rest = match rest[at..].find('m') {
            Some(end) => &rest[at + end + 1..],
            None => "",
        };
    }
    plain.push_str(rest);
    plain
}

/// Whether a program answers to `--version`.
pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted_with_and_without_colour() {
        let mut counts = Counts::default();
        for line in [
            "test result: ok. 18 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s",
            "test result: \u{1b}[31mFAILED\u{1b}[0m. 2 passed; 3 failed; 0 ignored; 0 measured; 5 filtered out; finished in 10.50s",
            "test some::test ... ok",
            "running 7 tests",
        ] {
            counts.add_line(&strip_colour(line));
        }
        assert_eq!(
            counts,
            Counts {
                passed: 20,
                failed: 3,
                ignored: 1
            }
        );
    }

    #[test]
    fn a_command_can_be_typed_again() {
        let mut command = Command::new("dir/cargo");
        command
            .env("FLAGS", "-D warnings")
            .args(["test", "--", "it's"]);
        assert_eq!(
            describe(&command),
            r"FLAGS='-D warnings' cargo test -- 'it'\''s'"
        );
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(Command::new("cargo").args(["no-such-command-at-all"]));
        let error = error.expect_err("fails").to_string();
        assert!(error.contains("cargo no-such-command-at-all"), "{error}");
    }
}
