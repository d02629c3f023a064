//! Whether a backend computes what the `transformers` package computes, for every tiny model and each
//! way in which it is stored.

use crate::golden::{self, GoldenLogits, GoldenModel, GoldenSequence, Spelling};
use crate::properties::run_to_end;
use kvant_device::Backend;
use kvant_engine::sampler::SamplerOptions;
use kvant_engine::{Engine, EngineOptions, Event, Request};
use kvant_kv::{KvFormat, KvPlan};
use std::collections::BTreeMap;

/// How far logits and log-probabilities may be from goldens whose keys and values were stored in the
/// same format: in f32 nothing is rounded, in f16 a key here and there rounds the other way.
const TOLERANCE: f32 = 1e-3;

/// The goldens for keys and values in `kv`.
fn goldens(sequence: &GoldenSequence, kv: KvFormat) -> &GoldenLogits {
    match kv {
        KvFormat::F32 => &sequence.f32,
        KvFormat::F16 => &sequence.f16,
    }
}

/// Sizes for these models: steps of up to `max_step_tokens` tokens.
fn options(max_step_tokens: usize, plan: KvPlan) -> EngineOptions {
    EngineOptions {
        context_len: 128,
        max_sequences: 3,
        max_step_tokens,
        max_outputs: max_step_tokens.max(3),
        kv_plan: Some(plan),
        deterministic: false,
    }
}

fn load<B: Backend>(
    backend: B,
    model: &GoldenModel,
    spelling: Spelling,
    kv: KvFormat,
    max_step_tokens: usize,
) -> Option<Engine<B>> {
    let opened = model.open(spelling)?;
    let plan = KvPlan::uniform(opened.spec().layers.len(), kv);
    let engine = Engine::load(backend, &opened, options(max_step_tokens, plan), |_| ());
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

/// Largest distance of any known row, with sequences fed in steps of the engine's size.
fn distance<B: Backend>(
    engine: &mut Engine<B>,
    model: &GoldenModel,
    kv: KvFormat,
    limit: usize,
) -> f32 {
    let mut worst = 0.0;
    for sequence in &model.sequences {
        let golden = goldens(sequence, kv);
        let mut seen = 0;
        let scored = engine.score(&sequence.tokens, 0, |position, logits| {
            if let Some(row) = golden.at(position).filter(|_| position < limit) {
                seen += 1;
                let distances = logits.iter().zip(row).map(|(a, b)| (a - b).abs());
                // A NaN is as far as can be.
                worst = distances.fold(worst, |worst: f32, d| if d <= worst { worst } else { d });
            }
        });
        pollster::block_on(scored).expect("the sequence fits");
        let known = golden.positions.iter().filter(|&&p| p < limit);
        assert_eq!(seen, known.count(), "{}: rows are missing", model.name);
    }
    worst
}

/// Whole prompts, chunks and single tokens, for each way a model is stored.
pub fn logits_are_those_of_transformers<B: Backend>(
    backend: &impl Fn() -> B,
    spellings: &[Spelling],
    kv: KvFormat,
) {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for model in golden::models() {
        for &spelling in spellings {
            for max_step_tokens in [128, 11, 1] {
                let Some(mut engine) = load(backend(), &model, spelling, kv, max_step_tokens)
                else {
                    continue;
                };
                let limit = rows_that_agree(&model, spelling);
                let far = distance(&mut engine, &model, kv, limit);
                compared += 1;
                let within = far <= TOLERANCE;
                if !within {
                    let name = &model.name;
                    wrong.push(format!(
                        "{name} {spelling:?}, steps of {max_step_tokens}: {far}"
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
pub fn ragged_batches_agree<B: Backend>(backend: &impl Fn() -> B, kv: KvFormat) {
    for model in golden::models() {
        for max_step_tokens in [128, 13] {
            let Some(mut engine) = load(backend(), &model, Spelling::Folder, kv, max_step_tokens)
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
                let golden = goldens(sequence, kv).last_logprobs();
                assert_eq!(tops[id].len(), N_TOP);
                for &(token, logprob) in &tops[id] {
                    let known = golden[token as usize];
                    assert!(
                        (logprob - known).abs() <= TOLERANCE,
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
            let Some(mut engine) = load(backend(), &model, spelling, KvFormat::F16, 64) else {
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
