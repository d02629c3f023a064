//! What any text file of the repository may hold, and how long it may be.

/// Longest source file, in lines. Generated tables, marked by [`GENERATED`], are exempt.
const MAX_LINES: usize = 900;

/// A word in one of the first five lines that marks a file no person edits.
const GENERATED: &str = "@generated";

const SOURCE_ENDINGS: [&str; 8] = [".rs", ".py", ".ts", ".js", ".wgsl", ".cu", ".cuh", ".sh"];
const TEXT_ENDINGS: [&str; 7] = [".md", ".toml", ".json", ".yml", ".yaml", ".txt", ".lock"];

/// Folders of one machine. Written in two halves, so that this file passes its own check.
const MACHINE_PATHS: [(&str, &str); 5] = [
    ("/ro", "ot/"),
    ("/wo", "rk/"),
    ("/ho", "me/"),
    ("/Us", "ers/"),
    ("/tm", "p/"),
];

/// Servers of package registries. Which one is used is the user's choice.
const REGISTRIES: [(&str, &str); 6] = [
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("registry.npmjs", ".org"),
    ("static.crates", ".io"),
    ("index.crates", ".io"),
    ("deb.debian", ".org"),
];

/// Checks one text file.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    let ends = |endings: &[&str]| endings.iter().any(|ending| path.ends_with(ending));
    let is_source = ends(&SOURCE_ENDINGS);
    let is_data = path.contains("/data/");
    let mut broken = Vec::new();
    let is_generated = text.lines().take(5).any(|line| line.contains(GENERATED));
    let length = text.lines().count();
    if is_source && !is_generated && length > MAX_LINES {
        broken.push(format!(
            "{path}: {length} lines; split it, {MAX_LINES} is the most"
        ));
    }
    let is_script = path.starts_with(".ci/") || text.starts_with("#!");
    if !(is_source || is_script || ends(&TEXT_ENDINGS)) || is_data {
        return broken;
    }
    for (index, line) in text.lines().enumerate() {
        for (head, tail) in MACHINE_PATHS {
            if contains_path(line, &format!("{head}{tail}")) {
                broken.push(format!(
                    "{path}:{}: a path of one machine: {head}{tail}",
                    index + 1
                ));
            }
        }
        for (head, tail) in REGISTRIES {
            if line.contains(&format!("{head}{tail}")) {
                broken.push(format!(
                    "{path}:{}: a registry's name: {head}{tail}",
                    index + 1
                ));
            }
        }
    }
    broken
}

/// Whether `line` holds `path` as an absolute one, not as the tail of a longer path.
fn contains_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~}/".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_must_be_split_unless_generated() {
        let long = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(check("core/kv/src/pool.rs", &long).len(), 1);
        assert_eq!(
            check("core/kv/src/pool.rs", &"x\n".repeat(MAX_LINES)).len(),
            0
        );
        assert_eq!(
            check("core/kv/src/t.rs", &format!("//! {GENERATED}\n{long}")).len(),
            0
        );
        assert_eq!(check("Cargo.lock", &long).len(), 0);
    }

    #[test]
    fn paths_of_a_machine_and_registries_are_found() {
        for (head, tail) in MACHINE_PATHS {
            let line = format!("see \"{head}{tail}x\"");
            assert_eq!(check("README.md", &line).len(), 1, "{line}");
        }
        for (head, tail) in REGISTRIES {
            assert_eq!(
                check("a/b.toml", &format!("u = \"https://{head}{tail}/x\"")).len(),
                1
            );
        }
        let relative = format!("target{}{}x", MACHINE_PATHS[4].0, MACHINE_PATHS[4].1);
        assert_eq!(check("README.md", &relative).len(), 0);
    }
}
