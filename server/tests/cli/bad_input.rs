//! Bad input: one line that says what to do, and the right exit status.

use std::io::Write;
use std::process::Stdio;

use kvant_format::gguf::Value;
use kvant_quant::WeightFormat;

use crate::support::{Ended, Kvant};
use crate::tiny::{self, Parts};

/// Runs and expects a failure whose message has all of `words`.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    check(Kvant::new().run(args), code, words);
}

fn check(ended: Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.err);
    let error = ended.error();
    for word in words {
        assert!(error.contains(word), "{word} in: {error}");
    }
}

fn run_args(model: &str) -> [&str; 6] {
    ["run", model, "-p", "Hello", "-n", "4"]
}

/// Changes the tiny model and runs it.
fn run_changed(change: impl FnOnce(&mut Parts)) -> Ended {
    let kvant = Kvant::new();
    let mut parts = Parts::llama();
    change(&mut parts);
    let model = parts.write(kvant.home.path());
    kvant.run(&run_args(&model))
}

#[test]
fn an_unchanged_copy_runs() {
    let ended = run_changed(|_| ());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
}

#[test]
fn missing_and_foreign_files() {
    refused(
        &run_args("./no-such-model.gguf"),
        1,
        &["no-such-model.gguf"],
    );
    refused(
        &run_args("no-such-name"),
        2,
        &["no-such-name", "pull --list"],
    );
    let kvant = Kvant::new();
    let file = kvant.home.path().join("text.gguf");
    std::fs::write(&file, "this is no model at all, only some text").expect("written");
    check(
        kvant.run(&run_args(file.to_str().expect("text"))),
        1,
        &["text.gguf", "GGUF"],
    );
    std::fs::write(&file, "").expect("written");
    check(
        kvant.run(&run_args(file.to_str().expect("text"))),
        1,
        &["text.gguf"],
    );
    let whole = std::fs::read(tiny::llama()).expect("read");
    std::fs::write(&file, &whole[..whole.len() - 1000]).expect("written");
    check(
        kvant.run(&run_args(file.to_str().expect("text"))),
        1,
        &["text.gguf"],
    );
}

#[test]
fn an_unknown_family_is_named_with_those_known() {
    let change = |parts: &mut Parts| {
        parts.set("general.architecture", Value::String(b"weirdnet".to_vec()));
    };
    check(run_changed(change), 1, &["weirdnet", "llama", "gemma3"]);
    let kvant = Kvant::new();
    let mut parts = Parts::llama();
    change(&mut parts);
    let shown = kvant.run(&["inspect", &parts.write(kvant.home.path())]);
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(shown.out.contains("cannot run: "), "{}", shown.out);
}

#[test]
fn a_missing_tensor_is_named() {
    let name = "blk.1.ffn_up.weight";
    let ended = run_changed(|parts| parts.tensors.retain(|tensor| tensor.name != name));
    check(ended, 1, &[name, "model.gguf"]);
}

#[test]
fn scales_that_are_no_numbers_are_refused() {
    for backend in ["cpu", "reference"] {
        let kvant = Kvant::new();
        let mut parts = Parts::llama();
        let tensor = parts.tensor("blk.0.attn_q.weight");
        let (n_rows, n_cols) = (tensor.shape[0], tensor.shape[1]);
        tensor.format = WeightFormat::Q8_0;
        let block = [[0x00, 0x7e].as_slice(), &[1; 32]].concat();
        tensor.bytes = block.repeat(n_rows * n_cols / 32);
        let model = parts.write(kvant.home.path());
        let args = [&run_args(&model)[..], &["--backend", backend]].concat();
        check(kvant.run(&args), 1, &["blk.0.attn_q.weight"]);
    }
}

#[test]
fn a_prompt_longer_than_the_context() {
    let model = tiny::llama();
    let model = model.to_str().expect("text");
    let long = "long ".repeat(40);
    refused(
        &["run", model, "-p", &long, "--ctx", "64"],
        1,
        &["64", "--ctx 1024"],
    );
    let chat = [
        "chat",
        model,
        "--chat-template",
        "chatml",
        "-p",
        &long,
        "--ctx",
        "64",
    ];
    refused(&chat, 1, &["64", "--ctx 1024"]);
}

#[test]
fn input_that_is_no_text() {
    let kvant = Kvant::new();
    let model = tiny::llama();
    let model = model.to_str().expect("text");
    let commands: [&[&str]; 3] = [
        &["run", model, "-p", "-"],
        &["chat", model, "--chat-template", "chatml"],
        &["tokenize", model],
    ];
    for args in commands {
        let mut child = kvant
            .command(args)
            .stdin(Stdio::piped())
            .spawn()
            .expect("kvant runs");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(b"caf\xe9 au lait").expect("it reads");
        drop(stdin);
        let ended = child.wait_with_output().expect("it ends").into();
        check(ended, 1, &["standard input", "UTF-8", "byte 3"]);
    }
    let file = kvant.home.path().join("latin1.txt");
    std::fs::write(&file, b"caf\xe9").expect("written");
    let args = ["eval", model, "--text", file.to_str().expect("text")];
    check(kvant.run(&args), 1, &["latin1.txt", "UTF-8"]);
}

#[test]
fn options_that_make_no_sense() {
    let model = tiny::llama();
    let model = model.to_str().expect("text");
    let run = |more: &[&str]| Kvant::new().run(&[&["run", model, "-p", "Hi"][..], more].concat());
    let more: [&[&str]; 7] = [
        &["--temperature", "-1"],
        &["--top-p", "1.5"],
        &["-n", "0"],
        &["--threads", "0"],
        &["--ctx", "many"],
        &["--backend", "gpu"],
        &["--logprobs", "3"],
    ];
    for more in more {
        let ended = run(more);
        assert_eq!(ended.code, Some(2), "{more:?}: {}", ended.err);
    }
    check(run(&["--stop", ""]), 1, &["stop"]);
    refused(
        &["run", model, "--tokens", "1,999999"],
        1,
        &["999999", "264"],
    );
    refused(&["run", model, "-p", "", "--no-bos"], 1, &["empty"]);
    refused(&["tokenize", model, "--ids", "999999"], 1, &["999999"]);
    refused(
        &["chat", model, "--chat-template", "nosuch", "-p", "Hi"],
        2,
        &["nosuch", "chatml"],
    );
    refused(
        &["bench", model, "-p", "0", "-n", "0"],
        2,
        &["nothing to measure"],
    );
    refused(
        &["eval", model, "--text", "/nonexistent/text"],
        1,
        &["/nonexistent/text"],
    );
}

#[test]
fn a_text_shorter_than_a_chunk() {
    let kvant = Kvant::new();
    let file = kvant.home.path().join("short.txt");
    std::fs::write(&file, "short").expect("written");
    let model = tiny::llama();
    let args = [
        "eval",
        model.to_str().expect("text"),
        "--text",
        file.to_str().expect("text"),
    ];
    check(kvant.run(&args), 1, &["short.txt", "chunk of 512"]);
}
