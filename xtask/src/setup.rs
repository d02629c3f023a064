//! What the checks need beyond Rust itself, and how to get it.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::run::{is_there, run};

/// Target of the browser build.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";
/// Target whose NEON kernels are tested.
pub(crate) const ARM: &str = "aarch64-unknown-linux-gnu";
/// Linker for [`ARM`].
pub(crate) const ARM_LINKER: &str = "aarch64-linux-gnu-gcc";
/// Runs programs for [`ARM`] on another processor.
pub(crate) const ARM_EMULATOR: &str = "qemu-aarch64";
/// Where the libraries for [`ARM`] lie.
pub(crate) const ARM_SYSROOT: &str = "/usr/aarch64-linux-gnu";

const ARM_PACKAGES: [&str; 3] = [
    "qemu-user",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
];

/// Whether the user asked for a run in which nothing may be missing.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Installs Rust targets and components, and the system packages where that is allowed.
pub(crate) fn install() -> Result<()> {
    rust_parts()?;
    if !arm_is_native() && !arm_tools_are_there() {
        system_packages()?;
    }
    Ok(())
}

/// Why the ARM tests cannot run here, if so. In CI that is an error.
pub(crate) fn arm_obstacle() -> Result<Option<String>> {
    if arm_is_native() {
        return Ok(Some(
            "this processor is one itself: the ordinary tests cover NEON".to_owned(),
        ));
    }
    if arm_tools_are_there() {
        return Ok(None);
    }
    let why = format!(
        "{ARM_EMULATOR} or {ARM_LINKER} is missing; on Debian: apt-get install {}",
        ARM_PACKAGES.join(" ")
    );
    if is_ci() {
        bail!("{why}");
    }
    Ok(Some(why))
}

fn arm_is_native() -> bool {
    cfg!(target_arch = "aarch64")
}

fn arm_tools_are_there() -> bool {
    is_there(ARM_EMULATOR) && is_there(ARM_LINKER) && Path::new(ARM_SYSROOT).join("lib").is_dir()
}

fn rust_parts() -> Result<()> {
    if !is_there("rustup") {
        println!("no rustup: using the Rust that is here, which must know {WASM} and {ARM}");
        return Ok(());
    }
    let installed = |what: &str| -> Result<String> {
        let output = Command::new("rustup")
            .args([what, "list", "--installed"])
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let targets = installed("target")?;
    for target in [WASM, ARM] {
        if !targets.lines().any(|line| line.trim() == target) {
            run(Command::new("rustup").args(["target", "add", target]))?;
        }
    }
    let components = installed("component")?;
    for component in ["rustfmt", "clippy"] {
        if !components.lines().any(|line| line.starts_with(component)) {
            run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    Ok(())
}

/// Installs Debian packages as root or through a sudo that asks nothing. Elsewhere the stage that
/// needs them says so.
fn system_packages() -> Result<()> {
    if !is_there("apt-get") {
        return Ok(());
    }
    let quiet_success = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    let prefix: &[&str] = if is_root {
        &["env", "DEBIAN_FRONTEND=noninteractive"]
    } else if quiet_success("sudo", &["-n", "true"]) {
        &["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive"]
    } else {
        return Ok(());
    };
    let apt = |args: &[&str]| {
        let mut command = Command::new(prefix[0]);
        command
            .args(&prefix[1..])
            .args(["apt-get", "--quiet", "--yes"])
            .args(args);
        run(&mut command)
    };
    // A package list that is out of date or partly unreachable may still do.
    if let Err(error) = apt(&["update"]) {
        println!("{error:#}");
    }
    let mut install = vec!["install", "--no-install-recommends"];
    install.extend(ARM_PACKAGES);
    match apt(&install) {
        Err(error) if !is_ci() => {
            println!("{error:#}");
            Ok(())
        }
        outcome => outcome,
    }
}
