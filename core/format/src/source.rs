//! Bytes at offsets, read by range.

use std::borrow::Cow;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

/// The future of [`Source::read`]. It is not `Send`: a browser's sources are bound to their thread.
pub type ReadFuture<'a> = Pin<Box<dyn Future<Output = Result<Cow<'a, [u8]>, SourceError>> + 'a>>;

/// What threads ask of a source: natively it may be shared by them, on wasm32 nothing is asked.
#[cfg(not(target_arch = "wasm32"))]
pub trait SourceBounds: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync> SourceBounds for T {}

/// What threads ask of a source: natively it may be shared by them, on wasm32 nothing is asked.
#[cfg(target_arch = "wasm32")]
pub trait SourceBounds {}
#[cfg(target_arch = "wasm32")]
impl<T> SourceBounds for T {}

/// Bytes of a known length, read by range: a memory map, a file, a byte vector, a URL.
pub trait Source: SourceBounds {
    /// Length in bytes. It does not change while the source lives.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of `range`, exactly `range.end - range.start` of them: borrowed where the source
    /// holds them in memory, owned otherwise. A range that is not inside `0..len` is
    /// [`SourceError::OutOfRange`], before anything is allocated.
    fn read(&self, range: Range<u64>) -> ReadFuture<'_>;

    /// Hints that `range` will not be read again soon, so its memory may be given back. A later
    /// read of it still answers the same bytes.
    fn release(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// A source could not give the bytes asked for.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The range reaches outside the source.
    #[error("bytes {start}..{end} asked of a source of {len} bytes")]
    OutOfRange {
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes there are.
        len: u64,
    },
    /// The range does not fit in this machine's address space.
    #[error("a read of {bytes} bytes does not fit in this machine's address space")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The source answered with another number of bytes than asked for.
    #[error("{got} bytes came where {wanted} were asked for")]
    WrongLength {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The file could not be opened, mapped or measured.
    #[error("cannot open {path}: {error}")]
    Open {
        /// The file.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The file, network or store below failed.
    #[error("cannot read bytes {start}..{end}: {error}")]
    Failed {
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Why not.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Checks `range` against a source of `len` bytes and gives it as memory indices.
///
/// # Errors
/// [`SourceError::OutOfRange`] or [`SourceError::TooLarge`].
pub fn check_range(range: &Range<u64>, len: u64) -> Result<Range<usize>, SourceError> {
    if range.start > range.end || range.end > len {
        return Err(SourceError::OutOfRange {
            start: range.start,
            end: range.end,
            len,
        });
    }
    match (usize::try_from(range.start), usize::try_from(range.end)) {
        (Ok(start), Ok(end)) => Ok(start..end),
        _ => Err(SourceError::TooLarge {
            bytes: range.end - range.start,
        }),
    }
}

/// Reads `range` and checks that as many bytes came.
///
/// # Errors
/// Those of [`Source::read`], and [`SourceError::WrongLength`].
pub async fn read_exact(
    source: &dyn Source,
    range: Range<u64>,
) -> Result<Cow<'_, [u8]>, SourceError> {
    let wanted = range.end.saturating_sub(range.start);
    let bytes = source.read(range).await?;
    if bytes.len() as u64 != wanted {
        return Err(SourceError::WrongLength {
            wanted,
            got: bytes.len() as u64,
        });
    }
    Ok(bytes)
}

/// A source over bytes in memory; reads borrow from them.
#[derive(Debug, Clone)]
pub struct BytesSource<B = Vec<u8>>(B);

impl<B: AsRef<[u8]>> BytesSource<B> {
    /// A source over `bytes`.
    pub fn new(bytes: B) -> Self {
        Self(bytes)
    }

    /// The same, ready to be shared with [`Gguf::open`](crate::Gguf::open) and its like.
    pub fn shared(bytes: B) -> Arc<dyn Source>
    where
        B: SourceBounds + 'static,
    {
        Arc::new(Self(bytes))
    }
}

impl<B: AsRef<[u8]> + SourceBounds> Source for BytesSource<B> {
    fn len(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn read(&self, range: Range<u64>) -> ReadFuture<'_> {
        let bytes = self.0.as_ref();
        let answer =
            check_range(&range, bytes.len() as u64).map(|range| Cow::Borrowed(&bytes[range]));
        Box::pin(std::future::ready(answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_borrowed_and_ranges_checked() {
        let source = BytesSource::new(vec![1_u8, 2, 3, 4]);
        let read = |range| pollster::block_on(source.read(range));
        assert!(matches!(read(1..3), Ok(Cow::Borrowed([2, 3]))));
        assert!(matches!(read(4..4), Ok(Cow::Borrowed([]))));
        for (start, end) in [(3, 5), (5, 5), (3, 2), (0, u64::MAX)] {
            assert!(matches!(
                read(start..end),
                Err(SourceError::OutOfRange { len: 4, .. })
            ));
        }
    }
}
