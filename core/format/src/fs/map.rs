//! A file mapped into memory.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::source::{ReadFuture, Source, SourceError, check_range};

/// A file mapped into memory: reads borrow from the page cache, and pages come and go by need.
///
/// The file must not be changed or cut short while it is mapped. As every program that maps
/// files, this one then sees changed bytes or is ended by the system.
#[derive(Debug)]
pub struct MapSource {
    map: Mmap,
}

impl MapSource {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// [`SourceError::Open`].
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let (file, _) = super::open(path)?;
        #[allow(unsafe_code)]
        // SAFETY: the map is private and read-only. That nobody changes the file meanwhile cannot
        // be ensured from here; the type's documentation asks for it.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| SourceError::Open {
            path: path.display().to_string(),
            error,
        })?;
        Ok(Self { map })
    }

    /// The same, ready to be shared.
    pub fn shared(self) -> Arc<dyn Source> {
        Arc::new(self)
    }
}

impl Source for MapSource {
    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn read(&self, range: Range<u64>) -> ReadFuture<'_> {
        let answer = check_range(&range, self.len()).map(|range| Cow::Borrowed(&self.map[range]));
        Box::pin(std::future::ready(answer))
    }

    /// Drops the pages from this process; they stay in the page cache while there is room.
    fn release(&self, range: Range<u64>) {
        #[cfg(target_os = "linux")]
        if let Ok(range) = check_range(&range, self.len())
            && !range.is_empty()
        {
            #[allow(unsafe_code)]
            // SAFETY: the pages of a private read-only file map are never dirty, so dropping them
            // loses nothing: the next access reads the same bytes from the file again.
            let dropped = unsafe {
                self.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    range.start,
                    range.len(),
                )
            };
            // A hint: a kernel that refuses it only keeps the pages.
            drop(dropped);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }
}
