//! Ctrl-C, SIGTERM and a reader that leaves, at each stage.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::support::{Ended, Kvant, send};
use crate::tiny;

/// Enough tokens to take longer than any test.
const FOREVER: &str = "100000000";

/// Sends `signal` once `line` of either stream has come, and waits for the end.
fn stop(args: &[&str], signal: &str, first_byte_of_answer: bool) -> Ended {
    let kvant = Kvant::new();
    let mut child = kvant.command(args).spawn().expect("kvant runs");
    if first_byte_of_answer {
        let mut byte = [0];
        child
            .stdout
            .as_mut()
            .expect("a pipe")
            .read_exact(&mut byte)
            .expect("an answer");
    } else {
        let stderr = child.stderr.as_mut().expect("a pipe");
        let mut line = String::new();
        BufReader::with_capacity(1, stderr)
            .read_line(&mut line)
            .expect("a line");
    }
    send(signal, child.id());
    child.wait_with_output().expect("it ends").into()
}

fn ends_with_one_line(ended: &Ended, code: i32, words: &str) {
    assert_eq!(ended.code, Some(code), "{}", ended.err);
    let lines: Vec<&str> = ended.err.lines().collect();
    assert_eq!(lines.len(), 1, "one line in:\n{}", ended.err);
    assert!(
        lines[0].starts_with("stopped") && lines[0].contains(words),
        "{}",
        lines[0]
    );
}

#[test]
fn while_decoding() {
    let model = tiny::llama();
    let model = model.to_str().expect("text");
    let run = [
        "run",
        model,
        "-p",
        "Hi",
        "-n",
        FOREVER,
        "--ignore-eos",
        "--ctx",
        "1000000",
    ];
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        // The context is longer than the model was made for, which is a note of its own.
        let mut ended = stop(&run, signal, true);
        ended.err = ended
            .err
            .lines()
            .filter(|line| !line.starts_with("note:"))
            .collect::<Vec<_>>()
            .join("\n");
        ends_with_one_line(&ended, code, "while generating");
    }
}

#[test]
fn while_measuring() {
    let kvant = Kvant::new();
    let text = kvant.home.path().join("text");
    std::fs::write(&text, "All work and no play. ".repeat(20_000)).expect("written");
    let saved = kvant.home.path().join("saved");
    let (text, saved_name) = (text.to_str().expect("text"), saved.to_str().expect("text"));
    let model = tiny::llama();
    let args = [
        "eval",
        model.to_str().expect("text"),
        "--text",
        text,
        "--ctx",
        "64",
        "--save-logits",
        saved_name,
        "--backend",
        "reference",
    ];
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let ended = stop(&args, signal, false);
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        assert!(
            ended.err.ends_with("stopped while measuring\n"),
            "{}",
            ended.err
        );
        assert!(!saved.exists(), "half a file has no name");
        assert!(!saved.with_extension("part").exists(), "and is gone");
    }
}

#[test]
fn before_anything_is_loaded() {
    // Standard input stays open, so the program waits for the prompt.
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let kvant = Kvant::new();
        let model = tiny::llama();
        let mut child = kvant
            .command(&["run", model.to_str().expect("text"), "-p", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("kvant runs");
        let stdin = child.stdin.take();
        crate::support::wait_for(|| has_signal_thread(child.id()));
        send(signal, child.id());
        let ended: Ended = child.wait_with_output().expect("it ends").into();
        drop(stdin);
        ends_with_one_line(&ended, code, "");
    }
}

/// Whether the program has come so far that it listens for signals.
fn has_signal_thread(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "signals")
    })
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let kvant = Kvant::new();
    let model = tiny::llama();
    let model = model.to_str().expect("text");
    let run = [
        "run",
        model,
        "-p",
        "Hi",
        "-n",
        FOREVER,
        "--ignore-eos",
        "--ctx",
        "400000",
    ];
    let mut child = kvant.command(&run).spawn().expect("kvant runs");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut byte = [0];
    stdout.read_exact(&mut byte).expect("an answer");
    drop(stdout);
    let ended: Ended = child.wait_with_output().expect("it ends").into();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        !ended.err.contains("error") && !ended.err.contains("panicked"),
        "{}",
        ended.err
    );
}

#[test]
fn a_list_that_nobody_reads_ends_quietly() {
    let kvant = Kvant::new();
    for list in [&["pull", "--list"][..], &["pull", "--list", "--json"]] {
        let mut command = kvant.command(list);
        // A pipe whose reading end is closed before the program starts.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        command.stdout(writer);
        let ended: Ended = command.output().expect("kvant runs").into();
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(ended.err, "");
    }
}
