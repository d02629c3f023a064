//! What a user may type where a model is wanted.

use std::path::{Path, PathBuf};

use url::Url;

use super::error::PullError;
use crate::catalogue::{Catalogue, Entry};

/// A model, named in one of the four ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelRef {
    /// A model file or a checkpoint folder on this machine.
    Local(PathBuf),
    /// A model of the catalogue.
    Catalogue(Box<Entry>),
    /// `hf:org/repo` or `hf:org/repo/file`.
    Hub {
        /// `org/repo`.
        repo: String,
        /// Path inside the repository.
        file: Option<String>,
    },
    /// A file on any web server.
    Url(Url),
}

impl ModelRef {
    /// Reads what the user typed. What exists on disk wins over the catalogue.
    pub(super) fn parse(spec: &str, catalogue: &Catalogue) -> Result<Self, PullError> {
        if let Some(rest) = spec.strip_prefix("hf:") {
            return hub(spec, rest);
        }
        if spec.starts_with("http://") || spec.starts_with("https://") {
            return Url::parse(spec)
                .map(Self::Url)
                .map_err(|error| bad(spec, error.to_string()));
        }
        if let Some((scheme, _)) = spec.split_once("://") {
            return Err(bad(
                spec,
                format!("'{scheme}' addresses are not supported, use https"),
            ));
        }
        let path = Path::new(spec);
        if path.is_file() || path.join("config.json").is_file() {
            return Ok(Self::Local(path.to_owned()));
        }
        if let Some(entry) = catalogue.find(spec) {
            return Ok(Self::Catalogue(Box::new(entry.clone())));
        }
        if path.exists() {
            let why = "a folder without config.json is not a model; give a .gguf file or a checkpoint folder";
            return Err(PullError::NoModelAtPath {
                path: path.to_owned(),
                why,
            });
        }
        let looks_like_path = spec.contains(['/', '\\'])
            || path
                .extension()
                .is_some_and(|ext| ext.eq_ignore_ascii_case("gguf"));
        if looks_like_path {
            let why = if is_repo(spec) {
                "no such file or folder; for a model of the Hugging Face hub put hf: before it"
            } else {
                "no such file or folder; check the path"
            };
            return Err(PullError::NoModelAtPath {
                path: path.to_owned(),
                why,
            });
        }
        Err(PullError::UnknownModel {
            name: spec.to_owned(),
            near: catalogue.near(spec),
        })
    }
}

fn bad(spec: &str, why: impl Into<String>) -> PullError {
    PullError::BadReference {
        spec: spec.to_owned(),
        why: why.into(),
    }
}

fn hub(spec: &str, rest: &str) -> Result<ModelRef, PullError> {
    let shape = "write hf:org/repo or hf:org/repo/file";
    let mut parts = rest.splitn(3, '/');
    let (Some(org), Some(repo)) = (parts.next(), parts.next()) else {
        return Err(bad(spec, shape));
    };
    if !is_plain(org) || !is_plain(repo) {
        return Err(bad(spec, shape));
    }
    let file = parts.next().filter(|file| !file.is_empty());
    if let Some(file) = file
        && !is_repo_path(file)
    {
        return Err(bad(spec, "the file must be a path inside the repository"));
    }
    Ok(ModelRef::Hub {
        repo: format!("{org}/{repo}"),
        file: file.map(str::to_owned),
    })
}

/// Whether a path from outside stays inside its repository, and so inside the cache.
pub(crate) fn is_repo_path(path: &str) -> bool {
    path.split('/').all(|part| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part
                .chars()
                .any(|c| c.is_control() || "\\:*?\"<>|#%".contains(c))
    })
}

fn is_plain(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn is_repo(spec: &str) -> bool {
    let parts: Vec<_> = spec.split('/').collect();
    parts.len() == 2 && parts.iter().all(|part| is_plain(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(spec: &str) -> Result<ModelRef, PullError> {
        let home = tempfile::tempdir().expect("temp dir");
        ModelRef::parse(spec, &Catalogue::load(home.path()).expect("catalogue"))
    }

    #[test]
    fn each_way_to_name_a_model_is_told_apart() {
        let hub = |repo: &str, file: Option<&str>| ModelRef::Hub {
            repo: repo.to_owned(),
            file: file.map(str::to_owned),
        };
        assert_eq!(parse("hf:a/b").expect("hub"), hub("a/b", None));
        assert_eq!(parse("hf:a/b/").expect("hub"), hub("a/b", None));
        assert_eq!(
            parse("hf:a/b/c/d.gguf").expect("hub"),
            hub("a/b", Some("c/d.gguf"))
        );
        assert!(matches!(
            parse("https://x.example/m.gguf"),
            Ok(ModelRef::Url(_))
        ));
        assert!(matches!(parse("smollm2-135m"), Ok(ModelRef::Catalogue(_))));
        assert!(matches!(parse("SmolLM2-135M"), Ok(ModelRef::Catalogue(_))));
    }

    #[test]
    fn what_is_on_disk_is_local() {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = dir.path().join("m.gguf");
        std::fs::write(&file, b"x").expect("write");
        let file_spec = file.to_string_lossy().into_owned();
        assert_eq!(parse(&file_spec).expect("local"), ModelRef::Local(file));

        let folder_spec = dir.path().to_string_lossy().into_owned();
        assert!(matches!(
            parse(&folder_spec),
            Err(PullError::NoModelAtPath { .. })
        ));
        std::fs::write(dir.path().join("config.json"), b"{}").expect("write");
        assert!(matches!(parse(&folder_spec), Ok(ModelRef::Local(_))));
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        for spec in [
            "hf:",
            "hf:a",
            "hf:a/",
            "hf:../b",
            "hf:a/b/../c",
            "hf:a/b//c",
            "hf:a/b/c\\d",
        ] {
            assert!(
                matches!(parse(spec), Err(PullError::BadReference { .. })),
                "{spec}"
            );
        }
        assert!(matches!(
            parse("ftp://x/m"),
            Err(PullError::BadReference { .. })
        ));
        assert!(matches!(
            parse("nowhere/m.gguf"),
            Err(PullError::NoModelAtPath { .. })
        ));
        let error = parse("HuggingFaceTB/SmolLM2").expect_err("no such folder");
        assert!(error.to_string().contains("hf:"), "{error}");
        let error = parse("smollm-135m").expect_err("unknown");
        assert!(
            error.to_string().contains("did you mean smollm2-135m?"),
            "{error}"
        );
        assert!(matches!(parse(""), Err(PullError::UnknownModel { .. })));
    }
}
