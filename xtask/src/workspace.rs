//! Where things are: the repository, the build folder, the crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Cargo's build folder.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// A crate of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crate {
    /// Package name, such as `kvant-quant`.
    pub(crate) name: String,
    /// Folder relative to the root, with `/`, such as `core/quant`.
    pub(crate) folder: String,
    /// Names of all packages it builds on, apart from those of tests.
    pub(crate) dependencies: Vec<String>,
}

/// All crates of the workspace, by `cargo metadata`.
pub(crate) fn crates() -> Result<Vec<Crate>> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    parse(&metadata, &root())
}

fn parse(metadata: &Value, root: &Path) -> Result<Vec<Crate>> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a string");
    let list = |value: &Value| value.as_array().cloned().context("a list");
    let mut crates = Vec::new();
    for package in list(&metadata["packages"])? {
        let manifest = PathBuf::from(text(&package["manifest_path"])?);
        let folder = manifest
            .parent()
            .and_then(|dir| dir.strip_prefix(root).ok());
        let folder = folder.context("a crate outside the repository")?;
        let mut dependencies = Vec::new();
        for dependency in list(&package["dependencies"])? {
            if dependency["kind"] != "dev" {
                dependencies.push(text(&dependency["name"])?);
            }
        }
        crates.push(Crate {
            name: text(&package["name"])?,
            folder: folder.to_string_lossy().replace('\\', "/"),
            dependencies,
        });
    }
    Ok(crates)
}

/// Files that belong to the repository: tracked ones, and new ones that git does not ignore.
/// Relative to the root, with `/`.
pub(crate) fn files() -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root())
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("cannot run git")?;
    ensure!(output.status.success(), "git ls-files failed");
    let mut files: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter(|path| !path.is_empty() && root().join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
