use super::*;
use std::sync::atomic::AtomicUsize;

/// Phases of given numbers of chunks; checks that a phase starts after the one before has ended.
struct Counted {
    chunks: Vec<usize>,
    done: Vec<AtomicUsize>,
    out_of_order: AtomicUsize,
    panic_at: Option<(usize, usize)>,
}

impl Counted {
    fn new(chunks: Vec<usize>) -> Self {
        Self {
            done: chunks.iter().map(|_| AtomicUsize::new(0)).collect(),
            chunks,
            out_of_order: AtomicUsize::new(0),
            panic_at: None,
        }
    }
    fn assert_complete(&self) {
        for (done, &chunks) in self.done.iter().zip(&self.chunks) {
            assert_eq!(done.load(SeqCst), chunks);
        }
        assert_eq!(self.out_of_order.load(SeqCst), 0);
    }
}

impl Work for Counted {
    fn n_phases(&self) -> usize {
        self.chunks.len()
    }
    fn n_chunks(&self, phase: usize) -> usize {
        self.chunks[phase]
    }
    fn amount(&self) -> u64 {
        1
    }
    fn run_chunk(&self, phase: usize, chunk: usize, _thread: usize, _first: bool) {
        if self.panic_at == Some((phase, chunk)) {
            panic!("chunk {chunk} of phase {phase}");
        }
        if phase > 0 && self.done[phase - 1].load(SeqCst) != self.chunks[phase - 1] {
            self.out_of_order.fetch_add(1, SeqCst);
        }
        self.done[phase].fetch_add(1, SeqCst);
    }
}

#[test]
fn phases_run_whole_and_in_order() {
    for n_threads in [1, 2, 3, 8] {
        let team = Team::new(n_threads);
        for run in 0..50 {
            let chunks = (0..200).map(|i| (i * 7 + run) % 6).collect();
            let work = Counted::new(chunks);
            team.run(&work).unwrap();
            work.assert_complete();
        }
    }
}

#[test]
fn empty_work_ends() {
    let team = Team::new(2);
    team.run(&Counted::new(vec![])).unwrap();
    team.run(&Counted::new(vec![0, 0])).unwrap();
}

#[test]
fn many_short_runs_with_pauses_wake_parked_threads() {
    let team = Team::new(3);
    for run in 0..200 {
        let work = Counted::new(vec![3; 20]);
        team.run(&work).unwrap();
        work.assert_complete();
        if run % 20 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[test]
fn threads_that_parked_in_a_run_leave_it() {
    struct Slow;
    impl Work for Slow {
        fn n_phases(&self) -> usize {
            4
        }
        fn n_chunks(&self, phase: usize) -> usize {
            [4, 1, 2, 1][phase]
        }
        fn amount(&self) -> u64 {
            1
        }
        fn run_chunk(&self, phase: usize, _chunk: usize, _thread: usize, _first: bool) {
            if phase % 2 == 1 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }
    let team = Team::new(4);
    for _ in 0..20 {
        team.run(&Slow).unwrap();
    }
}

#[test]
fn a_caller_that_mostly_waits_sends_threads_away() {
    let seconds = Duration::from_secs_f64;
    let active = AtomicUsize::new(4);
    let mut patience = Patience::default();
    // Too little to judge, then less than half of the run.
    patience.judge(&active, 0.01, || seconds(0.011));
    patience.judge(&active, 0.03, || seconds(0.1));
    assert_eq!(active.load(SeqCst), 4);
    // Most of the time since then.
    patience.judge(&active, 0.07, || seconds(0.15));
    assert_eq!(active.load(SeqCst), 2);
    patience.judge(&active, 0.12, || seconds(0.21));
    assert_eq!(active.load(SeqCst), 1);
    patience.judge(&active, 0.5, || seconds(0.6));
    assert_eq!(active.load(SeqCst), 1);
}

#[test]
fn a_panic_is_an_error_and_the_team_lives_on() {
    for n_threads in [1, 2, 4] {
        let team = Team::new(n_threads);
        for phase in [0, 7, 19] {
            let mut work = Counted::new(vec![5; 20]);
            work.panic_at = Some((phase, 3));
            let error = team.run(&work).unwrap_err();
            assert_eq!(error.phase, phase);
            assert_eq!(error.message, format!("chunk 3 of phase {phase}"));
            let work = Counted::new(vec![5; 20]);
            team.run(&work).unwrap();
            work.assert_complete();
        }
    }
}

#[test]
fn each_thread_prepares_once_a_phase() {
    struct Prepared {
        firsts: Vec<AtomicUsize>,
    }
    impl Work for Prepared {
        fn n_phases(&self) -> usize {
            self.firsts.len()
        }
        fn n_chunks(&self, _phase: usize) -> usize {
            16
        }
        fn amount(&self) -> u64 {
            1
        }
        fn run_chunk(&self, phase: usize, _chunk: usize, thread: usize, first: bool) {
            if first {
                let before = self.firsts[phase].fetch_or(1 << thread, SeqCst);
                assert_eq!(before & (1 << thread), 0);
            }
            assert_ne!(self.firsts[phase].load(SeqCst) & (1 << thread), 0);
        }
    }
    let team = Team::new(4);
    let work = Prepared {
        firsts: (0..100).map(|_| AtomicUsize::new(0)).collect(),
    };
    team.run(&work).unwrap();
}

#[test]
fn callers_on_several_threads_take_turns() {
    let team = Team::new(2);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let work = Counted::new(vec![4; 30]);
                    team.run(&work).unwrap();
                    work.assert_complete();
                }
            });
        }
    });
}
