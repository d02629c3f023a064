//! `kvant pull` as users meet it: the real program against a web server that behaves and one that
//! does not.

use std::path::Path;
use std::time::Duration;

use crate::server::{Reply, Server};
#[cfg(unix)]
use crate::support::send;
use crate::support::{Ended, Kvant, NOBODY, noise, sha256, wait_for};

/// Path of the only `.gguf` below the models folder.
fn gguf(kvant: &Kvant) -> String {
    let files = kvant.files();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn a_url_is_pulled_once_and_then_found_in_the_cache() {
    let data = noise(300_000);
    let body = data.clone();
    let server = Server::start(move |request| Reply::file(request, &body, None));
    let kvant = Kvant::new();
    let first = kvant.run(&["pull", &server.url("/a/model.gguf")]);
    assert_eq!(first.code, Some(0), "{}", first.err);
    let path = Path::new(first.out.trim());
    assert_eq!(path, kvant.models().join(gguf(&kvant)));
    assert_eq!(std::fs::read(path).expect("read"), data);

    let second = kvant.run(&["pull", &server.url("/a/model.gguf"), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&second.out).expect("JSON");
    assert_eq!(json["source"], "cache");
    assert_eq!(json["bytes"], 300_000);
    assert_eq!(json["path"], path.to_str().expect("text"));
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn json_tells_length_checksum_and_source() {
    let data = noise(1000);
    let sum = sha256(&data);
    let server = Server::start(move |request| Reply::file(request, &data, None));
    let ended = Kvant::new().run(&["pull", &server.url("/m.gguf"), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(json["sha256"], sum);
    assert_eq!(json["bytes"], 1000);
    assert_eq!(json["source"], "url");
}

#[test]
fn a_broken_line_is_taken_up_where_it_broke() {
    let data = noise(500_000);
    let body = data.clone();
    let server = Server::start(move |request| {
        let reply = Reply::file(request, &body, Some("\"v1\""));
        if request.range_start().is_none() {
            reply.cut_after(200_000)
        } else {
            reply
        }
    });
    let kvant = Kvant::new();
    let ended = kvant.run(&["pull", &server.url("/m.gguf")]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(std::fs::read(ended.out.trim()).expect("read"), data);
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].range_start(), Some(200_000));
    assert_eq!(
        seen[1].headers.get("if-range").map(String::as_str),
        Some("\"v1\"")
    );
}

#[test]
fn a_file_that_changed_on_the_server_starts_again() {
    let (old, new) = (noise(400_000), noise(400_001)[1..].to_vec());
    let body = new.clone();
    let server = Server::start(move |request| match request.headers.get("if-range") {
        None => Reply::file(request, &old, Some("\"v1\"")).cut_after(100_000),
        Some(_) => Reply::file(request, &body, Some("\"v2\"")),
    });
    let kvant = Kvant::new();
    let ended = kvant.run(&["pull", &server.url("/m.gguf")]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(std::fs::read(ended.out.trim()).expect("read"), new);
}

#[test]
fn without_a_version_or_checksum_nothing_is_taken_up() {
    let data = noise(400_000);
    let body = data.clone();
    let calls = std::sync::atomic::AtomicU32::new(0);
    let server = Server::start(move |request| {
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let reply = Reply::file(request, &body, None);
        if first {
            reply.cut_after(100_000)
        } else {
            reply
        }
    });
    let ended = Kvant::new().run(&["pull", &server.url("/m.gguf"), "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains(&sha256(&data)));
    assert!(
        server
            .seen()
            .iter()
            .all(|request| request.range_start().is_none())
    );
}

#[test]
fn a_server_that_never_finishes_leaves_no_file_that_looks_whole() {
    let data = noise(50_000);
    let server = Server::start(move |request| {
        let mut plain = request.clone();
        plain.headers.remove("range");
        Reply::file(&plain, &data, Some("\"v1\"")).cut_after(20_000)
    });
    let kvant = Kvant::new();
    let ended = kvant.run(&["pull", &server.url("/m.gguf")]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.error().contains("broke off after 20.0 kB"),
        "{}",
        ended.err
    );
    assert!(
        ended.error().contains("run the same command again"),
        "{}",
        ended.err
    );
    for file in kvant.files() {
        assert!(
            file.ends_with(".part") || file.ends_with(".part.json"),
            "{file}"
        );
    }
}

#[cfg(unix)]
#[test]
fn interrupted_pulls_exit_as_shells_expect_and_go_on_later() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let data = noise(600_000);
        let body = data.clone();
        let server = Server::start(move |request| {
            let reply = Reply::file(request, &body, Some("\"v1\""));
            match request.range_start() {
                None => reply.cut_after(250_000).then_stall(Duration::from_secs(60)),
                Some(_) => reply,
            }
        });
        let kvant = Kvant::new();
        let child = kvant
            .command(&["pull", &server.url("/m.gguf")])
            .spawn()
            .expect("starts");
        wait_for(|| part_length(&kvant) == 250_000);
        send(signal, child.id());
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(code), "{signal}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains("run the same command again to go on"),
            "{said}"
        );
        assert!(
            kvant.files().iter().all(|file| !file.ends_with(".gguf")),
            "{:?}",
            kvant.files()
        );

        let ended = kvant.run(&["pull", &server.url("/m.gguf")]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(
            ended.err.contains("going on from 250.0 kB"),
            "{}",
            ended.err
        );
        assert_eq!(std::fs::read(ended.out.trim()).expect("read"), data);
        assert_eq!(
            server
                .seen()
                .last()
                .and_then(|request| request.range_start()),
            Some(250_000)
        );
    }
}

fn part_length(kvant: &Kvant) -> u64 {
    let part = kvant
        .files()
        .into_iter()
        .find(|file| file.ends_with(".part"));
    part.and_then(|file| kvant.models().join(file).metadata().ok())
        .map_or(0, |found| found.len())
}

#[test]
fn what_the_server_refuses_is_said_in_one_line() {
    let server = Server::start(|request| match request.path.as_str() {
        "/gone.gguf" => Reply::new(404, "no"),
        "/loop.gguf" => Reply::redirect("/loop.gguf"),
        "/nowhere.gguf" => Reply::new(302, ""),
        _ => Reply::new(403, "no"),
    });
    for (path, expected) in [
        ("/gone.gguf", "answered 404: there is no such file"),
        ("/loop.gguf", "redirects"),
        ("/nowhere.gguf", "a redirect without an address"),
        (
            "/secret.gguf",
            "answered 403: it needs a login; set HF_TOKEN",
        ),
    ] {
        let kvant = Kvant::new();
        let ended = kvant.run(&["pull", &server.url(path)]);
        assert_eq!(ended.code, Some(1), "{path}");
        assert!(ended.error().contains(expected), "{path}: {}", ended.err);
        assert!(kvant.files().iter().all(|file| !file.ends_with(".gguf")));
    }
    let ended = Kvant::new().run(&["pull", &format!("{NOBODY}/m.gguf")]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.error().contains("cannot reach 127.0.0.1"),
        "{}",
        ended.err
    );
}

#[test]
fn names_that_mean_nothing_are_usage_errors() {
    let kvant = Kvant::new();
    let ended = kvant.run(&["pull", "smollm-135m"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.error().contains("did you mean smollm2-135m?"),
        "{}",
        ended.err
    );
    assert!(ended.error().contains("kvant pull --list"), "{}", ended.err);
    assert_eq!(kvant.run(&["pull", "hf:x"]).code, Some(2));
    assert_eq!(kvant.run(&["pull"]).code, Some(2));
    let ended = kvant.run(&["pull", "no/such/file.gguf"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains("no such file"), "{}", ended.err);
    assert!(kvant.files().is_empty());
}

#[test]
fn two_pulls_of_one_file_download_it_once() {
    let data = noise(200_000);
    let body = data.clone();
    let server = Server::start(move |request| {
        std::thread::sleep(Duration::from_millis(300));
        Reply::file(request, &body, None)
    });
    let kvant = Kvant::new();
    let url = server.url("/m.gguf");
    let children: Vec<_> = (0..3)
        .map(|_| kvant.command(&["pull", &url]).spawn().expect("starts"))
        .collect();
    for child in children {
        let output = child.wait_with_output().expect("ends");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(server.seen().len(), 1);
    assert_eq!(
        std::fs::read(kvant.models().join(gguf(&kvant))).expect("read"),
        data
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let kvant = Kvant::new();
    std::fs::write(kvant.models(), "a file where the folder should be").expect("write");
    let server = Server::start(|request| Reply::file(request, b"x", None));
    let ended = kvant.run(&["pull", &server.url("/m.gguf")]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains("cannot create"), "{}", ended.err);
}

/// A file system that refuses further bytes, as a full disk does.
#[cfg(unix)]
#[test]
fn a_write_that_fails_half_way_is_told_and_leaves_no_whole_file() {
    let data = noise(3_000_000);
    let server = Server::start(move |request| Reply::file(request, &data, Some("\"v1\"")));
    let kvant = Kvant::new();
    // The signal is ignored, so that the write itself fails; blocks are 512 bytes or 1 KiB.
    let script = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\"";
    let mut shell = std::process::Command::new("sh");
    kvant.set_up(&mut shell);
    shell.args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_kvant"),
        "pull",
        &server.url("/m.gguf"),
    ]);
    let ended = Ended::from(shell.output().expect("sh runs"));
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.error().contains("cannot write"), "{}", ended.err);
    for file in kvant.files() {
        assert!(
            file.ends_with(".part") || file.ends_with(".part.json"),
            "{file}"
        );
    }
    let ended = kvant.run(&["pull", &server.url("/m.gguf")]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("going on from"), "{}", ended.err);
}

/// A disk that is really full, where this machine lets the test mount a small one.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_with_the_room_it_has_and_the_room_it_needs() {
    let kvant = Kvant::new();
    let on_small_disk = |script: &str, args: &[&str]| {
        let mount = "mount -t tmpfs -o size=1m tmpfs \"$KVANT_HOME\"";
        let mut shell = std::process::Command::new("unshare");
        kvant.set_up(&mut shell);
        shell.args(["--mount", "--user", "--map-root-user", "sh", "-c"]);
        shell.arg(format!("{mount} && {script}")).args(args);
        shell.output().map(Ended::from)
    };
    if !on_small_disk("true", &[]).is_ok_and(|ended| ended.code == Some(0)) {
        eprintln!("skipped: no right to mount a file system");
        return;
    }
    let data = noise(3_000_000);
    let server = Server::start(move |request| {
        let reply = Reply::file(request, &data, Some("\"v1\""));
        // Without an announced length only the write can find out.
        if request.path.contains("unknown") {
            reply.without_length()
        } else {
            reply
        }
    });
    for (path, needed) in [
        ("/known.gguf", "3.0 MB needed, "),
        ("/unknown.gguf", ": 0 B free"),
    ] {
        let args = [env!("CARGO_BIN_EXE_kvant"), "pull", &server.url(path)];
        let ended = on_small_disk("exec \"$0\" \"$@\"", &args).expect("runs");
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        assert!(
            ended.error().contains("not enough disk space"),
            "{}",
            ended.err
        );
        assert!(ended.error().contains(needed), "{}", ended.err);
        assert!(
            ended.error().contains("free; make room or set KVANT_HOME"),
            "{}",
            ended.err
        );
    }
}
