//! What each command prints, on a tiny model.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Ended, Kvant};
use crate::tiny;

fn llama() -> String {
    tiny::llama().to_str().expect("text").to_owned()
}

fn json(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    serde_json::from_str(&ended.out).expect("JSON")
}

/// Runs the program with `input` on its standard input.
fn with_input(args: &[&str], input: &[u8]) -> Ended {
    let kvant = Kvant::new();
    let mut child = kvant
        .command(args)
        .stdin(Stdio::piped())
        .spawn()
        .expect("kvant runs");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input)
        .expect("it reads");
    child.wait_with_output().expect("it ends").into()
}

#[test]
fn run_gives_the_same_text_as_its_json_and_both_backends_agree() {
    let kvant = Kvant::new();
    let base = [
        "run",
        &llama(),
        "-p",
        "Hello",
        "-n",
        "12",
        "--temperature",
        "0",
        "--ignore-eos",
    ];
    let plain = kvant.run(&base);
    assert_eq!(plain.code, Some(0), "{}", plain.err);
    let ask = |more: &[&str]| json(&kvant.run(&[&base[..], more].concat()));
    let cpu = ask(&["--json", "--logprobs", "3"]);
    assert_eq!(
        plain.out,
        format!("{}\n", cpu["text"].as_str().expect("text"))
    );
    assert_eq!(cpu["token_ids"].as_array().expect("ids").len(), 12);
    assert_eq!(cpu["finish_reason"], "max_tokens");
    let steps = cpu["logprobs"].as_array().expect("steps");
    assert_eq!(steps.len(), 12);
    for (step, id) in steps.iter().zip(cpu["token_ids"].as_array().expect("ids")) {
        assert_eq!(&step["id"], id);
        let top = step["top"].as_array().expect("three");
        assert_eq!(top.len(), 3);
        assert_eq!(top[0]["id"], *id, "greedy takes the likeliest");
        assert_eq!(top[0]["logprob"], step["logprob"]);
    }
    let reference = ask(&["--json", "--logprobs", "3", "--backend", "reference"]);
    let first = |report: &Value| report["logprobs"][0]["logprob"].as_f64().expect("a number");
    assert!((first(&cpu) - first(&reference)).abs() < 0.05);
}

#[test]
fn run_takes_token_ids_stop_strings_and_seeds() {
    let kvant = Kvant::new();
    let model = llama();
    let ids = json(&kvant.run(&["tokenize", &model, "Hello", "--json"]))["token_ids"].clone();
    let list = ids
        .as_array()
        .expect("ids")
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let greedy = ["-n", "12", "--temperature", "0", "--ignore-eos", "--json"];
    let of_text = json(&kvant.run(&[&["run", &model, "-p", "Hello"][..], &greedy].concat()));
    let of_ids = json(&kvant.run(&[&["run", &model, "--tokens", &list][..], &greedy].concat()));
    assert_eq!(of_text["text"], of_ids["text"]);
    assert_eq!(of_text["prompt_ids"], ids);

    let text = of_text["text"].as_str().expect("text");
    let stop: String = text.chars().skip(2).take(2).collect();
    let cut = json(
        &kvant.run(
            &[
                &["run", &model, "-p", "Hello", "--stop", &stop][..],
                &greedy,
            ]
            .concat(),
        ),
    );
    assert_eq!(cut["finish_reason"], "stop_string");
    assert_eq!(
        cut["text"].as_str().expect("text"),
        text.split(&stop).next().expect("a start")
    );

    let drawn = |seed: &str| {
        let args = [
            "run",
            &model,
            "-p",
            "Hello",
            "-n",
            "24",
            "--ignore-eos",
            "--seed",
            seed,
            "--json",
        ];
        json(&kvant.run(&args))["token_ids"].clone()
    };
    assert_eq!(drawn("7"), drawn("7"));
    assert_ne!(drawn("7"), drawn("8"));
}

#[test]
fn a_prompt_comes_from_standard_input() {
    let args = [
        "run",
        &llama(),
        "-p",
        "-",
        "-n",
        "4",
        "--temperature",
        "0",
        "--json",
    ];
    let piped = json(&with_input(&args, b"Hello"));
    let given = json(&Kvant::new().run(&[
        "run",
        &llama(),
        "-p",
        "Hello",
        "-n",
        "4",
        "--temperature",
        "0",
        "--json",
    ]));
    assert_eq!(piped["token_ids"], given["token_ids"]);
}

#[test]
fn tokenize_goes_there_and_back() {
    let kvant = Kvant::new();
    let model = llama();
    let text = "Hello wörld 🌍\n";
    let report = json(&kvant.run(&["tokenize", &model, "--no-bos", "--json", text]));
    let ids = report["token_ids"]
        .as_array()
        .expect("ids")
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>();
    assert!(!ids.is_empty());
    let back = kvant.run(&["tokenize", &model, "--ids", &ids.join(",")]);
    assert_eq!(back.out, format!("{text}\n"));
    let piped = json(&with_input(
        &["tokenize", &model, "--no-bos", "--json"],
        text.as_bytes(),
    ));
    assert_eq!(piped["token_ids"], report["token_ids"]);
    let with_bos = json(&kvant.run(&["tokenize", &model, "--bos", "--json", text]));
    assert_eq!(
        with_bos["token_ids"].as_array().expect("ids").len(),
        ids.len() + 1
    );
    let lines = kvant.run(&["tokenize", &model, "--no-bos", text]);
    assert_eq!(lines.out.lines().count(), ids.len());
}

#[test]
fn inspect_tells_what_the_engine_then_takes() {
    let kvant = Kvant::new();
    let model = llama();
    let report = json(&kvant.run(&[
        "inspect",
        &model,
        "--ctx",
        "256",
        "--plan",
        "--tensors",
        "--json",
    ]));
    assert_eq!(report["shape"]["architecture"], "llama");
    assert_eq!(report["shape"]["n_layers"], 2);
    assert_eq!(report["memory"]["context_tokens"], 256);
    let bytes: u64 = report["by_type"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["bytes"].as_u64())
        .sum();
    let tensors = report["tensors"].as_array().expect("rows");
    assert_eq!(
        bytes,
        tensors
            .iter()
            .filter_map(|row| row["bytes"].as_u64())
            .sum::<u64>()
    );
    let plan = report["plan"].as_str().expect("a plan");
    assert!(
        plan.contains("kv plan") && plan.lines().count() > 10,
        "{plan}"
    );
    let vocabulary = &report["metadata"]["tokenizer.ggml.tokens"];
    assert_eq!(vocabulary["length"], 264, "long arrays are cut");

    let text = kvant.run(&["inspect", &model]);
    assert_eq!(text.code, Some(0), "{}", text.err);
    assert!(text.out.contains("keys and values"), "{}", text.out);
    assert!(text.out.lines().all(|line| line.chars().count() < 200));

    let folder = kvant.run(&["inspect", tiny::llama_folder().to_str().expect("text")]);
    assert!(
        folder.out.contains("2 layers of width 32"),
        "{}",
        folder.out
    );
}

#[test]
fn a_folder_and_its_gguf_twin_continue_alike() {
    let kvant = Kvant::new();
    let run = |model: &str| {
        let args = [
            "run",
            model,
            "-p",
            "Hi there",
            "-n",
            "6",
            "--temperature",
            "0",
        ];
        let report = kvant.run(&[&args[..], &["--deterministic", "--json"]].concat());
        assert_eq!(report.code, Some(0), "{}", report.err);
        let report: serde_json::Value = serde_json::from_str(&report.out).expect("JSON");
        (report["prompt_ids"].clone(), report["token_ids"].clone())
    };
    let folder = tiny::llama_folder();
    let twin = folder.join("model.gguf");
    let (folder, twin) = (
        run(folder.to_str().expect("text")),
        run(twin.to_str().expect("text")),
    );
    assert_eq!(folder, twin);
    assert_eq!(
        folder.0.as_array().map(Vec::len),
        Some(5),
        "the prompt is {}",
        folder.0
    );
}

#[test]
fn chat_answers_once_for_a_flag_and_for_a_pipe() {
    let kvant = Kvant::new();
    let model = llama();
    let args = [
        "chat",
        &model,
        "--chat-template",
        "chatml",
        "-n",
        "8",
        "--temperature",
        "0",
    ];
    let asked = kvant.run(&[&args[..], &["-p", "Hi"]].concat());
    assert_eq!(asked.code, Some(0), "{}", asked.err);
    assert!(
        asked.err.contains("chat template: family `chatml`"),
        "{}",
        asked.err
    );
    let piped = with_input(&args, b"Hi");
    assert_eq!(piped.out, asked.out);
    let report = json(&kvant.run(&[&args[..], &["-p", "Hi", "--json"]].concat()));
    assert_eq!(
        format!("{}\n", report["answer"].as_str().expect("text")),
        asked.out
    );
}

#[test]
fn a_template_file_is_used_and_its_errors_name_the_line() {
    let kvant = Kvant::new();
    let model = llama();
    let template = kvant.home.path().join("template.jinja");
    let ask = |source: &str| {
        std::fs::write(&template, source).expect("written");
        let file = template.to_str().expect("text");
        kvant.run(&[
            "chat",
            &model,
            "--chat-template",
            file,
            "-p",
            "Hi",
            "-n",
            "4",
            "--json",
        ])
    };
    let report = json(&ask("{{ messages[0].content }}"));
    let tokens = json(&kvant.run(&["tokenize", &model, "Hi", "--json"]))["token_ids"]
        .as_array()
        .expect("ids")
        .len();
    assert_eq!(report["prompt_tokens"], tokens);
    let failed = ask("{{ messages[0].content }}\n{% if %}");
    assert_eq!(failed.code, Some(1));
    assert!(failed.error().contains("line 2"), "{}", failed.err);
}

#[test]
fn bench_measures_every_row_asked_for() {
    let args = [
        "bench",
        &llama(),
        "-p",
        "8,16",
        "-n",
        "4",
        "--depth",
        "0,32",
        "--batch",
        "1,2",
        "--threads",
        "1",
        "--reps",
        "2",
        "--json",
    ];
    let report = json(&Kvant::new().run(&args));
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert!(row["tokens_per_second"].as_f64().expect("a number") > 0.0);
        assert_eq!(row["seconds"].as_array().expect("runs").len(), 2);
        let is_decode = row["kind"] == "decode";
        assert_eq!(row["share_of_bandwidth"].is_number(), is_decode);
    }
}

#[test]
fn eval_compares_with_what_it_saved() {
    let kvant = Kvant::new();
    let text = kvant.home.path().join("text");
    std::fs::write(
        &text,
        "The quick brown fox jumps over the lazy dog. ".repeat(20),
    )
    .expect("written");
    let (text, saved) = (
        text.to_str().expect("text"),
        kvant.home.path().join("saved"),
    );
    let saved = saved.to_str().expect("text");
    let model = llama();
    let base = ["eval", &model, "--text", text, "--ctx", "64", "--json"];
    let first = json(&kvant.run(&[&base[..], &["--chunks", "3", "--save-logits", saved]].concat()));
    assert_eq!(
        first["running_perplexity"]
            .as_array()
            .expect("chunks")
            .len(),
        3
    );
    assert_eq!(first["measured_tokens"], 3 * 31);
    let perplexity = first["perplexity"].as_f64().expect("a number");
    assert!((1.0..10_000.0).contains(&perplexity));

    let same = json(&kvant.run(&[&base[..], &["--chunks", "3", "--base", saved]].concat()));
    assert_eq!(same["perplexity"], first["perplexity"]);
    assert!(same["divergence"]["max_kl"].as_f64().expect("a number") < 1e-4);
    assert_eq!(same["divergence"]["top_1_agreement"], 1.0);

    let wrong = kvant.run(&[&base[..], &["--chunks", "2", "--base", saved]].concat());
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.error().contains("3 chunks"), "{}", wrong.err);
    let not_logits = kvant.run(&[&base[..], &["--base", text]].concat());
    assert!(
        not_logits.error().contains("not a file of saved logits"),
        "{}",
        not_logits.err
    );
}

#[test]
fn every_command_has_help_with_examples() {
    let kvant = Kvant::new();
    for command in [
        "chat", "run", "tokenize", "inspect", "bench", "eval", "pull",
    ] {
        let help = kvant.run(&[command, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.out.contains("Examples:"), "{command}");
    }
    assert!(kvant.run(&["--help"]).out.contains("Exit status"));
}

#[test]
fn kv_formats_are_priced_and_used() {
    let kvant = Kvant::new();
    let folder = tiny::llama_folder();
    let model = folder.to_str().expect("text");
    let bytes = |kv: &str| {
        let report = kvant.run(&["inspect", model, "--kv", kv, "--json"]);
        assert_eq!(report.code, Some(0), "{}", report.err);
        let report: serde_json::Value = serde_json::from_str(&report.out).expect("JSON");
        assert_eq!(report["memory"]["kv"], kv);
        report["memory"]["kv_bytes_per_token"].as_u64()
    };
    let f16 = bytes("f16").expect("a number");
    assert_eq!(bytes("f32"), Some(2 * f16));
    assert_eq!(bytes("f32/f16"), Some(f16 + f16 / 2));
    let ids = |kv: &str, backend: &str| {
        let args = ["run", model, "-p", "Hi", "-n", "4", "--temperature", "0"];
        let rest = [
            "--deterministic",
            "--json",
            "--kv",
            kv,
            "--backend",
            backend,
        ];
        let report = kvant.run(&[&args[..], &rest].concat());
        assert_eq!(report.code, Some(0), "{}", report.err);
        let report: serde_json::Value = serde_json::from_str(&report.out).expect("JSON");
        report["token_ids"].clone()
    };
    for kv in ["f32", "f16/f32", "f32/f16"] {
        assert_eq!(ids(kv, "cpu"), ids(kv, "reference"));
    }
    let unknown = kvant.run(&["run", model, "-p", "Hi", "--kv", "f17"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.err.contains("known are f16, f32"),
        "{}",
        unknown.err
    );
}
