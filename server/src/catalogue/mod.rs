//! The small models `kvant pull` knows by name: what each is, its licence, its size and
//! checksum, and where it can come from.
//!
//! The built-in list is `models.json` beside this file. A file `catalogue.json` of the same shape
//! in Kvant's home folder adds names, or replaces built-in ones.

use std::path::{Path, PathBuf};

use serde::Deserialize;

const BUILT_IN: &str = include_str!("models.json");

/// Name of the user's own catalogue inside Kvant's home folder.
pub const USER_FILE: &str = "catalogue.json";

/// One model of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What the user types, such as `smollm2-135m`.
    pub name: String,
    /// One line for the list.
    pub description: String,
    /// Architecture as the model file states it, such as `llama`.
    pub architecture: String,
    /// Longest context the model was trained for, in tokens.
    pub context_tokens: u32,
    /// File name in the cache.
    pub file: String,
    /// Exact length of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// Terms the weights come under.
    pub licence: Licence,
    /// Where the file can be had, best first.
    pub sources: Vec<Source>,
}

/// Terms of a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licence {
    /// SPDX identifier or the title of the terms.
    pub name: String,
    /// Where the full text is.
    pub url: String,
    /// Whether the user must agree before the download.
    #[serde(default)]
    pub must_accept: bool,
}

/// One place that offers the file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A file in a repository of the Hugging Face hub.
    Hub(HubFile),
    /// Python packages whose members, concatenated in order, are the file.
    Packages(Vec<Package>),
}

/// A file on the Hugging Face hub.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubFile {
    /// `organisation/repository`.
    pub repo: String,
    /// Branch, tag or commit.
    #[serde(default = "main_branch")]
    pub revision: String,
    /// Path inside the repository.
    pub file: String,
}

fn main_branch() -> String {
    "main".to_owned()
}

/// A wheel that carries the file or a piece of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Exact version.
    pub version: String,
    /// Path of the piece inside the wheel.
    pub member: String,
}

/// Why a catalogue file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The user's catalogue exists but cannot be read.
    #[error("cannot read the catalogue {}: {source}", path.display())]
    Read {
        /// The catalogue file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The catalogue is not JSON of the expected shape.
    #[error("the catalogue {} is not valid: {source}", path.display())]
    Json {
        /// The catalogue file.
        path: PathBuf,
        /// Where and why the parser stopped.
        source: serde_json::Error,
    },
    /// An entry contradicts itself or could escape the cache folder.
    #[error("the catalogue {} is not valid: entry '{name}': {why}", path.display())]
    Entry {
        /// The catalogue file.
        path: PathBuf,
        /// Name of the entry.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// All models known by name.
#[derive(Debug, Clone)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

impl Catalogue {
    /// The built-in list together with `catalogue.json` in `home`, if there is one.
    pub fn load(home: &Path) -> Result<Self, CatalogueError> {
        let mut entries = parse(BUILT_IN, Path::new("models.json"))?;
        let path = home.join(USER_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                for entry in parse(&text, &path)? {
                    entries.retain(|known| known.name != entry.name);
                    entries.push(entry);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(CatalogueError::Read { path, source }),
        }
        Ok(Self { entries })
    }

    /// Every entry, built-in ones first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of that name, ignoring case.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|e| e.name.eq_ignore_ascii_case(name))
    }

    /// Names that look like `name`, nearest first.
    pub fn near(&self, name: &str) -> Vec<String> {
        let wanted = name.to_ascii_lowercase();
        let mut scored: Vec<(f64, &str)> = self
            .entries
            .iter()
            .map(|entry| {
                (
                    strsim::jaro_winkler(&wanted, &entry.name),
                    entry.name.as_str(),
                )
            })
            .filter(|(score, _)| *score >= 0.75)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored
            .into_iter()
            .map(|(_, name)| name.to_owned())
            .collect()
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<Entry>, CatalogueError> {
    let entries: Vec<Entry> =
        serde_json::from_str(text).map_err(|source| CatalogueError::Json {
            path: path.to_owned(),
            source,
        })?;
    for entry in &entries {
        if let Err(why) = check(entry) {
            let name = entry.name.clone();
            return Err(CatalogueError::Entry {
                path: path.to_owned(),
                name,
                why,
            });
        }
    }
    Ok(entries)
}

fn check(entry: &Entry) -> Result<(), &'static str> {
    let plain = |s: &str| {
        !s.is_empty()
            && !s.starts_with('.')
            && s.chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if !plain(&entry.name) {
        return Err("the name may hold letters, digits, '.', '_' and '-' only");
    }
    if !plain(&entry.file) {
        return Err("'file' must be a plain file name");
    }
    if entry.sha256.len() != 64
        || !entry
            .sha256
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    {
        return Err("'sha256' must be 64 lower-case hexadecimal digits");
    }
    if entry.bytes == 0 {
        return Err("'bytes' must be the length of the file");
    }
    for source in &entry.sources {
        if let Source::Packages(packages) = source {
            if packages.is_empty() {
                return Err("'packages' is empty");
            }
            if !packages.iter().all(|p| plain(&p.name) && plain(&p.version)) {
                return Err("a package needs a plain name and an exact version");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_list_is_valid_and_names_are_unique() {
        let entries = parse(BUILT_IN, Path::new("models.json")).expect("valid");
        let mut names: Vec<_> = entries.iter().map(|e| &e.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), entries.len());
        assert!(entries.iter().all(|e| !e.sources.is_empty()));
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let home = tempfile::tempdir().expect("temp dir");
        let catalogue = Catalogue::load(home.path()).expect("loads");
        assert_eq!(catalogue.near("smolm2-135")[0], "smollm2-135m");
        assert_eq!(catalogue.near("gemma-270m")[0], "gemma3-270m");
        assert!(catalogue.near("zzz").is_empty());
    }

    #[test]
    fn a_user_catalogue_adds_and_replaces() {
        let home = tempfile::tempdir().expect("temp dir");
        let mut entries: serde_json::Value = serde_json::from_str(BUILT_IN).expect("json");
        entries[0]["description"] = "mine".into();
        entries[1]["name"] = "other".into();
        std::fs::write(home.path().join(USER_FILE), entries.to_string()).expect("write");
        let catalogue = Catalogue::load(home.path()).expect("loads");
        assert_eq!(catalogue.entries().len(), 3);
        assert_eq!(
            catalogue
                .find("SmolLM2-135M")
                .map(|e| e.description.as_str()),
            Some("mine")
        );
        assert!(catalogue.find("other").is_some());
    }

    #[test]
    fn a_file_name_cannot_leave_the_cache() {
        let mut entries: serde_json::Value = serde_json::from_str(BUILT_IN).expect("json");
        for bad in ["../x.gguf", "/etc/x", ".hidden", "", "a\\b"] {
            entries[0]["file"] = bad.into();
            let error = parse(&entries.to_string(), Path::new("c.json")).expect_err(bad);
            assert!(matches!(error, CatalogueError::Entry { .. }), "{error}");
        }
    }
}
