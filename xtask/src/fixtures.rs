//! `cargo xtask fixtures`: writes the Python-made test fixtures again.
//!
//! Each folder of `tests/fixtures` that has a `generate.py` is one fixture; a `requirements.txt`
//! beside it pins the packages it needs. They are installed in a private environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::models;
use crate::run::{is_there, run};
use crate::workspace::{root, target};

/// Runs the generators: all, or the one in the folder `name`.
pub(crate) fn generate(name: Option<&str>) -> Result<()> {
    let generators = generators(name)?;
    let python = environment(&generators)?;
    for generator in generators {
        run(Command::new(&python)
            .arg(generator.strip_prefix(root()).unwrap_or(&generator))
            .current_dir(root())
            .env("KVANT_MODELS", models::folder()))?;
    }
    Ok(())
}

fn generators(name: Option<&str>) -> Result<Vec<PathBuf>> {
    let folder = root().join("tests").join("fixtures");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let script = entry.path().join("generate.py");
        let wanted = name.is_none_or(|name| entry.file_name() == *name);
        if wanted && script.is_file() {
            found.push(script);
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "no generate.py in {}", folder.display());
    Ok(found)
}

/// The Python of an environment that has what the generators require.
fn environment(generators: &[PathBuf]) -> Result<PathBuf> {
    let folder = target().join("python");
    let bin = folder.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let python = bin.join(format!("python{}", std::env::consts::EXE_SUFFIX));
    if !python.is_file() {
        let system = ["python3", "python"]
            .into_iter()
            .find(|name| is_there(name));
        let system = system.context("no python3 found; install Python 3 with venv and pip")?;
        run(Command::new(system).args(["-m", "venv"]).arg(&folder))?;
    }
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    let lists = generators
        .iter()
        .map(|script| script.with_file_name("requirements.txt"));
    let lists: Vec<PathBuf> = lists.filter(|list| Path::is_file(list)).collect();
    if !lists.is_empty() {
        for list in lists {
            install.arg("--requirement").arg(list);
        }
        run(&mut install)?;
    }
    Ok(python)
}
