//! Whether a backend computes what the `transformers` package computes, for every tiny model and each
//! way in which it is stored.

use crate::golden::{self, GoldenLogits, GoldenModel, Spelling};
use crate::properties::run_to_end;
use kvant_device::Backend;
use kvant_engine::sampler::SamplerOptions;
use kvant_engine::{Engine, EngineOptions, Event, Request};
use std::collections::BTreeMap;

/// How far logits may be from the goldens.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// From goldens whose keys and values were rounded to f16, as the engine's are.
    pub f16: f32,
    /// From goldens in f32 throughout: includes what f16 keys and values cost.
    pub f32: f32,
}

/// Sizes for these models: steps of up to `max_step_tokens` tokens.
fn options(max_step_tokens: usize) -> EngineOptions {
    EngineOptions {
        context_len: 128,
        max_sequences: 3,
        max_step_tokens,
        max_outputs: max_step_tokens.max(3),
        kv_plan: None,
        deterministic: false,
    }
}

fn load<B: Backend>(
    backend: B,
    model: &GoldenModel,
    spelling: Spelling,
    max_step_tokens: usize,
) -> Option<Engine<B>> {
    let opened = model.open(spelling)?;
    let engine = Engine::load(backend, &opened, options(max_step_tokens), |_| ());
    Some(
        pollster::block_on(engine)
            .unwrap_or_else(|error| panic!("{} {spelling:?}: {error}", model.name)),
    )
}

/// llama.cpp's files lose the window of these, so that only rows within it can agree.
fn rows_that_agree(model: &GoldenModel, spelling: Spelling) -> usize {
    match (model.name.as_str(), spelling) {
        ("mistral", Spelling::Gguf) => 24,
        _ => usize::MAX,
    }
}

/// Largest distance of any known row, with sequences fed in steps of `max_step_tokens`.
fn distance<B: Backend>(engine: &mut Engine<B>, model: &GoldenModel, limit: usize) -> Tolerance {
    let mut worst = Tolerance { f16: 0.0, f32: 0.0 };
    for sequence in &model.sequences {
        let mut seen = 0;
        let scored = engine.score(&sequence.tokens, 0, |position, logits| {
            if position >= limit {
                return;
            }
            let far = |golden: &GoldenLogits| {
                golden.at(position).map_or(0.0, |row| {
                    logits
                        .iter()
                        .zip(row)
                        .map(|(a, b)| (a - b).abs())
                        // A NaN is as far as can be.
                        .fold(0.0, |worst: f32, d| if d <= worst { worst } else { d })
                })
            };
            seen += usize::from(sequence.f32.at(position).is_some());
            worst.f16 = worst.f16.max(far(&sequence.f16));
            worst.f32 = worst.f32.max(far(&sequence.f32));
        });
        pollster::block_on(scored).expect("the sequence fits");
        let known = sequence.f32.positions.iter().filter(|&&p| p < limit);
        assert_eq!(seen, known.count(), "{}: rows are missing", model.name);
    }
    worst
}

/// Whole prompts, chunks and single tokens, for each way a model is stored.
pub fn logits_are_those_of_transformers<B: Backend>(
    backend: &impl Fn() -> B,
    spellings: &[Spelling],
    tolerance: Tolerance,
) {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for model in golden::models() {
        for &spelling in spellings {
            for max_step_tokens in [128, 11, 1] {
                let Some(mut engine) = load(backend(), &model, spelling, max_step_tokens) else {
                    continue;
                };
                let far = distance(&mut engine, &model, rows_that_agree(&model, spelling));
                compared += 1;
                let within = far.f16 <= tolerance.f16 && far.f32 <= tolerance.f32;
                if !within {
                    let name = &model.name;
                    wrong.push(format!(
                        "{name} {spelling:?}, steps of {max_step_tokens}: {far:?}"
                    ));
                }
            }
        }
    }
    assert!(compared >= 3 * 15 * spellings.len(), "models are missing");
    assert!(
        wrong.is_empty(),
        "too far from the goldens:\n{}",
        wrong.join("\n")
    );
}

/// Three sequences of different lengths at once, their prompts cut where steps end.
pub fn ragged_batches_agree<B: Backend>(backend: &impl Fn() -> B, tolerance: f32) {
    for model in golden::models() {
        for max_step_tokens in [128, 13] {
            let Some(mut engine) = load(backend(), &model, Spelling::Folder, max_step_tokens)
            else {
                continue;
            };
            let ids: Vec<_> = model
                .sequences
                .iter()
                .map(|sequence| {
                    engine
                        .add(greedy(&sequence.tokens, 1))
                        .expect("there is room")
                })
                .collect();
            let mut tops = BTreeMap::new();
            while !engine.is_idle() {
                for event in pollster::block_on(engine.step()).expect("a step runs") {
                    if let Event::Token { id, token } = event {
                        tops.insert(id, token.logprobs.expect("they were asked for").top);
                    }
                }
            }
            for (id, sequence) in ids.iter().zip(&model.sequences) {
                let golden = sequence.f16.last_logprobs();
                assert_eq!(tops[id].len(), N_TOP);
                for &(token, logprob) in &tops[id] {
                    let known = golden[token as usize];
                    assert!(
                        (logprob - known).abs() <= tolerance,
                        "{}, {} tokens: token {token} has {logprob}, golden {known}",
                        model.name,
                        sequence.tokens.len(),
                    );
                }
            }
        }
    }
}

/// Greedy continuations, alone and beside another sequence. No step of them is a near tie.
pub fn greedy_continuations_are_equal<B: Backend>(
    backend: &impl Fn() -> B,
    spellings: &[Spelling],
) {
    for model in golden::models() {
        for &spelling in spellings {
            if rows_that_agree(&model, spelling) < model.greedy_prompt.len() {
                continue;
            }
            let Some(mut engine) = load(backend(), &model, spelling, 64) else {
                continue;
            };
            let steps = model.greedy_tokens.len();
            let id = engine
                .add(greedy(&model.greedy_prompt, steps))
                .expect("there is room");
            let beside = &model.sequences[2].tokens;
            engine
                .add(greedy(beside, steps / 2))
                .expect("there is room");
            let mut chosen = BTreeMap::new();
            run_to_end(&mut engine, &mut chosen);
            let tokens: Vec<u32> = chosen[&id].iter().map(|&(token, _)| token).collect();
            assert_eq!(tokens, model.greedy_tokens, "{} {spelling:?}", model.name);
        }
    }
}

/// Likeliest tokens compared.
const N_TOP: usize = 128;

fn greedy(prompt: &[u32], max_tokens: usize) -> Request {
    let sampler = SamplerOptions {
        logprobs: Some(N_TOP as u32),
        ..SamplerOptions::greedy()
    };
    Request {
        prompt: prompt.to_vec(),
        sampler,
        stop_tokens: vec![],
        max_tokens,
    }
}
