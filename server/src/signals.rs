//! Ctrl-C and SIGTERM: one thread receives them and asks what is going on now.
//!
//! Work that wants a say (the pull of a file, the answer of a model) pushes a handler for as long
//! as it runs. The newest handler is asked first; where none keeps the program alive, it exits
//! with 128 + the signal's number, as shells expect.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C in the terminal (SIGINT).
    Interrupt,
    /// A polite kill (SIGTERM).
    Terminate,
}

impl Signal {
    /// Exit status of a program that this signal ended.
    pub fn exit_code(self) -> i32 {
        match self {
            Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

/// What a handler decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The signal has been dealt with: the program lives on.
    Handled,
    /// The program should end, after the remaining handlers had their turn.
    Exit,
}

type Handler = Box<dyn Fn(Signal) -> Outcome + Send>;

struct Handlers {
    next_id: u64,
    stack: Vec<(u64, Handler)>,
}

fn handlers() -> MutexGuard<'static, Handlers> {
    static HANDLERS: OnceLock<Mutex<Handlers>> = OnceLock::new();
    HANDLERS
        .get_or_init(|| {
            Mutex::new(Handlers {
                next_id: 0,
                stack: Vec::new(),
            })
        })
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a handler in place until dropped.
#[must_use = "the handler is removed when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    id: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        handlers().stack.retain(|(id, _)| *id != self.id);
    }
}

/// Runs `handler` on each signal until the guard is dropped. It runs on the signal thread, while
/// the interrupted work goes on, and must not push or drop handlers itself.
pub fn on_signal(handler: impl Fn(Signal) -> Outcome + Send + 'static) -> Guard {
    let mut handlers = handlers();
    let id = handlers.next_id;
    handlers.next_id += 1;
    handlers.stack.push((id, Box::new(handler)));
    Guard { id }
}

/// Says on standard error why the program ends: only the first time, so that the handler that knows
/// most, the newest, is the one heard.
pub fn say(line: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!("{line}");
    }
}

/// Asks the handlers, newest first; `true` if one of them keeps the program alive.
fn dispatch(signal: Signal) -> bool {
    handlers()
        .stack
        .iter()
        .rev()
        .any(|(_, handler)| handler(signal) == Outcome::Handled)
}

/// Starts the signal thread. Call once, before any work.
#[cfg(unix)]
pub fn install() -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for number in signals.forever() {
                let signal = if number == SIGINT {
                    Signal::Interrupt
                } else {
                    Signal::Terminate
                };
                if !dispatch(signal) {
                    say("stopped");
                    std::process::exit(signal.exit_code());
                }
            }
        })?;
    Ok(())
}

/// Where there are no POSIX signals the system's own behaviour stands: Ctrl-C ends the program.
#[cfg(not(unix))]
pub fn install() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn newest_handler_is_asked_first_and_a_dropped_one_never() {
        let outer_calls = Arc::new(AtomicU32::new(0));
        let calls = Arc::clone(&outer_calls);
        let _outer = on_signal(move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            Outcome::Exit
        });
        let inner = on_signal(|signal| match signal {
            Signal::Interrupt => Outcome::Handled,
            Signal::Terminate => Outcome::Exit,
        });
        assert!(dispatch(Signal::Interrupt));
        assert_eq!(outer_calls.load(Ordering::SeqCst), 0);
        assert!(!dispatch(Signal::Terminate));
        assert_eq!(outer_calls.load(Ordering::SeqCst), 1);
        drop(inner);
        assert!(!dispatch(Signal::Interrupt));
        assert_eq!(outer_calls.load(Ordering::SeqCst), 2);
    }
}
