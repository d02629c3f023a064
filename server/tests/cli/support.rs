//! What tests of the real program share.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// An address where nobody listens.
pub(crate) const NOBODY: &str = "http://127.0.0.1:9";

/// The program with a home folder of its own.
pub(crate) struct Kvant {
    /// Kvant's home folder.
    pub(crate) home: TempDir,
    endpoint: String,
    path: Option<PathBuf>,
}

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit status.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Kvant {
    /// A fresh home, and a hub that cannot be reached.
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().expect("temp dir");
        Self {
            home,
            endpoint: NOBODY.to_owned(),
            path: None,
        }
    }

    /// Uses `server` as the hub.
    pub(crate) fn with_hub(mut self, server: &crate::server::Server) -> Self {
        self.endpoint = server.url("");
        self
    }

    /// Finds programs in `folder` only.
    pub(crate) fn with_path(mut self, folder: &Path) -> Self {
        self.path = Some(folder.to_owned());
        self
    }

    /// The folder of models.
    pub(crate) fn models(&self) -> PathBuf {
        self.home.path().join("models")
    }

    /// A command for the program.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvant"));
        self.set_up(&mut command);
        command.args(args);
        command
    }

    /// Gives any command this home, no proxy and no terminal.
    pub(crate) fn set_up(&self, command: &mut Command) {
        for name in [
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "http_proxy",
            "https_proxy",
        ] {
            command.env_remove(name);
        }
        command
            .env_remove("all_proxy")
            .env_remove("HF_TOKEN")
            .env("HF_ENDPOINT", &self.endpoint)
            .env("KVANT_HOME", self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.command(args).output().expect("kvant runs").into()
    }

    /// All files below the folder of models but the locks, relative to it, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.models(), &self.models(), &mut found);
        found.retain(|file| !file.starts_with(".locks/"));
        found.sort();
        found
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

impl Ended {
    /// The error line: exactly one, and the last thing said.
    pub(crate) fn error(&self) -> &str {
        let errors = self
            .err
            .lines()
            .filter(|line| line.starts_with("error:"))
            .count();
        assert_eq!(errors, 1, "one error line in:\n{}", self.err);
        let last = self.err.lines().last().expect("a line");
        assert!(
            last.starts_with("error:"),
            "the error comes last in:\n{}",
            self.err
        );
        last
    }
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.path().is_dir() {
            collect(root, &entry.path(), found);
        } else {
            let path = entry.path();
            let relative = path
                .strip_prefix(root)
                .expect("below")
                .to_string_lossy()
                .into_owned();
            found.push(relative.replace('\\', "/"));
        }
    }
}

/// Bytes that do not repeat within a file.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let step = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 24) as u8
    };
    (0..length).map(|_| step(&mut state)).collect()
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(data: &[u8]) -> String {
    Sha256::digest(data)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Sends a signal, named without SIG.
#[cfg(unix)]
pub(crate) fn send(signal: &str, process: u32) {
    let kill = format!("kill -{signal} {process}");
    let status = Command::new("sh")
        .args(["-c", &kill])
        .status()
        .expect("sh runs");
    assert!(status.success());
}

/// Waits until something is so, for a minute at most.
pub(crate) fn wait_for(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "waited too long"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
