//! Which crate may build on which. Arrows never point backwards, and core names no platform.

use crate::workspace::Crate;

/// A folder and the folders it may build on directly. What those build on is allowed as well.
const ARROWS: [(&str, &[&str]); 13] = [
    ("core/quant", &[]),
    ("core/format", &["core/quant"]),
    ("core/kv", &["core/quant"]),
    ("core/device", &["core/quant"]),
    ("core/model", &["core/format", "core/device"]),
    ("core/text", &[]),
    (
        "core/engine",
        &["core/model", "core/kv", "core/text", "core/device"],
    ),
    ("backends/reference", &["core/device"]),
    ("backends/cpu", &["core/device"]),
    ("backends/conformance", &["core/device"]),
    (
        "server",
        &[
            "core/engine",
            "backends/reference",
            "backends/cpu",
            "backends/conformance",
        ],
    ),
    (
        "tests",
        &[
            "core/engine",
            "backends/reference",
            "backends/cpu",
            "backends/conformance",
        ],
    ),
    ("xtask", &[]),
];

/// Packages that tie a crate to one platform, to threads or to a network.
const PLATFORM_PACKAGES: [&str; 14] = [
    "axum",
    "cudarc",
    "hyper",
    "js-sys",
    "libc",
    "nix",
    "rayon",
    "reqwest",
    "tokio",
    "ureq",
    "wasm-bindgen",
    "wasm-bindgen-futures",
    "web-sys",
    "wgpu",
];

/// Checks the dependencies of all crates, those of tests apart.
pub(crate) fn check(crates: &[Crate]) -> Vec<String> {
    let mut broken = Vec::new();
    for member in crates {
        let folder = member.folder.as_str();
        if !ARROWS.iter().any(|(from, _)| *from == folder) {
            broken.push(format!(
                "{folder}: a new crate; say in xtask/src/invariants/arrows.rs what it may build on"
            ));
            continue;
        }
        let allowed = reachable(folder);
        for dependency in &member.dependencies {
            match crates.iter().find(|other| other.name == *dependency) {
                Some(other) if !allowed.contains(&other.folder.as_str()) => broken.push(format!(
                    "{folder}: must not build on {}; it may build on: {}",
                    other.folder,
                    allowed.join(", ")
                )),
                None if folder.starts_with("core/")
                    && PLATFORM_PACKAGES.contains(&dependency.as_str()) =>
                {
                    broken.push(format!("{folder}: core must not build on {dependency}"));
                }
                _ => {}
            }
        }
    }
    broken
}

/// All folders below `folder` in the order of arrows.
fn reachable(folder: &str) -> Vec<&'static str> {
    let direct = ARROWS
        .iter()
        .find(|(from, _)| *from == folder)
        .map_or(&[][..], |(_, to)| to);
    let mut all: Vec<&'static str> = direct.to_vec();
    for next in direct {
        all.extend(reachable(next));
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(folder: &str, dependencies: &[&str]) -> Crate {
        Crate {
            name: folder.replace('/', "-"),
            folder: folder.to_owned(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn arrows_forward_are_fine_and_backward_are_not() {
        let crates = [
            member("core/quant", &[]),
            member("core/format", &["core-quant", "thiserror"]),
            member("core/model", &["core-quant", "core-format"]),
        ];
        assert_eq!(check(&crates), Vec::<String>::new());
        let crates = [
            member("core/quant", &["core-format"]),
            member("core/format", &[]),
        ];
        assert_eq!(check(&crates).len(), 1);
    }

    #[test]
    fn core_names_no_platform_and_new_crates_must_be_placed() {
        assert_eq!(check(&[member("core/kv", &["wgpu", "tokio"])]).len(), 2);
        assert_eq!(check(&[member("server", &["tokio"])]).len(), 0);
        assert_eq!(check(&[member("core/extra", &[])]).len(), 1);
    }
}
