//! What the user sees while waiting: a bar on a terminal, plain lines in a log.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::units::Bytes;

/// Speaks to the user on standard error; standard output is left to results.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ui {
    terminal: bool,
}

impl Ui {
    /// Bars if standard error is a terminal, lines otherwise.
    pub(super) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Whether a person may be watching.
    pub(super) fn is_terminal(self) -> bool {
        self.terminal
    }

    /// Prints one line.
    pub(super) fn note(self, line: &str) {
        eprintln!("{line}");
    }

    /// Starts to show work on a file of `total` bytes, `done` of which are here already. `doing`
    /// is the work: downloading, unpacking.
    pub(crate) fn progress(
        self,
        doing: &str,
        label: String,
        total: Option<u64>,
        done: u64,
    ) -> Progress {
        if done > 0 {
            self.note(&format!("{label}: going on from {}", Bytes(done)));
        }
        if self.terminal {
            return Progress(Shown::Bar(bar(label, total, done)));
        }
        match total {
            Some(total) => self.note(&format!("{doing} {label} ({})", Bytes(total))),
            None => self.note(&format!("{doing} {label}")),
        }
        let now = Instant::now();
        let lines = Lines {
            label,
            total,
            first: done,
            started: now,
            done,
            printed: now,
        };
        Progress(Shown::Lines(Mutex::new(lines)))
    }
}

impl Default for Ui {
    fn default() -> Self {
        Self::new()
    }
}

/// One download on display.
#[derive(Debug)]
pub(crate) struct Progress(Shown);

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
}

#[derive(Debug)]
struct Lines {
    label: String,
    total: Option<u64>,
    first: u64,
    started: Instant,
    done: u64,
    printed: Instant,
}

/// Time between two lines in a log.
const LINE_EVERY: Duration = Duration::from_secs(5);

impl Progress {
    /// Tells how many bytes of the file are here.
    pub(super) fn set_position(&self, done: u64) {
        match &self.0 {
            Shown::Bar(bar) => bar.set_position(done),
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(|e| e.into_inner());
                lines.done = done;
                if lines.printed.elapsed() >= LINE_EVERY {
                    lines.printed = Instant::now();
                    eprintln!("{}", lines.describe());
                }
            }
        }
    }

    /// Ends the display.
    pub(super) fn finish(self) {
        match self.0 {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Lines(lines) => {
                let lines = lines.into_inner().unwrap_or_else(|e| e.into_inner());
                eprintln!("{}", lines.describe());
            }
        }
    }
}

impl Lines {
    fn describe(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-3);
        let speed = self.done.saturating_sub(self.first) as f64 / seconds;
        let rate = Bytes(speed as u64);
        match self.total {
            Some(total) => {
                let percent = (self.done as f64 / total.max(1) as f64 * 100.0).floor();
                let done = Bytes(self.done);
                format!(
                    "{}: {percent:.0} % ({done} of {}), {rate}/s",
                    self.label,
                    Bytes(total)
                )
            }
            None => format!("{}: {}, {rate}/s", self.label, Bytes(self.done)),
        }
    }
}

fn bar(label: String, total: Option<u64>, done: u64) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
        ),
        None => (
            ProgressBar::no_length(),
            "{msg} {spinner} {decimal_bytes} {decimal_bytes_per_sec} {elapsed}",
        ),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(label);
    bar.set_position(done);
    bar.reset_eta();
    bar
}
