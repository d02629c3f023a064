//! How many threads a run uses. A team whose cores are shared with other processes can be slower
//! than fewer of its threads: every phase then waits for a thread that is not running.
//!
//! When a team gains less than it should, the guard tries half of it; after a while with fewer
//! threads it tries some more. A trial is measured beside the runs just before it, and what was
//! faster stays. Trials that change nothing become rarer.

/// Seconds of runs that are measured together; several time slices of a scheduler.
const WINDOW_SECONDS: f64 = 0.03;
/// Gain over one thread, as a share of the number of threads, below which fewer are tried.
const POOR_GAIN: f64 = 0.8;
/// Time of a trial, as a share of what the choice before needed, below which the trial wins. More
/// threads have more to gain, and cost more when they won by luck.
const FASTER_WITH_FEWER: f64 = 0.95;
const FASTER_WITH_MORE: f64 = 0.9;
/// Seconds between a trial and the next, at first and at most.
const FIRST_PAUSE_SECONDS: f64 = 0.2;
const LONGEST_PAUSE_SECONDS: f64 = 8.0;
/// How many times as long as a trial such a pause is at least.
const PAUSE_PER_TRIAL_SECOND: f64 = 8.0;
/// Runs that differ from those a trial is compared with before it is given up.
const PATIENCE_RUNS: usize = 8;

/// What happened in a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) threads: usize,
    /// How much was done: see [`Work::amount`](super::Work::amount).
    pub(super) amount: u64,
    pub(super) wall_seconds: f64,
    /// What one thread would have taken, where it could be judged.
    pub(super) single_seconds: Option<f64>,
}

/// Runs of about the same work with the same number of threads.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    runs: u64,
    amount: u64,
    wall_seconds: f64,
    single_seconds: f64,
}

impl Window {
    /// Whether a run of such an amount does about the same work.
    fn is_like(&self, amount: u64) -> bool {
        self.runs == 0 || (self.runs * amount).abs_diff(self.amount) * 8 <= self.amount
    }

    fn add(&mut self, run: &Run) {
        self.runs += 1;
        self.amount += run.amount;
        self.wall_seconds += run.wall_seconds;
        self.single_seconds += run.single_seconds.unwrap_or(f64::INFINITY);
    }

    fn is_full(&self) -> bool {
        self.wall_seconds >= WINDOW_SECONDS
    }

    fn pace(&self) -> f64 {
        self.wall_seconds / self.amount as f64
    }

    fn gain(&self) -> f64 {
        self.single_seconds / self.wall_seconds
    }
}

/// A number of threads that is measured against the chosen one.
#[derive(Debug, Clone, Copy)]
struct Trial {
    threads: usize,
    /// Runs with the chosen number, just before.
    before: Window,
    unlike_runs: usize,
}

/// Watches runs and chooses the number of threads of the next.
#[derive(Debug)]
pub(super) struct Guard {
    most: usize,
    chosen: usize,
    window: Window,
    trial: Option<Trial>,
    /// Seconds of runs until the next trial may begin.
    pause_left: f64,
    next_pause: f64,
}

impl Guard {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            chosen: most,
            window: Window::default(),
            trial: None,
            pause_left: 0.0,
            next_pause: FIRST_PAUSE_SECONDS,
        }
    }

    /// Threads of the next run.
    pub(super) fn threads(&self) -> usize {
        self.trial.map_or(self.chosen, |trial| trial.threads)
    }

    /// Takes note of a run.
    pub(super) fn ran(&mut self, run: &Run) {
        self.pause_left -= run.wall_seconds;
        if run.threads != self.threads() || run.amount == 0 {
            return;
        }
        match self.trial {
            None => self.watch(run),
            Some(trial) => self.compare(trial, run),
        }
    }

    /// A run with the chosen number of threads.
    fn watch(&mut self, run: &Run) {
        if !self.window.is_like(run.amount) {
            self.window = Window::default();
        }
        self.window.add(run);
        if !self.window.is_full() {
            return;
        }
        let before = std::mem::take(&mut self.window);
        if self.pause_left > 0.0 {
            return;
        }
        let is_poor = self.chosen > 1 && before.gain() < POOR_GAIN * self.chosen as f64;
        let threads = if is_poor {
            self.chosen / 2
        } else if self.chosen < self.most {
            (self.chosen + (self.chosen / 4).max(1)).min(self.most)
        } else {
            return;
        };
        self.trial = Some(Trial {
            threads,
            before,
            unlike_runs: 0,
        });
    }

    /// A run of a trial.
    fn compare(&mut self, trial: Trial, run: &Run) {
        if !trial.before.is_like(run.amount) {
            let unlike_runs = trial.unlike_runs + 1;
            self.trial = (unlike_runs < PATIENCE_RUNS).then_some(Trial {
                unlike_runs,
                ..trial
            });
            if self.trial.is_none() {
                self.window = Window::default();
                self.pause_left = self.next_pause;
            }
            return;
        }
        self.window.add(run);
        if !self.window.is_full() {
            return;
        }
        let tried = std::mem::take(&mut self.window);
        self.trial = None;
        let limit = if trial.threads < self.chosen {
            FASTER_WITH_FEWER
        } else {
            FASTER_WITH_MORE
        };
        if tried.pace() < limit * trial.before.pace() {
            self.chosen = trial.threads;
            self.next_pause = FIRST_PAUSE_SECONDS;
        } else {
            self.next_pause = (self.next_pause * 2.0).min(LONGEST_PAUSE_SECONDS);
        }
        self.pause_left = self
            .next_pause
            .max(PAUSE_PER_TRIAL_SECOND * tried.wall_seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs whose wall time depends on the threads, for `seconds` of wall time.
    /// Gives the seconds with each number of threads.
    fn simulate(guard: &mut Guard, seconds: f64, wall: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut spent = vec![0.0; guard.most + 1];
        while spent.iter().sum::<f64>() < seconds {
            let threads = guard.threads();
            let wall_seconds = wall(threads);
            spent[threads] += wall_seconds;
            guard.ran(&Run {
                threads,
                amount: 100,
                wall_seconds,
                single_seconds: (threads > 1).then(|| wall(1) * 1.1),
            });
        }
        spent
    }

    #[test]
    fn a_team_that_gains_is_left_alone() {
        let mut guard = Guard::new(4);
        let spent = simulate(&mut guard, 10.0, |threads| 0.01 / threads as f64);
        assert!(spent[4] >= 10.0);
    }

    #[test]
    fn a_team_slower_than_one_thread_shrinks_and_grows_again() {
        let mut guard = Guard::new(2);
        let busy = |threads| if threads == 2 { 0.006 } else { 0.005 };
        let spent = simulate(&mut guard, 20.0, busy);
        assert_eq!(guard.chosen, 1);
        assert!(spent[2] < 0.06 * 20.0, "{spent:?}");
        // The other process ends.
        let spent = simulate(&mut guard, 20.0, |threads| 0.005 / threads as f64);
        assert_eq!(guard.chosen, 2);
        assert!(spent[1] < 9.0, "{spent:?}");
    }

    #[test]
    fn a_team_that_gains_little_but_something_stays() {
        let mut guard = Guard::new(2);
        let spent = simulate(&mut guard, 30.0, |n| if n == 2 { 0.004 } else { 0.005 });
        assert_eq!(guard.chosen, 2);
        assert!(spent[1] < 0.06 * 30.0, "{spent:?}");
    }

    #[test]
    fn a_large_team_finds_its_best_number() {
        let mut guard = Guard::new(8);
        // Three of eight cores are taken: from the sixth thread on, every phase waits.
        let wall = |n: usize| if n > 5 { 0.008 } else { 0.02 / n as f64 };
        simulate(&mut guard, 60.0, wall);
        assert_eq!(guard.chosen, 5);
    }

    #[test]
    fn trials_compare_only_the_same_work() {
        let mut guard = Guard::new(2);
        let run = |threads, amount, wall_seconds| Run {
            threads,
            amount,
            wall_seconds,
            single_seconds: Some(wall_seconds),
        };
        guard.ran(&run(2, 100, 0.04));
        assert_eq!(guard.threads(), 1);
        // Prompts come in between: nothing is learned, and the trial is given up at last.
        for _ in 0..PATIENCE_RUNS {
            assert_eq!(guard.threads(), 1);
            guard.ran(&run(1, 5000, 0.01));
        }
        assert_eq!((guard.threads(), guard.chosen), (2, 2));
    }
}
