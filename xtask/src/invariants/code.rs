//! What Rust code may say, and where.

/// The one folder of core that may touch the file system, behind the feature `fs`.
const FILE_ACCESS: &str = "core/format/src/fs/";

/// Places where `unsafe` may be allowed: kernels, and the mapping of files.
const UNSAFE: [&str; 2] = ["backends/cpu/", FILE_ACCESS];

/// Threads, clocks, files, the network and the process: what core leaves to its callers.
const SYSTEM: [&str; 11] = [
    "std::thread",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::os",
    "std::time::Instant",
    "std::time::SystemTime",
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
];

/// Platforms that core never names.
const PLATFORMS: [&str; 6] = [
    "wgpu",
    "webgpu",
    "cuda",
    "web_sys",
    "js_sys",
    "wasm_bindgen",
];

/// Checks the code of one file, already stripped of comments, texts and tests.
pub(crate) fn check(path: &str, code: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let in_core = path.starts_with("core/") && path.contains("/src/");
    for (index, line) in code.lines().enumerate() {
        let at = format!("{path}:{}", index + 1);
        if in_core && !path.starts_with(FILE_ACCESS) {
            for word in SYSTEM.into_iter().filter(|word| line.contains(word)) {
                broken.push(format!(
                    "{at}: core does no threads, clock or files: {word}"
                ));
            }
        }
        if in_core {
            let line = line.to_ascii_lowercase();
            for word in PLATFORMS.into_iter().filter(|word| line.contains(word)) {
                broken.push(format!("{at}: core names no platform: {word}"));
            }
        }
        let allows_unsafe =
            (line.contains("allow(") || line.contains("expect(")) && line.contains("unsafe_code");
        if allows_unsafe && !UNSAFE.iter().any(|place| path.starts_with(place)) {
            broken.push(format!("{at}: unsafe is for {} only", UNSAFE.join(" and ")));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn core_keeps_its_hands_off_the_system() {
        assert_eq!(
            check("core/kv/src/pool.rs", "use std::collections::BTreeMap;").len(),
            0
        );
        assert_eq!(
            check("core/kv/src/pool.rs", "let t = std::time::Instant::now();").len(),
            2
        );
        assert_eq!(check("core/kv/src/pool.rs", "\nuse std::fs;\n").len(), 1);
        assert_eq!(check("core/format/src/fs/map.rs", "use std::fs;").len(), 0);
        assert_eq!(check("core/kv/tests/pool.rs", "use std::fs;").len(), 0);
        assert_eq!(check("server/src/main.rs", "use std::fs;").len(), 0);
    }

    #[test]
    fn core_names_no_platform() {
        assert_eq!(
            check("core/device/src/lib.rs", "enum Kind { Cuda, Other }").len(),
            1
        );
        assert_eq!(
            check("server/src/lib.rs", "enum Kind { Cuda, Other }").len(),
            0
        );
    }

    #[test]
    fn unsafe_is_allowed_in_its_places_only() {
        let line = "#![allow(unsafe_code)]";
        assert_eq!(check("backends/cpu/src/lib.rs", line).len(), 0);
        assert_eq!(check("core/format/src/fs/map.rs", line).len(), 0);
        assert_eq!(check("core/quant/src/lib.rs", line).len(), 1);
    }
}
