//! Sources over files: memory maps and plain reads.

mod folder;
mod map;
mod split;

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub use map::MapSource;
/// Runs a future to its end on this thread. Those of the sources here never wait.
pub use pollster::block_on;

use crate::source::{ReadFuture, Source, SourceError, check_range};

/// A file read piece by piece, for file systems that cannot map or files that may change size.
#[derive(Debug)]
pub struct FileSource {
    file: Mutex<File>,
    len: u64,
}

impl FileSource {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`SourceError::Open`].
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let (file, len) = open(path)?;
        Ok(Self {
            file: Mutex::new(file),
            len,
        })
    }

    /// The same, ready to be shared.
    pub fn shared(self) -> Arc<dyn Source> {
        Arc::new(self)
    }

    fn read_now(&self, range: &Range<u64>) -> Result<Vec<u8>, SourceError> {
        let mut bytes = vec![0; check_range(range, self.len)?.len()];
        // A panic while reading leaves nothing half done: each read seeks first.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(range.start))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|error| SourceError::Failed {
                start: range.start,
                end: range.end,
                error: error.into(),
            })?;
        Ok(bytes)
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>) -> ReadFuture<'_> {
        Box::pin(async move { self.read_now(&range).map(Cow::Owned) })
    }
}

/// Opens a regular file and measures it.
fn open(path: &Path) -> Result<(File, u64), SourceError> {
    let failed = |error| SourceError::Open {
        path: path.display().to_string(),
        error,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")));
    }
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sources_read_the_same_and_check_ranges() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = FileSource::open(&path).unwrap();
        let map = MapSource::open(&path).unwrap();
        for source in [&file as &dyn Source, &map] {
            assert_eq!(source.len(), 100_000);
            for range in [0..0_u64, 0..1, 4095..8193, 99_999..100_000, 0..100_000] {
                let want = &bytes[range.start as usize..range.end as usize];
                assert_eq!(&*block_on(source.read(range.clone())).unwrap(), want);
                source.release(range.clone());
                assert_eq!(&*block_on(source.read(range)).unwrap(), want);
            }
            for (start, end) in [(0, 100_001), (5, 4), (u64::MAX, u64::MAX)] {
                let error = block_on(source.read(start..end)).unwrap_err();
                assert!(matches!(error, SourceError::OutOfRange { .. }));
                source.release(start..end);
            }
        }
    }

    #[test]
    fn empty_missing_and_odd_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        std::fs::write(&path, []).unwrap();
        let map = MapSource::open(&path).unwrap();
        assert!(map.is_empty());
        assert!(block_on(map.read(0..0)).unwrap().is_empty());
        for path in [folder.path().join("gone"), folder.path().to_owned()] {
            for error in [
                MapSource::open(&path).unwrap_err(),
                FileSource::open(&path).unwrap_err(),
            ] {
                assert!(error.to_string().contains(path.to_str().unwrap()));
            }
        }
    }
}
