//! `cargo xtask models`: the models that tests use, by `kvant pull` itself.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::run::run;
use crate::workspace::{cargo, target};

/// Catalogue names of the models.
const NAMES: [&str; 2] = ["smollm2-135m", "gemma3-270m"];

/// The folder tests look in: `$KVANT_MODELS`, or `models` in the build folder.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("KVANT_MODELS").map_or_else(|| target().join("models"), PathBuf::from)
}

/// Pulls what is missing. A folder that the user chose is taken as it is.
pub(crate) fn fetch() -> Result<()> {
    if std::env::var_os("KVANT_MODELS").is_some() {
        let folder = folder();
        ensure!(
            folder.is_dir(),
            "KVANT_MODELS is {}, which is no folder",
            folder.display()
        );
        println!("using the models in {} (KVANT_MODELS)", folder.display());
        return Ok(());
    }
    // The profile of the tests, which need the program too.
    run(cargo().args([
        "build",
        "--quiet",
        "--profile",
        "test",
        "--package",
        "kvant",
    ]))?;
    let kvant = target()
        .join("debug")
        .join(format!("kvant{}", std::env::consts::EXE_SUFFIX));
    for name in NAMES {
        run(Command::new(&kvant)
            .args(["pull", name, "--accept-licence"])
            .env("KVANT_HOME", target()))?;
    }
    Ok(())
}
