//! Sampler options as JSON, up to a zero byte or the end; after it logits as little-endian `f32`.
//!
//! Whatever the options say, they are refused with an error, or a token that is possible is chosen,
//! or the logits are at fault.

#![no_main]

use kvant_engine::sampler::{Sampler, SamplerError, SamplerOptions, StopMatcher};
use libfuzzer_sys::fuzz_target;

/// Vocabulary when the input brings no logits.
const DEFAULT_LOGITS: usize = 64;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (json, rest) = data.split_at(end);
    stops(json, rest);
    let Ok(options) = serde_json::from_slice::<SamplerOptions>(json) else {
        return;
    };
    let (words, _) = rest.get(1..).unwrap_or(&[]).as_chunks::<4>();
    let mut logits: Vec<f32> = words.iter().map(|w| f32::from_le_bytes(*w)).collect();
    if logits.is_empty() {
        logits = (0..DEFAULT_LOGITS)
            .map(|i| (i as f32).sin() * 9.0)
            .collect();
    }
    // Some of the vocabulary, some outside it, and with repetitions.
    let tokens: Vec<u32> = data.iter().map(|b| u32::from(*b) % 67).collect();
    let Ok(mut sampler) = Sampler::new(options, logits.len()) else {
        return;
    };
    match sampler.sample(&mut logits, &tokens, data.len() / 2) {
        Ok(token) => assert!(logits[token.id as usize].is_finite()),
        Err(SamplerError::BadLogit { token, .. }) => {
            let logit = logits[token as usize];
            assert!(logit.is_nan() || logit == f32::INFINITY);
        }
        Err(SamplerError::NoCandidate) => {
            assert!(logits.iter().all(|x| *x == f32::NEG_INFINITY));
        }
        Err(other) => panic!("{other}"),
    }
});

/// The lines of one part as stop strings in the other, whole and in pieces: the same comes out.
fn stops(stops: &[u8], text: &[u8]) {
    let (stops, text) = (
        String::from_utf8_lossy(stops),
        String::from_utf8_lossy(text),
    );
    let stops: Vec<&str> = stops.lines().collect();
    let (Ok(mut whole), Ok(mut pieces)) = (StopMatcher::new(&stops), StopMatcher::new(&stops))
    else {
        return;
    };
    let (mut out, mut out_pieces) = (String::new(), String::new());
    whole.push(&text, &mut out);
    whole.flush(&mut out);
    for piece in text.split_inclusive(|c: char| c.is_ascii_alphabetic()) {
        pieces.push(piece, &mut out_pieces);
    }
    pieces.flush(&mut out_pieces);
    assert_eq!(out, out_pieces);
    assert_eq!(whole.stopped(), pieces.stopped());
    assert!(text.starts_with(&out));
}
