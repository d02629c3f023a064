//! How many threads a run uses. A team whose cores are shared with other processes can be slower
//! than one of its threads: every phase then waits for a thread that is not running.

/// Seconds of runs that are judged together; several time slices of a scheduler.
const WINDOW_SECONDS: f64 = 0.02;
/// Seconds of runs with fewer threads before more are tried again, at first.
const FIRST_HOLD_SECONDS: f64 = 0.25;
/// The longest such time.
const LONGEST_HOLD_SECONDS: f64 = 8.0;
/// How many times as long as the slow runs themselves such a time is at least, so that trying again
/// costs little.
const HOLD_PER_SLOW_SECOND: f64 = 8.0;

/// Watches runs and chooses the number of threads of the next.
#[derive(Debug)]
pub(super) struct Guard {
    most: usize,
    threads: usize,
    /// Wall seconds of the runs in this window, and what one thread would have taken.
    wall_seconds: f64,
    single_seconds: f64,
    /// Seconds left to run with fewer threads.
    hold_left: f64,
    next_hold: f64,
}

impl Guard {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            threads: most,
            wall_seconds: 0.0,
            single_seconds: 0.0,
            hold_left: 0.0,
            next_hold: FIRST_HOLD_SECONDS,
        }
    }

    /// Threads of the next run.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Takes note of a run. `single_seconds` is what one thread would have needed, where it could be
    /// judged.
    pub(super) fn ran(&mut self, threads: usize, wall_seconds: f64, single_seconds: Option<f64>) {
        if threads != self.threads {
            return;
        }
        if threads < self.most {
            self.hold_left -= wall_seconds;
            if self.hold_left <= 0.0 {
                self.threads = self.most;
                self.clear();
                return;
            }
        }
        let Some(single) = single_seconds else {
            return;
        };
        self.wall_seconds += wall_seconds;
        self.single_seconds += single;
        if self.wall_seconds < WINDOW_SECONDS {
            return;
        }
        if self.wall_seconds > self.single_seconds {
            self.threads = (threads - 1).max(1);
            self.hold_left = self.next_hold.max(HOLD_PER_SLOW_SECOND * self.wall_seconds);
            self.next_hold = (self.next_hold * 2.0).min(LONGEST_HOLD_SECONDS);
        } else if threads == self.most {
            self.next_hold = FIRST_HOLD_SECONDS;
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.wall_seconds = 0.0;
        self.single_seconds = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_windows_shrink_the_team_and_it_probes_again() {
        let mut guard = Guard::new(2);
        // Two threads take twice as long as one would.
        guard.ran(2, 0.03, Some(0.015));
        assert_eq!(guard.threads(), 1);
        let mut runs = 0;
        while guard.threads() == 1 {
            guard.ran(1, 0.01, None);
            runs += 1;
            assert!(runs < 100);
        }
        // Still slow: the next hold is longer.
        guard.ran(2, 0.03, Some(0.015));
        assert_eq!(guard.threads(), 1);
        let mut longer = 0;
        while guard.threads() == 1 {
            guard.ran(1, 0.01, None);
            longer += 1;
        }
        assert!(longer > runs);
        // Fast again: all threads stay.
        guard.ran(2, 0.03, Some(0.05));
        assert_eq!(guard.threads(), 2);
        assert_eq!(guard.next_hold, FIRST_HOLD_SECONDS);
    }

    #[test]
    fn short_runs_are_judged_together() {
        let mut guard = Guard::new(4);
        for _ in 0..3 {
            guard.ran(4, 0.004, Some(0.001));
            assert_eq!(guard.threads(), 4);
        }
        guard.ran(4, 0.01, Some(0.001));
        assert_eq!(guard.threads(), 3);
    }
}
