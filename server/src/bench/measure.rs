//! One measurement: sequences are filled, then timed.

use std::time::Instant;

use kvant_engine::sampler::SamplerOptions;
use kvant_engine::{Event, Request};

use crate::error::CliError;
use crate::session::Session;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Prompts, up to their first token.
    Prefill,
    /// Answers, token by token.
    Decode,
}

/// One row of the table, but for the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) kind: Kind,
    /// Tokens of each prompt or answer.
    pub(super) n_tokens: usize,
    /// Tokens in each context before the answer.
    pub(super) depth: usize,
    /// Sequences at a time.
    pub(super) batch: usize,
}

impl Test {
    /// Context that the test needs, in tokens, when a step takes `step_tokens`.
    pub(super) fn context_len(&self, step_tokens: usize) -> usize {
        // While later prompts of a batch are filled, the earlier sequences already answer.
        let filling = (self.batch * self.depth.max(1)).div_ceil(step_tokens) + self.batch;
        self.depth.max(1) + self.n_tokens + filling + 2
    }

    /// Tokens that are timed.
    pub(super) fn total_tokens(&self) -> usize {
        self.batch * self.n_tokens
    }

    /// Its name in the table.
    pub(super) fn name(&self) -> String {
        match self.kind {
            Kind::Prefill => format!("prefill {}", self.n_tokens),
            Kind::Decode => format!("decode {}", self.n_tokens),
        }
    }
}

/// Runs enough of the test for caches and clocks to settle.
pub(super) fn warm_up(session: &mut Session, test: &Test) -> Result<(), CliError> {
    let short = Test {
        n_tokens: match test.kind {
            Kind::Prefill => test.n_tokens,
            Kind::Decode => test.n_tokens.min(8),
        },
        depth: 0,
        ..*test
    };
    run(session, &short).map(|_| ())
}

/// Runs the test once and returns its seconds.
pub(super) fn run(session: &mut Session, test: &Test) -> Result<f64, CliError> {
    let seconds = match test.kind {
        Kind::Prefill => prefill(session, test),
        Kind::Decode => decode(session, test),
    };
    session.engine.cleanup();
    seconds
}

fn prefill(session: &mut Session, test: &Test) -> Result<f64, CliError> {
    let started = Instant::now();
    add(session, test, test.n_tokens, 1)?;
    let mut ended = 0;
    while ended < test.batch {
        for event in session.engine.step()? {
            ended += usize::from(matches!(event, Event::Finished { .. }));
            fail(event)?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

fn decode(session: &mut Session, test: &Test) -> Result<f64, CliError> {
    let room = session.engine.options().context_len;
    add(session, test, test.depth.max(1), room)?;
    // Every sequence answers once its step brings as many tokens as there are sequences.
    while session.engine.step()?.len() < test.batch {}
    let started = Instant::now();
    for _ in 0..test.n_tokens {
        for event in session.engine.step()? {
            fail(event)?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

fn fail(event: Event) -> Result<(), CliError> {
    match event {
        Event::Failed { error, .. } => Err(error.into()),
        _ => Ok(()),
    }
}

/// Adds a batch of prompts of pseudo-random tokens, different for each sequence.
fn add(
    session: &mut Session,
    test: &Test,
    n_tokens: usize,
    max_tokens: usize,
) -> Result<(), CliError> {
    let vocab_size = session.engine.vocab_size() as u64;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..test.batch {
        let prompt = (0..n_tokens).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % vocab_size) as u32
        });
        session.engine.add(Request {
            prompt: prompt.collect(),
            sampler: SamplerOptions::greedy(),
            stop_tokens: Vec::new(),
            max_tokens,
        })?;
    }
    Ok(())
}
