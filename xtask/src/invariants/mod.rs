//! The promises of ARCHITECTURE.md that a program can check. Each check lists what breaks one.

mod arrows;
mod code;
mod files;
mod strip;

use anyhow::Result;

use crate::workspace;

/// Runs all checks and returns one line per breach.
pub(crate) fn check_all() -> Result<Vec<String>> {
    let mut broken = arrows::check(&workspace::crates()?);
    for path in workspace::files()? {
        // Files that are not text have no lines to check.
        let Ok(text) = std::fs::read_to_string(workspace::root().join(&path)) else {
            continue;
        };
        broken.extend(files::check(&path, &text));
        if path.ends_with(".rs") {
            broken.extend(code::check(&path, &strip::code_only(&text)));
        }
    }
    Ok(broken)
}
