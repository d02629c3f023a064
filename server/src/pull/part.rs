//! A file on its way: `NAME.part` with a note of where it comes from, checked and renamed at the
//! end, so that nothing half-done ever bears the final name.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cache::{create_folder, write_error};
use super::error::PullError;

/// Where the bytes of a `.part` came from. A later run goes on only from the same origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Address asked for, before redirects.
    pub url: String,
    /// Version of the file as the server names it (a strong `ETag`).
    pub etag: Option<String>,
    /// Full length in bytes, where known.
    pub total: Option<u64>,
}

/// What the finished file must be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Length in bytes.
    pub bytes: Option<u64>,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: Option<String>,
}

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// A growing `.part` file with the running checksum of what it holds.
#[derive(Debug)]
pub(crate) struct PartFile {
    file: File,
    path: PathBuf,
    note: PathBuf,
    dest: PathBuf,
    origin: Option<Origin>,
    hasher: Sha256,
    len: u64,
}

fn beside(dest: &Path, suffix: &str) -> PathBuf {
    let mut name = dest.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    dest.with_file_name(name)
}

impl PartFile {
    /// Opens the part of `dest`, keeping what an earlier run wrote of the file at `url`.
    pub(super) fn open(dest: &Path, url: &str) -> Result<Self, PullError> {
        if let Some(folder) = dest.parent() {
            create_folder(folder)?;
        }
        let path = beside(dest, ".part");
        let note = beside(dest, ".part.json");
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| write_error("create", &path, None, source))?;
        let origin = fs::read(&note)
            .ok()
            .and_then(|text| serde_json::from_slice::<Origin>(&text).ok())
            .filter(|origin| origin.url == url);
        let dest = dest.to_owned();
        let mut part = Self {
            file,
            path,
            note,
            dest,
            origin,
            hasher: Sha256::new(),
            len: 0,
        };
        match part.origin {
            Some(_) => part.rehash()?,
            None => part.restart()?,
        }
        Ok(part)
    }

    /// Bytes an earlier run left of `dest`.
    pub(crate) fn left_of(dest: &Path) -> u64 {
        fs::metadata(beside(dest, ".part")).map_or(0, |found| found.len())
    }

    /// Bytes written so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Where the bytes so far came from.
    pub(super) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Forgets all bytes.
    pub(super) fn restart(&mut self) -> Result<(), PullError> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map_err(|source| write_error("write", &self.path, None, source))?;
        self.hasher = Sha256::new();
        self.len = 0;
        self.origin = None;
        Ok(())
    }

    /// Notes where the following bytes come from.
    pub(super) fn set_origin(&mut self, origin: Origin) -> Result<(), PullError> {
        if self.origin.as_ref() == Some(&origin) {
            return Ok(());
        }
        let text = serde_json::to_vec(&origin).map_err(std::io::Error::other);
        text.and_then(|text| fs::write(&self.note, text))
            .map_err(|source| write_error("write", &self.note, origin.total, source))?;
        self.origin = Some(origin);
        Ok(())
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        self.file.write_all(bytes).map_err(|source| {
            let total = self.origin.as_ref().and_then(|origin| origin.total);
            let needed = total.map(|total| total.saturating_sub(self.len));
            write_error("write", &self.path, needed, source)
        })?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Checks the file, makes it durable and gives it its final name. `what` names the source in
    /// errors. A file that fails the check is removed.
    pub(super) fn finish(self, what: &str, expected: &Expected) -> Result<Finished, PullError> {
        let actual = hex(&self.hasher.clone().finalize());
        if let Some(wanted) = expected.bytes.filter(|&wanted| wanted != self.len) {
            let found = self.len;
            self.discard();
            return Err(PullError::WrongLength {
                what: what.to_owned(),
                wanted,
                found,
            });
        }
        if let Some(wanted) = expected.sha256.as_ref().filter(|&wanted| *wanted != actual) {
            let expected = wanted.clone();
            self.discard();
            return Err(PullError::Checksum {
                what: what.to_owned(),
                expected,
                actual,
            });
        }
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, &self.dest))
            .and_then(|()| sync_folder(&self.dest))
            .map_err(|source| write_error("finish", &self.dest, None, source))?;
        let _ = fs::remove_file(&self.note);
        Ok(Finished {
            bytes: self.len,
            sha256: actual,
        })
    }

    /// Removes the part and its note.
    fn discard(self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.note);
    }

    fn rehash(&mut self) -> Result<(), PullError> {
        let read = read_all(&mut self.file, |bytes| self.hasher.update(bytes));
        self.len = read.map_err(|source| PullError::Io {
            doing: "read",
            path: self.path.clone(),
            source,
        })?;
        Ok(())
    }
}

/// SHA-256 of a file, in lower-case hexadecimal.
pub(crate) fn file_sha256(path: &Path) -> Result<String, PullError> {
    let mut hasher = Sha256::new();
    File::open(path)
        .and_then(|mut file| read_all(&mut file, |bytes| hasher.update(bytes)))
        .map_err(|source| PullError::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        })?;
    Ok(hex(&hasher.finalize()))
}

/// Feeds what is left of a file to `take` and returns its length.
fn read_all(file: &mut File, mut take: impl FnMut(&[u8])) -> std::io::Result<u64> {
    let mut buffer = vec![0; 1 << 18];
    let mut len = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(len),
            Ok(n) => {
                take(&buffer[..n]);
                len += n as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes a rename durable. Only POSIX systems open folders as files.
#[cfg(unix)]
fn sync_folder(of: &Path) -> std::io::Result<()> {
    match of.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> std::io::Result<()> {
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        Origin {
            url: url.to_owned(),
            etag: None,
            total: Some(6),
        }
    }

    #[test]
    fn an_interrupted_part_goes_on_with_the_same_checksum() {
        let dir = tempfile::tempdir().expect("temp dir");
        let dest = dir.path().join("sub").join("model.gguf");
        let mut part = PartFile::open(&dest, "u").expect("open");
        part.set_origin(origin("u")).expect("note");
        part.write(b"abc").expect("write");
        drop(part);
        assert!(!dest.exists());

        let mut part = PartFile::open(&dest, "u").expect("open");
        assert_eq!(part.len(), 3);
        part.write(b"def").expect("write");
        let finished = part
            .finish(
                "u",
                &Expected {
                    bytes: Some(6),
                    sha256: None,
                },
            )
            .expect("whole");
        assert_eq!(finished.sha256, hex(&Sha256::digest(b"abcdef")));
        assert_eq!(fs::read(&dest).expect("read"), b"abcdef");
        let left: Vec<_> = fs::read_dir(dir.path().join("sub"))
            .expect("list")
            .collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_part_of_another_origin_or_without_a_note_starts_again() {
        let dir = tempfile::tempdir().expect("temp dir");
        let dest = dir.path().join("model.gguf");
        let mut part = PartFile::open(&dest, "u").expect("open");
        part.set_origin(origin("u")).expect("note");
        part.write(b"abc").expect("write");
        drop(part);
        assert_eq!(PartFile::open(&dest, "other").expect("open").len(), 0);

        fs::write(dir.path().join("model.gguf.part"), b"abc").expect("write");
        fs::write(dir.path().join("model.gguf.part.json"), b"{").expect("write");
        assert_eq!(PartFile::open(&dest, "u").expect("open").len(), 0);
    }

    #[test]
    fn a_wrong_file_is_removed_and_never_gets_the_name() {
        let dir = tempfile::tempdir().expect("temp dir");
        let dest = dir.path().join("model.gguf");
        let wrong = [
            Expected {
                bytes: None,
                sha256: Some("0".repeat(64)),
            },
            Expected {
                bytes: Some(4),
                sha256: None,
            },
        ];
        for expected in wrong {
            let mut part = PartFile::open(&dest, "u").expect("open");
            part.set_origin(origin("u")).expect("note");
            part.write(b"abc").expect("write");
            part.finish("u", &expected).expect_err("wrong file");
            assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 0);
        }
    }
}
