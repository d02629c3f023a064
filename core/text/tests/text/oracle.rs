//! Small random vocabularies against the `tokenizers` crate and against the plainest possible
//! merge loop.

use kvant_text::{EncodeOptions, StringTable, Tokenizer, TokenizerParts};
use proptest::prelude::*;
use serde_json::json;

/// A BPE vocabulary over a few letters: each merge joins two tokens made before.
#[derive(Clone, Debug)]
struct Vocabulary {
    tokens: Vec<String>,
    merges: Vec<(String, String)>,
}

const ALPHABET: [&str; 6] = ["a", "b", "c", "▁", "é", "中"];

fn vocabulary() -> impl Strategy<Value = Vocabulary> {
    prop::collection::vec((any::<u32>(), any::<u32>()), 0..40).prop_map(|picks| {
        let mut tokens: Vec<String> = ALPHABET.map(String::from).to_vec();
        let mut merges = Vec::new();
        for (left, right) in picks {
            let left = tokens[left as usize % tokens.len()].clone();
            let right = tokens[right as usize % tokens.len()].clone();
            let joined = format!("{left}{right}");
            if joined.len() < 24 && !tokens.contains(&joined) {
                tokens.push(joined);
                merges.push((left, right));
            }
        }
        Vocabulary { tokens, merges }
    })
}

fn plain(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer
        .encode(text, EncodeOptions::default())
        .expect("it encodes")
}

proptest! {
    #[test]
    fn bpe_over_characters_merges_as_the_crate(
        vocabulary in vocabulary(),
        text in "[abc é中]{0,40}",
        prefix: bool,
    ) {
        let ids = vocabulary.tokens.iter().enumerate().map(|(id, t)| (t.clone(), id.into()));
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let normalizers = if prefix { vec![prepend, replace] } else { vec![replace] };
        let file = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": null,
            "post_processor": null,
            "decoder": null,
            "model": {
                "type": "BPE",
                "vocab": serde_json::Map::from_iter(ids),
                "merges": vocabulary.merges,
            },
        });
        let file = file.to_string();
        let ours = Tokenizer::from_json(file.as_bytes(), None).expect("a tokenizer");
        let crate_ = tokenizers::Tokenizer::from_bytes(&file).expect("a tokenizer");
        let theirs = crate_.encode_fast(text.as_str(), false).expect("it encodes");
        prop_assert_eq!(plain(&ours, &text), theirs.get_ids());
    }

    #[test]
    fn scored_merges_are_those_of_the_plainest_loop(
        vocabulary in vocabulary(),
        scores in prop::collection::vec(-4i8..4, 46),
        text in "[abc é中▁]{0,40}",
    ) {
        let n = vocabulary.tokens.len();
        let scores: Vec<f32> = scores[..n].iter().map(|&s| s.into()).collect();
        let parts = TokenizerParts {
            model: "llama".into(),
            tokens: StringTable::from_iter(&vocabulary.tokens),
            scores: Some(scores.clone()),
            add_space_prefix: Some(false),
            ..TokenizerParts::default()
        };
        let ours = Tokenizer::from_parts(parts).expect("a tokenizer");
        let want = merge_plainly(&vocabulary.tokens, &scores, &text.replace(' ', "▁"));
        prop_assert_eq!(plain(&ours, &text), want);
    }
}

/// Joins the neighbours with the best score, leftmost first, until nothing joins.
fn merge_plainly(tokens: &[String], scores: &[f32], text: &str) -> Vec<u32> {
    let find = |text: &str| tokens.iter().position(|t| t == text);
    let mut pieces: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize, String)> = None;
        for i in 1..pieces.len() {
            let joined = format!("{}{}", pieces[i - 1], pieces[i]);
            if let Some(id) = find(&joined)
                && best.as_ref().is_none_or(|b| scores[id] > b.0)
            {
                best = Some((scores[id], i, joined));
            }
        }
        let Some((_, i, joined)) = best else {
            break;
        };
        pieces[i - 1] = joined;
        pieces.remove(i);
    }
    let ids = pieces
        .iter()
        .map(|piece| find(piece).expect("letters are tokens") as u32);
    ids.collect()
}
