//! What must hold of an engine on any backend, whatever runs beside a sequence.

use crate::tiny::TinySpec;
use kvant_device::Backend;
use kvant_engine::sampler::SamplerOptions;
use kvant_engine::{Engine, EngineOptions, Event, Request, SequenceId};
use std::collections::BTreeMap;

/// How far two computations of one row may differ.
#[derive(Debug, Clone, Copy)]
pub enum Agreement {
    /// Not at all.
    Bits,
    /// By this part of the largest logit.
    Within(f32),
}

/// An engine on a tiny model.
pub fn engine<B: Backend>(backend: B, spec: &TinySpec, options: EngineOptions) -> Engine<B> {
    pollster::block_on(Engine::load(backend, &spec.model(), options, |_| ()))
        .expect("the model loads")
}

/// Sizes that make sequences share a step and cross many blocks.
pub fn options(max_step_tokens: usize, deterministic: bool) -> EngineOptions {
    EngineOptions {
        context_len: 256,
        max_sequences: 4,
        max_step_tokens,
        max_outputs: max_step_tokens.max(4),
        kv_plan: None,
        deterministic,
    }
}

/// A reproducible prompt.
pub fn prompt(n_tokens: usize, vocab_size: usize, seed: u64) -> Vec<u32> {
    let mut random = kvant_quant::testing::Random::new(seed);
    (0..n_tokens)
        .map(|_| random.below(vocab_size) as u32)
        .collect()
}

/// A request for greedy tokens with their log-probabilities.
pub fn greedy(prompt: Vec<u32>, max_tokens: usize) -> Request {
    let sampler = SamplerOptions {
        logprobs: Some(3),
        ..SamplerOptions::greedy()
    };
    Request {
        prompt,
        sampler,
        stop_tokens: vec![],
        max_tokens,
    }
}

/// Log-probabilities of every chosen token, by sequence.
pub type Chosen = BTreeMap<SequenceId, Vec<(u32, f32)>>;

/// Steps until the engine is idle, checking integrity after each step.
pub fn run_to_end<B: Backend>(engine: &mut Engine<B>, chosen: &mut Chosen) {
    while !engine.is_idle() {
        step(engine, chosen);
    }
}

/// One step.
pub fn step<B: Backend>(engine: &mut Engine<B>, chosen: &mut Chosen) {
    let events = pollster::block_on(engine.step()).expect("a step runs");
    engine.check_integrity().expect("blocks are accounted for");
    for event in events {
        match event {
            Event::Token { id, token } => {
                let logprob = token
                    .logprobs
                    .expect("log-probabilities were asked for")
                    .chosen;
                chosen.entry(id).or_default().push((token.id, logprob));
            }
            Event::Finished { .. } => {}
            Event::Failed { id, error } => panic!("sequence {id:?} failed: {error}"),
        }
    }
}

/// All logits of a text, computed in steps of at most `max_step_tokens`.
pub fn logits<B: Backend>(engine: &mut Engine<B>, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    pollster::block_on(engine.score(tokens, 0, |_, logits| rows.push(logits.to_vec())))
        .expect("the text is scored");
    engine.check_integrity().expect("blocks are accounted for");
    rows
}

/// Panics unless every row agrees.
pub fn assert_rows_agree(what: &str, got: &[Vec<f32>], want: &[Vec<f32>], agreement: Agreement) {
    assert_eq!(got.len(), want.len(), "{what}: number of rows");
    for (row, (got, want)) in got.iter().zip(want).enumerate() {
        match agreement {
            Agreement::Bits => {
                let same = got
                    .iter()
                    .zip(want)
                    .all(|(g, w)| g.to_bits() == w.to_bits());
                assert!(same, "{what}: row {row} differs");
            }
            Agreement::Within(part) => {
                let largest = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
                let worst = got
                    .iter()
                    .zip(want)
                    .fold(0.0f32, |m, (g, w)| m.max((g - w).abs()));
                assert!(
                    worst <= part * largest,
                    "{what}: row {row} is off by {worst}, largest logit {largest}"
                );
            }
        }
    }
}

/// A prompt computed in chunks gives the logits of the prompt computed at once.
pub fn chunked_is_whole<B: Backend>(
    make: &dyn Fn() -> B,
    spec: &TinySpec,
    deterministic: bool,
    agreement: Agreement,
) {
    let tokens = prompt(150, spec.vocab_size, 3);
    let want = logits(
        &mut engine(make(), spec, options(256, deterministic)),
        &tokens,
    );
    assert!(want.iter().flatten().all(|x| x.is_finite()));
    for chunk in [1, 7, 31, 32, 33, 64, 100] {
        let got = logits(
            &mut engine(make(), spec, options(chunk, deterministic)),
            &tokens,
        );
        assert_rows_agree(&format!("chunks of {chunk}"), &got, &want, agreement);
    }
}

/// A sequence among others gives what it gives alone, however they arrive and end.
pub fn batched_is_alone<B: Backend>(
    make: &dyn Fn() -> B,
    spec: &TinySpec,
    deterministic: bool,
    agreement: Agreement,
) {
    let prompts: Vec<Vec<u32>> = [5, 70, 33, 1]
        .iter()
        .enumerate()
        .map(|(i, &n)| prompt(n, spec.vocab_size, 10 + i as u64))
        .collect();
    let alone: Vec<Vec<(u32, f32)>> = prompts
        .iter()
        .map(|prompt| {
            let mut engine = engine(make(), spec, options(64, deterministic));
            let id = engine
                .add(greedy(prompt.clone(), 40))
                .expect("there is room");
            let mut chosen = Chosen::new();
            run_to_end(&mut engine, &mut chosen);
            chosen.remove(&id).expect("tokens came")
        })
        .collect();
    let mut engine = engine(make(), spec, options(24, deterministic));
    let mut chosen = Chosen::new();
    let mut ids = Vec::new();
    for prompt in &prompts {
        ids.push(
            engine
                .add(greedy(prompt.clone(), 40))
                .expect("there is room"),
        );
        for _ in 0..3 {
            step(&mut engine, &mut chosen);
        }
    }
    run_to_end(&mut engine, &mut chosen);
    for (i, (id, want)) in ids.iter().zip(&alone).enumerate() {
        let got = &chosen[id];
        for (at, (g, w)) in got.iter().zip(want).enumerate() {
            match agreement {
                Agreement::Bits => assert_eq!(
                    (g.0, g.1.to_bits()),
                    (w.0, w.1.to_bits()),
                    "sequence {i}, token {at}"
                ),
                // Once a near tie is decided otherwise, the texts go different ways.
                Agreement::Within(_) if g.0 != w.0 => break,
                Agreement::Within(part) => {
                    assert!(
                        (g.1 - w.1).abs() <= part * w.1.abs().max(1.0),
                        "sequence {i}, token {at}: {g:?} and {w:?}"
                    );
                }
            }
        }
        assert_eq!(got.len(), want.len(), "sequence {i}");
    }
    assert_all_free(&engine);
}

/// A fork goes on as its parent would, and neither disturbs the other.
pub fn fork_shares_and_copies<B: Backend>(make: &dyn Fn() -> B, spec: &TinySpec) {
    let tokens = prompt(45, spec.vocab_size, 4);
    let mut plain = engine(make(), spec, options(64, true));
    let id = plain
        .add(greedy(tokens.clone(), 60))
        .expect("there is room");
    let mut want = Chosen::new();
    run_to_end(&mut plain, &mut want);
    let mut engine = engine(make(), spec, options(64, true));
    let parent = engine.add(greedy(tokens, 60)).expect("there is room");
    let mut chosen = Chosen::new();
    for _ in 0..10 {
        step(&mut engine, &mut chosen);
    }
    let child = engine
        .fork(parent, greedy(vec![], 60))
        .expect("there is room");
    let other = SamplerOptions {
        temperature: 5.0,
        seed: Some(1),
        logprobs: Some(0),
        ..SamplerOptions::default()
    };
    let stranger = Request {
        prompt: vec![],
        sampler: other,
        stop_tokens: vec![],
        max_tokens: 60,
    };
    let stranger = engine.fork(parent, stranger).expect("there is room");
    run_to_end(&mut engine, &mut chosen);
    let want = &want[&id];
    assert_eq!(&chosen[&parent], want, "the parent is not disturbed");
    assert_eq!(
        &chosen[&child][..],
        &want[10..],
        "the fork goes on as the parent"
    );
    assert_ne!(
        chosen[&stranger][..],
        want[10..],
        "the other fork goes its own way"
    );
    assert_all_free(&engine);
}

/// Sequences that come, are aborted and end at random lose no block and disturb nobody.
pub fn storms_lose_no_block<B: Backend>(make: &dyn Fn() -> B, spec: &TinySpec, seed: u64) {
    let mut random = kvant_quant::testing::Random::new(seed);
    let mut engine = engine(make(), spec, options(40, false));
    let mut chosen = Chosen::new();
    let mut live: Vec<SequenceId> = Vec::new();
    for _ in 0..60 {
        match random.below(4) {
            0 | 1 => {
                let tokens = prompt(1 + random.below(90), spec.vocab_size, random.bits());
                if let Ok(id) = engine.add(greedy(tokens, 1 + random.below(30))) {
                    live.push(id);
                }
            }
            2 if !live.is_empty() => {
                // It may have ended by itself, which is an error that changes nothing.
                let _ = engine.abort(live.swap_remove(random.below(live.len())));
                engine.check_integrity().expect("blocks are accounted for");
            }
            _ => step(&mut engine, &mut chosen),
        }
    }
    engine.cleanup();
    assert_all_free(&engine);
}

fn assert_all_free<B: Backend>(engine: &Engine<B>) {
    engine.check_integrity().expect("blocks are accounted for");
    for group in 0..engine.pools().groups().len() {
        assert_eq!(
            engine.pools().pool(group).n_used(),
            0,
            "blocks of group {group} are lost"
        );
    }
}
