//! Where models lie on disk: one folder, each file at its final name only once it is whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use url::Url;

use super::error::PullError;
use crate::catalogue::Entry;

/// The folder of models.
///
/// ```text
/// HOME/models/NAME.gguf                     models of the catalogue
/// HOME/models/hub/ORG/REPO/FILE             single files of the hub
/// HOME/models/hub/ORG/REPO/checkpoint/      a whole checkpoint of the hub
/// HOME/models/url/HASH/FILE                 files of other servers
/// HOME/models/.locks, HOME/models/.staging  work in progress
/// ```
#[derive(Debug, Clone)]
pub(super) struct Cache {
    home: PathBuf,
}

impl Cache {
    /// `$KVANT_HOME`, or `kvant` in the user's cache folder.
    pub(super) fn from_env() -> Result<Self, PullError> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = var("KVANT_HOME")
            .map(PathBuf::from)
            .or_else(|| var("XDG_CACHE_HOME").map(|dir| PathBuf::from(dir).join("kvant")))
            .or_else(|| var("LOCALAPPDATA").map(|dir| PathBuf::from(dir).join("kvant")))
            .or_else(|| std::env::home_dir().map(|dir| dir.join(".cache").join("kvant")))
            .ok_or(PullError::NoHome)?;
        Ok(Self { home })
    }

    /// A cache in a folder of the caller's choice.
    #[cfg(test)]
    pub(super) fn at(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
        }
    }

    /// Kvant's home folder.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// The folder that holds all models.
    pub(super) fn models(&self) -> PathBuf {
        self.home.join("models")
    }

    /// Final place of a catalogue model.
    pub(super) fn catalogue_file(&self, entry: &Entry) -> PathBuf {
        self.models().join(&entry.file)
    }

    /// The catalogue model, if it is here and has the right length.
    pub(super) fn have(&self, entry: &Entry) -> Option<PathBuf> {
        let path = self.catalogue_file(entry);
        let found = fs::metadata(&path).ok()?;
        (found.is_file() && found.len() == entry.bytes).then_some(path)
    }

    /// Final folder of files from one hub repository, whose parts the caller has checked.
    pub(super) fn hub_folder(&self, repo: &str) -> PathBuf {
        self.models().join("hub").join(repo)
    }

    /// Final place of a file from any other server. Two addresses never share a place.
    pub(super) fn url_file(&self, url: &Url) -> PathBuf {
        let digest = Sha256::digest(url.as_str().as_bytes());
        let key: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let last = url
            .path_segments()
            .and_then(|mut parts| parts.next_back())
            .unwrap_or("");
        let name: String = last
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-".contains(c) {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let name = name.trim_start_matches('.');
        let name = if name.is_empty() { "model" } else { name };
        self.models().join("url").join(key).join(name)
    }

    /// A folder for the wheels of one model, kept over an interruption.
    pub(super) fn staging(&self, name: &str) -> PathBuf {
        self.models().join(".staging").join(name)
    }

    /// Waits until no other process works on `key`. The lock ends with the value, also when the
    /// process dies.
    pub(super) fn lock(&self, key: &str, on_wait: impl FnOnce()) -> Result<File, PullError> {
        let folder = self.models().join(".locks");
        create_folder(&folder)?;
        let path = folder.join(format!("{}.lock", key.replace(['/', '\\'], "--")));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| PullError::Io {
                doing: "create",
                path: path.clone(),
                source,
            })?;
        let waited = match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => {
                on_wait();
                file.lock()
            }
            Err(fs::TryLockError::Error(source)) => Err(source),
        };
        waited.map_err(|source| PullError::Io {
            doing: "lock",
            path,
            source,
        })?;
        Ok(file)
    }

    /// Refuses work that the disk cannot hold.
    pub(super) fn check_space(&self, needed: u64) -> Result<(), PullError> {
        let folder = self.models();
        create_folder(&folder)?;
        let free = free_bytes(&folder);
        // A file system that cannot say is given the benefit of the doubt: writing will tell.
        if free.is_some_and(|free| free < needed) {
            return Err(PullError::DiskFull {
                folder,
                needed: Some(needed),
                free: free.unwrap_or(0),
            });
        }
        Ok(())
    }
}

/// Creates a folder and its parents.
pub(crate) fn create_folder(path: &Path) -> Result<(), PullError> {
    fs::create_dir_all(path).map_err(|source| write_error("create", path, None, source))
}

/// Bytes a user may still write below `path`.
fn free_bytes(path: &Path) -> Option<u64> {
    fs4::available_space(path).ok()
}

/// A failed write as the user should see it: a full disk is named as such.
pub(crate) fn write_error(
    doing: &'static str,
    path: &Path,
    needed: Option<u64>,
    source: std::io::Error,
) -> PullError {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let folder = path.parent().unwrap_or(path);
    match source.kind() {
        StorageFull | QuotaExceeded => PullError::DiskFull {
            folder: folder.to_owned(),
            needed,
            free: free_bytes(folder).unwrap_or(0),
        },
        _ => PullError::Io {
            doing,
            path: path.to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_never_share_a_place_nor_leave_the_folder() {
        let cache = Cache::at(Path::new("home"));
        let place = |url: &str| cache.url_file(&Url::parse(url).expect("url"));
        let base = Path::new("home").join("models").join("url");
        let places = [
            place("http://a.example/m.gguf"),
            place("http://a.example/m.gguf?v=2"),
            place("http://b.example/m.gguf"),
            place("http://a.example/%2e%2e%2fpasswd"),
            place("http://a.example/"),
            place("http://a.example/..."),
        ];
        for (i, path) in places.iter().enumerate() {
            assert!(path.starts_with(&base), "{}", path.display());
            assert_eq!(path.components().count(), 5, "{}", path.display());
            assert!(!places[..i].contains(path));
        }
    }

    #[test]
    fn a_need_beyond_the_disk_is_refused_with_the_numbers() {
        let home = tempfile::tempdir().expect("temp dir");
        let error = Cache::at(home.path())
            .check_space(u64::MAX)
            .expect_err("no such disk");
        assert!(
            matches!(
                error,
                PullError::DiskFull {
                    needed: Some(u64::MAX),
                    ..
                }
            ),
            "{error}"
        );
    }
}
