//! `cargo xtask test`: everything that must hold, quick things first.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{run, run_counting};
use crate::setup::{self, ARM, ARM_EMULATOR, ARM_LINKER, ARM_SYSROOT, WASM};
use crate::stages::{Outcome, Stage, run_all};
use crate::workspace::{cargo, crates, root, target};
use crate::{invariants, models};

const STAGES: [Stage; 11] = [
    Stage {
        name: "setup",
        about: "what the checks need",
        work: setup,
    },
    Stage {
        name: "fmt",
        about: "the code is formatted",
        work: fmt,
    },
    Stage {
        name: "invariants",
        about: "what the architecture promises",
        work: check_invariants,
    },
    Stage {
        name: "clippy",
        about: "no warning anywhere",
        work: clippy,
    },
    Stage {
        name: "build",
        about: "all tests compile",
        work: build,
    },
    Stage {
        name: "models",
        about: "the models that tests use",
        work: fetch_models,
    },
    Stage {
        name: "test",
        about: "all tests of the workspace",
        work: test,
    },
    Stage {
        name: "docs",
        about: "the documentation builds",
        work: docs,
    },
    Stage {
        name: "wasm",
        about: "all of core builds for the browser",
        work: wasm,
    },
    Stage {
        name: "neon",
        about: "CPU kernels on emulated ARM",
        work: neon,
    },
    Stage {
        name: "fuzz",
        about: "the fuzz targets compile",
        work: fuzz,
    },
];

/// Runs all stages.
pub(crate) fn all() -> Result<()> {
    run_all(&STAGES)
}

/// Prints the names of the stages.
pub(crate) fn list() {
    for stage in &STAGES {
        println!("{:12}{}", stage.name, stage.about);
    }
}

/// Runs one stage.
pub(crate) fn only(name: &str) -> Result<()> {
    let stage = STAGES.iter().position(|stage| stage.name == name);
    let at = stage.with_context(|| {
        let names: Vec<_> = STAGES.iter().map(|stage| stage.name).collect();
        format!("no stage is called {name}; there are {}", names.join(", "))
    })?;
    run_all(&STAGES[at..=at])
}

/// Cargo as the stages use it. Half-built state helps an editor, but in CI nothing is built twice.
fn stage_cargo() -> Command {
    let mut command = cargo();
    if setup::is_ci() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

fn setup() -> Result<Outcome> {
    setup::install()?;
    Ok(Outcome::Done)
}

fn fmt() -> Result<Outcome> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Done)
}

fn check_invariants() -> Result<Outcome> {
    let broken = invariants::check_all()?;
    for line in &broken {
        println!("{line}");
    }
    ensure!(broken.is_empty(), "{} broken, listed above", broken.len());
    Ok(Outcome::Done)
}

fn clippy() -> Result<Outcome> {
    let args = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    run(stage_cargo().args(args))?;
    Ok(Outcome::Done)
}

fn build() -> Result<Outcome> {
    run(stage_cargo().args(["test", "--workspace", "--no-run"]))?;
    Ok(Outcome::Done)
}

fn fetch_models() -> Result<Outcome> {
    models::fetch()?;
    Ok(Outcome::Done)
}

fn test() -> Result<Outcome> {
    let counts = run_counting(
        stage_cargo()
            .args(["test", "--workspace", "--no-fail-fast"])
            .env("KVANT_MODELS", models::folder()),
    )?;
    ensure!(counts.passed > 0, "no test was run");
    Ok(Outcome::Tests(counts))
}

fn docs() -> Result<Outcome> {
    let args = ["doc", "--workspace", "--no-deps"];
    run(stage_cargo().args(args).env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Outcome::Done)
}

fn wasm() -> Result<Outcome> {
    let mut command = stage_cargo();
    command.args(["build", "--target", WASM, "--no-default-features"]);
    // Nothing here is run, so nothing is optimised.
    command.args(["--config", "profile.dev.opt-level=0"]);
    command.args(["--config", "profile.dev.package.\"*\".opt-level=0"]);
    for member in crates()?
        .iter()
        .filter(|member| member.folder.starts_with("core/"))
    {
        command.args(["--package", &member.name]);
    }
    run(&mut command)?;
    Ok(Outcome::Done)
}

fn neon() -> Result<Outcome> {
    if let Some(why) = setup::arm_obstacle()? {
        return Ok(Outcome::Skipped(why));
    }
    let counts = run_counting(
        stage_cargo()
            .args(["test", "--target", ARM, "--no-fail-fast"])
            .args(["--package", "kvant-cpu", "--package", "kvant-conformance"])
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", ARM_LINKER)
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                format!("{ARM_EMULATOR} -cpu max -L {ARM_SYSROOT}"),
            ),
    )?;
    Ok(Outcome::Tests(counts))
}

fn fuzz() -> Result<Outcome> {
    let manifest = root().join("fuzz").join("Cargo.toml");
    if !manifest.is_file() {
        return Ok(Outcome::Skipped("no fuzz targets".to_owned()));
    }
    // Checking links nothing, so the fuzzer's C++ part need not be built: any path will do for it.
    run(stage_cargo()
        .args([
            "check",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--target-dir",
        ])
        .arg(target().join("fuzz"))
        .env("CUSTOM_LIBFUZZER_PATH", "./libfuzzer.a"))?;
    Ok(Outcome::Done)
}
