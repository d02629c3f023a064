//! A persistent team of threads that walks a list of phases together.
//!
//! A phase is a number of chunks that may run in any order on any thread; the next phase begins
//! when all of them are done. There is no barrier that waits for *threads*: one word holds the
//! current phase and its next unclaimed chunk, and whoever finishes a phase's last chunk opens the
//! next phase. A thread that was not scheduled in time has claimed nothing, so nobody waits for it.
//! Waiting threads spin briefly and then park, which leaves their core to the kernel.

mod guard;
mod topology;
mod wait;

pub use topology::default_threads;

use guard::{Guard, Run};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use wait::{Bench, Waited};

/// What a team runs: phases in order, each of independent chunks.
pub(crate) trait Work: Sync {
    /// Phases, in order.
    fn n_phases(&self) -> usize;
    /// Chunks of a phase; the same answer during the whole run. Phases of no chunks are skipped.
    fn n_chunks(&self, phase: usize) -> usize;
    /// How much there is to do, in a unit that does not depend on the threads it is cut for: the times
    /// of runs are compared when they do about as much.
    fn amount(&self) -> u64;
    /// Runs a chunk on thread `thread < n_threads`. `first` says that it is the thread's first chunk
    /// of the phase, so that private preparation is done once.
    fn run_chunk(&self, phase: usize, chunk: usize, thread: usize, first: bool);
}

/// A chunk panicked: the run ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TeamPanic {
    /// The phase whose chunk panicked.
    pub(crate) phase: usize,
    /// The panic's message.
    pub(crate) message: String,
}

/// The caller and `n_threads - 1` workers.
pub(crate) struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    guard: Mutex<Guard>,
}

#[repr(align(128))]
struct Padded<T>(T);

/// A pointer to the caller's work, valid while `live` is set or `inside` is not zero.
#[derive(Clone, Copy)]
struct Job(*const (dyn Work + 'static));
// SAFETY: `dyn Work` is `Sync`, so a reference to it may be used on any thread.
unsafe impl Send for Job {}

struct Shared {
    /// `phase << 32 | next chunk`.
    claim: Padded<AtomicU64>,
    /// Chunks done of the current phase.
    done: Padded<AtomicU32>,
    /// Counts the runs, so that idle workers notice a new one.
    epoch: Padded<AtomicU64>,
    live: AtomicBool,
    stop: AtomicBool,
    /// Threads that take part in this run.
    active: AtomicUsize,
    /// Workers that may hold a reference to the job.
    inside: Padded<AtomicUsize>,
    job: Mutex<Option<Job>>,
    bench: Bench,
    /// What each thread did in this run.
    tallies: Vec<Padded<Mutex<Tally>>>,
    panic: Mutex<Option<TeamPanic>>,
}

/// What a thread did in a run.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    chunks: u64,
    busy_seconds: f64,
}

/// Seconds that the caller waits in a run before it may send threads away.
const PATIENCE_SECONDS: f64 = 0.02;

const END: u64 = (u32::MAX as u64) << 32;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// A team of `n_threads`, the caller of [`Team::run`] included. Fewer when the system refuses
    /// to start threads.
    pub(crate) fn new(n_threads: usize) -> Self {
        let wanted = if cfg!(target_arch = "wasm32") {
            1
        } else {
            n_threads.max(1)
        };
        let shared = Arc::new(Shared {
            claim: Padded(AtomicU64::new(END)),
            done: Padded(AtomicU32::new(0)),
            epoch: Padded(AtomicU64::new(0)),
            live: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            active: AtomicUsize::new(1),
            inside: Padded(AtomicUsize::new(0)),
            job: Mutex::new(None),
            bench: Bench::new(wanted),
            tallies: (0..wanted)
                .map(|_| Padded(Mutex::new(Tally::default())))
                .collect(),
            panic: Mutex::new(None),
        });
        let workers: Vec<_> = (1..wanted)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("kvant-cpu-{index}"))
                    .spawn(move || shared.serve(index))
                    .ok()
            })
            .collect();
        let guard = Mutex::new(Guard::new(workers.len() + 1));
        Self {
            shared,
            workers,
            guard,
        }
    }

    /// Threads, the caller included.
    pub(crate) fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Threads that the next run uses, as far as can be told: work may be cut for so many.
    pub(crate) fn next_threads(&self) -> usize {
        lock(&self.guard).threads()
    }

    /// Runs all phases of `work` and returns when every chunk is done, or when one has panicked and
    /// all threads have left.
    pub(crate) fn run(&self, work: &dyn Work) -> Result<(), TeamPanic> {
        let mut guard = lock(&self.guard);
        if self.workers.is_empty() {
            return run_alone(work);
        }
        let active = guard.threads();
        let clock = std::time::Instant::now();
        if active == 1 {
            run_alone(work)?;
        } else {
            self.shared.run(work, active)?;
        }
        let wall_seconds = clock.elapsed().as_secs_f64();
        guard.ran(&Run {
            threads: active,
            amount: work.amount(),
            wall_seconds,
            single_seconds: self.shared.single_thread_seconds().filter(|_| active > 1),
        });
        Ok(())
    }

    /// Runs `chunk(index, thread)` for every `index < n_chunks`.
    pub(crate) fn for_each(
        &self,
        n_chunks: usize,
        chunk: impl Fn(usize, usize) + Sync,
    ) -> Result<(), TeamPanic> {
        struct OnePhase<F>(usize, F);
        impl<F: Fn(usize, usize) + Sync> Work for OnePhase<F> {
            fn n_phases(&self) -> usize {
                1
            }
            fn n_chunks(&self, _phase: usize) -> usize {
                self.0
            }
            fn amount(&self) -> u64 {
                self.0 as u64
            }
            fn run_chunk(&self, _phase: usize, chunk: usize, thread: usize, _first: bool) {
                (self.1)(chunk, thread);
            }
        }
        self.run(&OnePhase(n_chunks, chunk))
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.epoch.0.fetch_add(1, SeqCst);
        self.shared.bench.wake_all();
        for worker in self.workers.drain(..) {
            // A worker catches panics of its work; one of the team itself has nothing left to lose.
            let _ = worker.join();
        }
    }
}

fn run_alone(work: &dyn Work) -> Result<(), TeamPanic> {
    for phase in 0..work.n_phases() {
        for chunk in 0..work.n_chunks(phase) {
            run_caught(work, phase, chunk, 0, chunk == 0)?;
        }
    }
    Ok(())
}

fn run_caught(
    work: &dyn Work,
    phase: usize,
    chunk: usize,
    thread: usize,
    first: bool,
) -> Result<(), TeamPanic> {
    catch_unwind(AssertUnwindSafe(|| {
        work.run_chunk(phase, chunk, thread, first)
    }))
    .map_err(|payload| TeamPanic {
        phase,
        message: panic_message(payload.as_ref()),
    })
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "panic without a message".to_owned()
    }
}

impl Shared {
    /// Runs `work` on the calling thread and on `active - 1` workers.
    fn run(&self, work: &dyn Work, active: usize) -> Result<(), TeamPanic> {
        // SAFETY: only the lifetime is erased. Workers use the pointer only between raising
        // `inside` while `live` is set and lowering it again, and this function returns after
        // `live` is cleared and `inside` is zero.
        let job = unsafe {
            std::mem::transmute::<*const dyn Work, *const (dyn Work + 'static)>(work as *const _)
        };
        for tally in &self.tallies {
            *lock(&tally.0) = Tally::default();
        }
        *lock(&self.panic) = None;
        *lock(&self.job) = Some(Job(job));
        self.bench.seat_caller();
        self.active.store(active, Relaxed);
        let first = first_phase(work, 0);
        self.done.0.store(0, Relaxed);
        self.claim
            .0
            .store(first.map_or(END, |phase| (phase as u64) << 32), SeqCst);
        self.live.store(true, SeqCst);
        self.epoch.0.fetch_add(1, SeqCst);
        self.bench.wake(active - 1);

        self.walk(work, 0);

        self.live.store(false, SeqCst);
        let mut turns = 0u32;
        while self.inside.0.load(SeqCst) != 0 {
            turns += 1;
            if turns < 100 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        *lock(&self.job) = None;
        match lock(&self.panic).take() {
            Some(panic) => Err(panic),
            None => Ok(()),
        }
    }

    /// A worker's life: waits for a run, takes part, waits again.
    fn serve(&self, thread: usize) {
        self.bench.seat(thread);
        let mut seen = 0;
        loop {
            self.bench
                .wait(thread, || self.epoch.0.load(SeqCst) != seen);
            seen = self.epoch.0.load(SeqCst);
            if self.stop.load(SeqCst) {
                return;
            }
            self.inside.0.fetch_add(1, SeqCst);
            if self.live.load(SeqCst) && thread < self.active.load(SeqCst) {
                let job = *lock(&self.job);
                if let Some(Job(work)) = job {
                    // SAFETY: `inside` was raised before `live` was seen set, so the run has not
                    // returned and cannot return before `inside` is lowered below.
                    self.walk(unsafe { &*work }, thread);
                }
            }
            self.inside.0.fetch_sub(1, SeqCst);
        }
    }

    /// Claims and runs chunks until the work's end.
    fn walk(&self, work: &dyn Work, thread: usize) {
        let clock = std::time::Instant::now();
        let mut waited = Waited::default();
        let mut patience = Patience::default();
        let mut chunks = 0;
        let mut prepared = usize::MAX;
        let mut claimed = None;
        loop {
            if thread > 0 && self.active.load(Relaxed) <= thread && claimed.is_none() {
                break;
            }
            let (phase, chunk) = claimed.take().unwrap_or_else(|| {
                let word = self.claim.0.fetch_add(1, AcqRel);
                ((word >> 32) as usize, (word & 0xffff_ffff) as usize)
            });
            if phase >= work.n_phases() {
                break;
            }
            let n_chunks = work.n_chunks(phase);
            if chunk >= n_chunks {
                waited += self.bench.wait(thread, || {
                    (self.claim.0.load(SeqCst) >> 32) as usize != phase
                });
                if thread == 0 {
                    patience.judge(&self.active, waited.seconds, || clock.elapsed());
                }
                continue;
            }
            if let Err(panic) = run_caught(work, phase, chunk, thread, prepared != phase) {
                // The phase cannot complete without this chunk, so nobody else moves the word on.
                lock(&self.panic).get_or_insert(panic);
                self.claim.0.store(END, SeqCst);
                self.bench.wake_all();
                break;
            }
            prepared = phase;
            chunks += 1;
            if self.done.0.fetch_add(1, AcqRel) as usize + 1 == n_chunks {
                self.done.0.store(0, Relaxed);
                match first_phase(work, phase + 1) {
                    Some(next) => {
                        // The opener takes the first chunk with the same store.
                        self.claim.0.store((next as u64) << 32 | 1, SeqCst);
                        claimed = Some((next, 0));
                        self.bench.wake(work.n_chunks(next) - 1);
                    }
                    None => {
                        // Whoever still waits in the walk leaves it.
                        self.claim.0.store(END, SeqCst);
                        self.bench.wake(usize::MAX);
                    }
                }
            }
        }
        *lock(&self.tallies[thread].0) = Tally {
            chunks,
            busy_seconds: clock.elapsed().as_secs_f64() - waited.seconds,
        };
    }

    /// What the last run would have taken on its fastest thread alone, judged by the chunks that
    /// thread did and the time it was not waiting. `None` when no thread did enough to judge by.
    fn single_thread_seconds(&self) -> Option<f64> {
        let tallies: Vec<Tally> = self.tallies.iter().map(|t| *lock(&t.0)).collect();
        let all: u64 = tallies.iter().map(|t| t.chunks).sum();
        tallies
            .iter()
            .filter(|t| t.chunks >= 16 && t.chunks * 8 >= all)
            .map(|t| t.busy_seconds * all as f64 / t.chunks as f64)
            .min_by(f64::total_cmp)
    }
}

/// The caller's patience with the others in one run.
#[derive(Default)]
struct Patience {
    /// Seconds waited and run up to the last decision.
    waited: f64,
    run: f64,
}

impl Patience {
    /// Halves the team for the rest of the run when the caller has waited most of the time since the
    /// last decision: it would have done the others' chunks meanwhile.
    fn judge(&mut self, active: &AtomicUsize, waited: f64, run: impl Fn() -> Duration) {
        let threads = active.load(Relaxed);
        if threads == 1 || waited - self.waited < PATIENCE_SECONDS {
            return;
        }
        let run = run().as_secs_f64();
        if waited - self.waited > 0.5 * (run - self.run) {
            active.store(threads / 2, Relaxed);
        }
        (self.waited, self.run) = (waited, run);
    }
}

/// The first phase at or after `from` that has chunks.
fn first_phase(work: &dyn Work, from: usize) -> Option<usize> {
    (from..work.n_phases()).find(|&phase| work.n_chunks(phase) > 0)
}

#[cfg(test)]
mod tests;
