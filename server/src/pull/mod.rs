//! `kvant pull`: from what the user typed to a model file on this machine.
//!
//! A model is looked for in the cache, then in each source in order. Whichever brings it, the file
//! is checked while it is written and gets its final name only when it is whole.

mod cache;
pub mod command;
mod error;
mod fetch;
mod http;
mod hub;
mod licence;
mod part;
mod pip;
mod progress;
mod reference;
pub mod units;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use url::Url;

use crate::catalogue::{Catalogue, Entry, Source};
use crate::signals::{self, Outcome};
use cache::{Cache, write_error};
pub use error::PullError;
use fetch::fetch;
use http::{Client, Limits, Request};
use hub::{Choice, Hub};
use part::{Expected, Finished, PartFile};
use progress::Ui;
use reference::ModelRef;

/// Where a model came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is the user's own file or folder.
    Local,
    /// An earlier pull brought it.
    Cache,
    /// The Hugging Face hub.
    Hub,
    /// Python packages, through pip.
    Packages,
    /// Another web server.
    Url,
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// What the user typed.
    pub model: String,
    /// Model file (the first shard of a split one) or checkpoint folder.
    pub path: PathBuf,
    /// Length in bytes, of all files together.
    pub bytes: u64,
    /// SHA-256 of a single file, where it was computed or is in the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Where it came from this time.
    pub source: Origin,
}

/// Finds the model a user named: a path, a catalogue name, `hf:org/repo[/file]` or a URL. What is
/// not on this machine is pulled first, with progress on standard error.
pub fn resolve_model(spec: &str) -> Result<PathBuf, PullError> {
    find(spec, false, false).map(|pulled| pulled.path)
}

/// Kvant's own folder on this machine, which need not exist yet.
pub fn home() -> Result<PathBuf, PullError> {
    Cache::from_env().map(|cache| cache.home().to_owned())
}

/// As [`resolve_model`], saying more about the result. A catalogue model that is here already is
/// checked byte for byte. `accept_licence` agrees to the terms of models that require it.
pub fn pull(spec: &str, accept_licence: bool) -> Result<Pulled, PullError> {
    find(spec, accept_licence, true)
}

fn find(spec: &str, accept_licence: bool, verify: bool) -> Result<Pulled, PullError> {
    let cache = Cache::from_env()?;
    let catalogue = Catalogue::load(cache.home())?;
    let reference = ModelRef::parse(spec, &catalogue)?;
    let puller = Puller {
        cache,
        ui: Ui::new(),
        spec,
        accept_licence,
        verify,
    };
    let _guard = signals::on_signal(|_| {
        signals::say("stopped; what has arrived is kept: run the same command again to go on");
        Outcome::Exit
    });
    match reference {
        ModelRef::Local(path) => {
            let bytes = tree_bytes(&path)?;
            Ok(puller.pulled(path, bytes, None, Origin::Local))
        }
        ModelRef::Catalogue(entry) => puller.catalogue(&entry),
        ModelRef::Hub {
            repo,
            file: Some(file),
        } => puller.hub_files(&repo, &hub::shards(&file)),
        ModelRef::Hub { repo, file: None } => puller.hub_repo(&repo),
        ModelRef::Url(url) => puller.url(url),
    }
}

/// The work of one pull.
struct Puller<'a> {
    cache: Cache,
    ui: Ui,
    spec: &'a str,
    accept_licence: bool,
    verify: bool,
}

impl Puller<'_> {
    /// The catalogue model in the cache, unless a check is wanted and finds it damaged.
    fn have(&self, entry: &Entry) -> Result<Option<PathBuf>, PullError> {
        let Some(path) = self.cache.have(entry) else {
            return Ok(None);
        };
        if !self.verify || part::file_sha256(&path)? == entry.sha256 {
            return Ok(Some(path));
        }
        let what = path.display();
        self.ui.note(&format!(
            "{what} is damaged: its checksum is wrong; pulling it again"
        ));
        Ok(None)
    }

    fn catalogue(&self, entry: &Entry) -> Result<Pulled, PullError> {
        let pulled = |path: PathBuf, source| {
            self.pulled(path, entry.bytes, Some(entry.sha256.clone()), source)
        };
        if let Some(path) = self.have(entry)? {
            return Ok(pulled(path, Origin::Cache));
        }
        licence::ensure_accepted(entry, self.accept_licence, &self.ui)?;
        let _lock = self.lock(&entry.name)?;
        if let Some(path) = self.have(entry)? {
            return Ok(pulled(path, Origin::Cache));
        }
        let dest = self.cache.catalogue_file(entry);
        self.cache
            .check_space(entry.bytes.saturating_sub(PartFile::left_of(&dest)))?;
        let mut reasons = Vec::new();
        for source in &entry.sources {
            match self.try_source(entry, source, &dest) {
                Ok(origin) => return Ok(pulled(dest, origin)),
                Err(error) if error.is_about_the_source() => {
                    if reasons.len() + 1 < entry.sources.len() {
                        self.ui.note(&format!("{error}; trying the next source"));
                    }
                    reasons.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        match <[PullError; 1]>::try_from(reasons) {
            Ok([only]) => Err(only),
            Err(reasons) => Err(PullError::AllSourcesFailed {
                model: entry.name.clone(),
                reasons: reasons.iter().map(ToString::to_string).collect(),
            }),
        }
    }

    fn try_source(&self, entry: &Entry, source: &Source, dest: &Path) -> Result<Origin, PullError> {
        match source {
            Source::Hub(file) => {
                let request = Hub::from_env()?.file(&file.repo, &file.revision, &file.file);
                let bytes = Some(entry.bytes);
                let expected = Expected {
                    bytes,
                    sha256: Some(entry.sha256.clone()),
                };
                self.fetch(&request, &expected, dest)?;
                Ok(Origin::Hub)
            }
            Source::Packages(packages) => {
                pip::pull(&self.cache, &self.ui, entry, packages, dest)?;
                Ok(Origin::Packages)
            }
        }
    }

    fn hub_repo(&self, repo: &str) -> Result<Pulled, PullError> {
        let folder = self.cache.hub_folder(repo);
        let checkpoint = folder.join("checkpoint");
        if checkpoint.is_dir() {
            let bytes = tree_bytes(&checkpoint)?;
            return Ok(self.pulled(checkpoint, bytes, None, Origin::Cache));
        }
        let listing = Hub::from_env()?.list(&Client::new(Limits::default()), repo);
        let files = match listing {
            Err(error @ PullError::Unreachable { .. }) => {
                // Without the hub, the one file pulled earlier is the obvious meaning.
                let path = only_gguf(&folder).ok_or(error)?;
                let bytes = tree_bytes(&path)?;
                return Ok(self.pulled(path, bytes, None, Origin::Cache));
            }
            other => other?,
        };
        match hub::choose(repo, &files)? {
            Choice::Gguf(files) => self.hub_files(repo, &files),
            Choice::Checkpoint(files) => self.hub_checkpoint(repo, &files, &checkpoint),
        }
    }

    /// Pulls a GGUF file, or all shards of one.
    fn hub_files(&self, repo: &str, files: &[String]) -> Result<Pulled, PullError> {
        let folder = self.cache.hub_folder(repo);
        let mut bytes = 0;
        let mut origin = Origin::Cache;
        let mut sha256 = None;
        for file in files {
            let dest = folder.join(file);
            if !dest.is_file() {
                let _lock = self.lock(&format!("{repo}/{file}"))?;
                if !dest.is_file() {
                    let request = Hub::from_env()?.file(repo, "main", file);
                    let finished = self.fetch(&request, &Expected::default(), &dest)?;
                    sha256 = Some(finished.sha256).filter(|_| files.len() == 1);
                    origin = Origin::Hub;
                }
            }
            bytes += tree_bytes(&dest)?;
        }
        let first = folder.join(files.first().map_or("", String::as_str));
        Ok(self.pulled(first, bytes, sha256, origin))
    }

    /// Pulls a checkpoint into a folder that gets its final name when all files are whole.
    fn hub_checkpoint(
        &self,
        repo: &str,
        files: &[String],
        checkpoint: &Path,
    ) -> Result<Pulled, PullError> {
        let _lock = self.lock(repo)?;
        if !checkpoint.is_dir() {
            let staging = checkpoint.with_extension("part");
            for file in files {
                let dest = staging.join(file);
                if !dest.is_file() {
                    let request = Hub::from_env()?.file(repo, "main", file);
                    self.fetch(&request, &Expected::default(), &dest)?;
                }
            }
            fs::rename(&staging, checkpoint)
                .map_err(|source| write_error("finish", checkpoint, None, source))?;
        }
        let bytes = tree_bytes(checkpoint)?;
        Ok(self.pulled(checkpoint.to_owned(), bytes, None, Origin::Hub))
    }

    fn url(&self, url: Url) -> Result<Pulled, PullError> {
        let dest = self.cache.url_file(&url);
        let _lock = self.lock(&dest.strip_prefix(self.cache.models()).map_or_else(
            |_| dest.to_string_lossy().into_owned(),
            |path| path.to_string_lossy().into_owned(),
        ))?;
        if dest.is_file() {
            let bytes = tree_bytes(&dest)?;
            return Ok(self.pulled(dest, bytes, None, Origin::Cache));
        }
        let request = Request { url, token: None };
        let finished = self.fetch(&request, &Expected::default(), &dest)?;
        Ok(self.pulled(dest, finished.bytes, Some(finished.sha256), Origin::Url))
    }

    fn fetch(
        &self,
        request: &Request,
        expected: &Expected,
        dest: &Path,
    ) -> Result<Finished, PullError> {
        let client = Client::new(Limits::default());
        fetch(&client, &self.cache, &self.ui, request, expected, dest)
    }

    fn lock(&self, key: &str) -> Result<fs::File, PullError> {
        self.cache.lock(key, || {
            self.ui
                .note(&format!("another kvant is pulling {key}; waiting for it"));
        })
    }

    fn pulled(&self, path: PathBuf, bytes: u64, sha256: Option<String>, source: Origin) -> Pulled {
        Pulled {
            model: self.spec.to_owned(),
            path,
            bytes,
            sha256,
            source,
        }
    }
}

/// Length of a file, or of all files directly in a folder.
fn tree_bytes(path: &Path) -> Result<u64, PullError> {
    let failed = |source| PullError::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    };
    let found = fs::metadata(path).map_err(failed)?;
    if !found.is_dir() {
        return Ok(found.len());
    }
    let mut bytes = 0;
    for file in fs::read_dir(path).map_err(failed)? {
        let found = file.and_then(|file| file.metadata()).map_err(failed)?;
        bytes += if found.is_file() { found.len() } else { 0 };
    }
    Ok(bytes)
}

/// The only GGUF file of a folder.
fn only_gguf(folder: &Path) -> Option<PathBuf> {
    let mut found = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "gguf"));
    let only = found.next()?;
    found.next().is_none().then_some(only)
}
