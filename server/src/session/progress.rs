//! Bars on a terminal, silence in a log.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kvant_engine::LoadProgress;

use crate::signals;
use crate::terminal::{stderr_is_terminal, stdout_is_terminal};

/// Loading that takes less than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(300);

/// Progress of loading a model.
#[derive(Debug, Clone)]
pub(super) struct LoadBar {
    bar: ProgressBar,
    started: std::time::Instant,
}

impl LoadBar {
    pub(super) fn new(name: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(
            "loading {msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes}",
        ) {
            bar.set_style(style);
        }
        bar.set_message(name.to_owned());
        Self {
            bar,
            started: std::time::Instant::now(),
        }
    }

    pub(super) fn show(&self, progress: LoadProgress) {
        if self.bar.is_hidden() && stderr_is_terminal() && self.started.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(progress.total_bytes);
        self.bar.set_position(progress.done_bytes);
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Progress of counted work, with the time that is left.
#[derive(Debug, Clone)]
pub struct CountBar(ProgressBar);

impl CountBar {
    /// A bar of `total` units on a terminal.
    pub fn new(what: &str, total: u64) -> Self {
        let target = if stderr_is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        if let Ok(style) =
            ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} {eta} left")
        {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        Self(bar)
    }

    /// Shows how far the work is and a result so far.
    pub fn show(&self, done: u64, message: String) {
        self.0.set_message(message);
        self.0.set_position(done);
    }

    /// One more unit is done.
    pub fn advance(&self, message: String) {
        self.0.set_message(message);
        self.0.inc(1);
    }

    /// Prints a line where nobody sees the bar.
    pub fn note_in_log(&self, line: &str) {
        if self.0.is_hidden() {
            eprintln!("{line}");
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Says that a signal ended the program, on a line of its own.
pub fn stop_line(when: &str) {
    let answer_is_on_screen = stdout_is_terminal() && stderr_is_terminal();
    let start = if answer_is_on_screen { "\n" } else { "" };
    signals::say(&format!("{start}stopped {when}"));
}
