//! Real models against what llama.cpp computes from the same files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::Kvant;

/// Most distance of a log-probability of the first step, in nats. Both engines round what goes into a
/// matrix product to 8 bits, each a little differently: of the f32 reference backend llama.cpp is up to
/// 0.50 away in these prompts, this engine up to 0.39 (0.12 where prompts are read in bf16).
const LOGPROB: f64 = 0.6;
/// Where the reference separates two tokens by less, in nats, either may come first.
const CLOSE_RANKS: f64 = 0.3;
/// Where the reference's own first two tokens are closer, in nats, the continuation may part.
const CLOSE_CHOICE: f64 = 0.3;
/// Most relative distance of a perplexity.
const PERPLEXITY: f64 = 0.005;

/// A model that `cargo xtask models` fetches.
fn model(file: &str) -> String {
    let folder = std::env::var_os("KVANT_MODELS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/models"),
        PathBuf::from,
    );
    let path = folder.join(file);
    assert!(
        path.is_file(),
        "{} is missing: run `cargo xtask models`, or set KVANT_MODELS to the folder that has it",
        path.display()
    );
    path.to_str().expect("text").to_owned()
}

fn json(args: &[&str]) -> Value {
    let ended = Kvant::new().run(args);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).expect("JSON")
}

/// Token and log-probability of `[[id, logprob], …]`.
fn pairs(list: &Value) -> Vec<(u64, f64)> {
    let pair = |pair: &Value| Some((pair[0].as_u64()?, pair[1].as_f64()?));
    list.as_array()
        .expect("a list")
        .iter()
        .filter_map(pair)
        .collect()
}

fn ids(list: &Value) -> Vec<u64> {
    list.as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_u64)
        .collect()
}

fn greedy(reference: &str) {
    let reference: Value = serde_json::from_str(reference).expect("JSON");
    let model = model(reference["model"].as_str().expect("a name"));
    for case in reference["greedy"].as_array().expect("cases") {
        let name = case["name"].as_str().expect("a name");
        let prompt: Vec<String> = ids(&case["prompt_ids"])
            .iter()
            .map(u64::to_string)
            .collect();
        let wanted = ids(&case["tokens"]);
        let count = wanted.len().to_string();
        let report = json(&[
            "run",
            &model,
            "--tokens",
            &prompt.join(","),
            "-n",
            &count,
            "--temperature",
            "0",
            "--ctx",
            "256",
            "--logprobs",
            "16",
            "--json",
        ]);
        let top = report["logprobs"][0]["top"]
            .as_array()
            .expect("alternatives");
        first_step(name, &pairs(&case["first_top5"]), top);

        let found = ids(&report["token_ids"]);
        let parted = wanted
            .iter()
            .zip(&found)
            .position(|(wanted, found)| wanted != found);
        let margins = case["margins"].as_array().expect("margins");
        match parted {
            None => assert_eq!(found.len(), wanted.len(), "{name}"),
            // Steps inside a character have no margin to compare with.
            Some(step) => {
                if let Some(margin) = margins[step].as_f64() {
                    assert!(
                        margin <= CLOSE_CHOICE,
                        "{name} parts at step {step}, where the reference is sure by {margin}"
                    );
                }
            }
        }
    }
}

fn first_step(name: &str, wanted: &[(u64, f64)], top: &[Value]) {
    let ours = |id: u64| {
        let found = top.iter().position(|entry| entry["id"] == id);
        let at = found.unwrap_or_else(|| panic!("{name}: token {id} is not among the likeliest"));
        (at, top[at]["logprob"].as_f64().expect("a number"))
    };
    for (rank, &(id, logprob)) in wanted.iter().enumerate() {
        let (_, found) = ours(id);
        assert!(
            (found - logprob).abs() <= LOGPROB,
            "{name}: token {id}: {found} for {logprob}"
        );
        for &(later, lower) in wanted[rank + 1..]
            .iter()
            .filter(|pair| logprob - pair.1 > CLOSE_RANKS)
        {
            assert!(
                ours(id).0 < ours(later).0,
                "{name}: {id} ({logprob}) comes after {later} ({lower})"
            );
        }
    }
}

#[test]
fn smollm2_continues_as_the_reference() {
    greedy(include_str!(
        "../../../tests/fixtures/references/smollm2-135m.json"
    ));
}

#[test]
fn gemma3_continues_as_the_reference() {
    greedy(include_str!(
        "../../../tests/fixtures/references/gemma3-270m.json"
    ));
}

/// Perplexity up to the end of each chunk, as `llama-perplexity -c 512 -fa on` prints it.
fn perplexity(file: &str, wanted: &[f64]) {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../LICENSE-APACHE");
    let chunks = wanted.len().to_string();
    let model = model(file);
    let report = json(&[
        "eval", &model, "--text", text, "--ctx", "512", "--chunks", &chunks, "--json",
    ]);
    let found = report["running_perplexity"].as_array().expect("chunks");
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        let found = found.as_f64().expect("a number");
        assert!(
            (found / wanted - 1.0).abs() <= PERPLEXITY,
            "{file}: {found} for {wanted}"
        );
    }
}

#[test]
fn smollm2_has_the_perplexity_of_the_reference() {
    perplexity(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        &[14.5572, 13.5531, 14.3864],
    );
}
