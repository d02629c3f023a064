//! The engine's properties on the reference backend, to the bit.

use kvant_engine::{EngineError, EngineOptions};
use kvant_reference::ReferenceBackend;
use kvant_tests::properties::{self, Agreement, engine, greedy, options, prompt};
use kvant_tests::tiny::TinySpec;

const SPECS: [TinySpec; 2] = [TinySpec::LLAMA, TinySpec::GEMMA3];

#[test]
fn chunked_prefill_is_whole_prefill() {
    for spec in SPECS {
        properties::chunked_is_whole(&ReferenceBackend::default, &spec, true, Agreement::Bits);
    }
}

#[test]
fn a_batch_is_each_alone() {
    for spec in SPECS {
        properties::batched_is_alone(&ReferenceBackend::default, &spec, true, Agreement::Bits);
    }
}

#[test]
fn forks_copy_on_write() {
    for spec in SPECS {
        properties::fork_shares_and_copies(&ReferenceBackend::default, &spec);
    }
}

#[test]
fn request_storms() {
    for seed in 0..6 {
        properties::storms_lose_no_block(
            &ReferenceBackend::default,
            &SPECS[seed as usize % 2],
            seed,
        );
    }
}

#[test]
fn refusals_say_why_and_change_nothing() {
    let spec = TinySpec::LLAMA;
    let mut engine = engine(ReferenceBackend::default(), &spec, options(32, false));
    assert!(matches!(
        engine.add(greedy(vec![], 1)),
        Err(EngineError::EmptyPrompt)
    ));
    let too_long = prompt(256, spec.vocab_size, 1);
    let error = engine.add(greedy(too_long, 1)).unwrap_err();
    assert!(error.to_string().contains("256 tokens"), "{error}");
    assert!(matches!(
        engine.add(greedy(vec![3, 101], 1)),
        Err(EngineError::Token {
            position: 1,
            token: 101,
            ..
        })
    ));
    assert!(matches!(
        engine.add(greedy(vec![1], 0)),
        Err(EngineError::Option {
            field: "max_tokens",
            ..
        })
    ));
    assert!(engine.is_idle());
    let ids: Vec<_> = (0..4)
        .map(|_| engine.add(greedy(vec![1, 2], 3)).unwrap())
        .collect();
    assert!(matches!(
        engine.add(greedy(vec![1], 1)),
        Err(EngineError::Full { max_sequences: 4 })
    ));
    engine.abort(ids[2]).unwrap();
    assert!(matches!(
        engine.abort(ids[2]),
        Err(EngineError::UnknownSequence { .. })
    ));
    engine.check_integrity().unwrap();
}

#[test]
fn memory_is_what_was_predicted() {
    let model = TinySpec::GEMMA3.model();
    let options = EngineOptions::single(200);
    let plan =
        kvant_engine::MemoryPlan::new(&ReferenceBackend::default(), &model, &options).unwrap();
    let engine = engine(ReferenceBackend::default(), &TinySpec::GEMMA3, options);
    assert_eq!(engine.memory(), &plan);
    // Five window layers share small tables, one layer sees all: 7 blocks of 200 tokens.
    assert_eq!(plan.n_blocks.iter().max(), Some(&7));
}
