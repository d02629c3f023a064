//! Ctrl-C and SIGTERM while a conversation runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::session::stop_line;
use crate::signals::{self, Guard, Outcome, Signal};

/// Set when the user wants an answer to stop.
#[derive(Debug, Clone, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Whether the answer should stop.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Any signal ends the program while the guard lives.
pub(super) fn end_the_program() -> Guard {
    signals::on_signal(|_| {
        stop_line("while answering");
        Outcome::Exit
    })
}

/// The first Ctrl-C sets the flag while the guard lives; a second one, or SIGTERM, ends the program.
pub(super) fn stop_the_answer() -> (StopFlag, Guard) {
    let flag = StopFlag::default();
    let set = flag.clone();
    let guard = signals::on_signal(move |signal| match signal {
        Signal::Interrupt if !set.0.swap(true, Ordering::Relaxed) => Outcome::Handled,
        _ => Outcome::Exit,
    });
    (flag, guard)
}

/// Puts the terminal back as it is now, and says so, if a signal ends the program while the guard lives.
pub(super) fn restore_the_terminal() -> Guard {
    let restore = terminal_restorer();
    signals::on_signal(move |_| {
        restore();
        stop_line("the conversation");
        Outcome::Exit
    })
}

#[cfg(unix)]
fn terminal_restorer() -> impl Fn() + Send {
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    let before = tcgetattr(rustix::stdio::stdin()).ok();
    move || {
        if let Some(before) = &before {
            // A terminal that has gone needs nothing.
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(not(unix))]
fn terminal_restorer() -> impl Fn() + Send {
    || ()
}
