//! Waiting: spin for a moment, then park.

use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a thread spins before it parks: a few times the length of a short phase, and far below
/// a scheduler's time slice.
const SPIN: Duration = Duration::from_micros(50);
/// Turns of the spin loop before the clock is read at all; shorter waits are not counted.
const FREE_TURNS: u32 = 64;

/// Time spent waiting.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waited {
    pub(super) seconds: f64,
}

impl std::ops::AddAssign for Waited {
    fn add_assign(&mut self, other: Self) {
        self.seconds += other.seconds;
    }
}

/// Where threads of a team park; seat 0 is the caller's.
pub(super) struct Bench {
    seats: Vec<Seat>,
    n_parked: AtomicUsize,
}

#[derive(Default)]
struct Seat {
    thread: Mutex<Option<Thread>>,
    parked: AtomicBool,
}

impl Bench {
    pub(super) fn new(n_threads: usize) -> Self {
        Self {
            seats: (0..n_threads).map(|_| Seat::default()).collect(),
            n_parked: AtomicUsize::new(0),
        }
    }

    /// Takes seat `index` for the current thread.
    pub(super) fn seat(&self, index: usize) {
        *super::lock(&self.seats[index].thread) = Some(std::thread::current());
    }

    /// Takes the caller's seat.
    pub(super) fn seat_caller(&self) {
        self.seat(0);
    }

    /// Returns once `ready` holds. Whoever makes it hold stores with `SeqCst` and then wakes.
    pub(super) fn wait(&self, index: usize, ready: impl Fn() -> bool) -> Waited {
        for _ in 0..FREE_TURNS {
            if ready() {
                return Waited::default();
            }
            std::hint::spin_loop();
        }
        let start = Instant::now();
        while start.elapsed() < SPIN {
            for _ in 0..16 {
                if ready() {
                    return since(start);
                }
                std::hint::spin_loop();
            }
        }
        let seat = &self.seats[index];
        seat.parked.store(true, SeqCst);
        self.n_parked.fetch_add(1, SeqCst);
        while !ready() {
            std::thread::park();
        }
        self.n_parked.fetch_sub(1, SeqCst);
        seat.parked.store(false, SeqCst);
        since(start)
    }

    /// Wakes up to `most` parked threads.
    pub(super) fn wake(&self, most: usize) {
        if most == 0 || self.n_parked.load(SeqCst) == 0 {
            return;
        }
        let parked = self.seats.iter().filter(|s| s.parked.load(SeqCst));
        for seat in parked.take(most) {
            seat.wake();
        }
    }

    /// Wakes every thread.
    pub(super) fn wake_all(&self) {
        self.seats.iter().for_each(Seat::wake);
    }
}

impl Seat {
    fn wake(&self) {
        if let Some(thread) = &*super::lock(&self.thread) {
            thread.unpark();
        }
    }
}

fn since(start: Instant) -> Waited {
    Waited {
        seconds: start.elapsed().as_secs_f64(),
    }
}
