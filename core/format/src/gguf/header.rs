//! Reading a GGUF header through a window, so that a remote file is not fetched whole.

use std::borrow::Cow;

use super::error::{Field, GgufError, Problem};
use crate::source::{Source, read_exact};
use crate::store::ByteOrder;

/// The first window. Most headers without a vocabulary fit.
const FIRST_WINDOW_BYTES: u64 = 64 << 10;
/// The largest window, reached by doubling.
const LARGEST_WINDOW_BYTES: u64 = 4 << 20;

/// A number as GGUF stores it.
pub(super) trait Scalar: Sized {
    const BYTES: usize;
    /// Reads exactly `Self::BYTES` bytes.
    fn decode(bytes: &[u8], order: ByteOrder) -> Self;
}

macro_rules! scalar {
    ($($t:ty),*) => {$(
        impl Scalar for $t {
            const BYTES: usize = size_of::<$t>();
            fn decode(bytes: &[u8], order: ByteOrder) -> Self {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                match order {
                    ByteOrder::Little => Self::from_le_bytes(raw),
                    ByteOrder::Big => Self::from_be_bytes(raw),
                }
            }
        }
    )*};
}
scalar!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// A cursor over a source.
pub(super) struct HeaderReader<'s> {
    source: &'s dyn Source,
    len: u64,
    order: ByteOrder,
    window: Cow<'s, [u8]>,
    /// Where the window starts in the source.
    window_start: u64,
    /// The cursor, counted from the window's start.
    at: usize,
    next_window_bytes: u64,
}

impl<'s> HeaderReader<'s> {
    pub(super) fn new(source: &'s dyn Source) -> Self {
        Self {
            source,
            len: source.len(),
            order: ByteOrder::Little,
            window: Cow::Borrowed(&[]),
            window_start: 0,
            at: 0,
            next_window_bytes: FIRST_WINDOW_BYTES,
        }
    }

    pub(super) fn order(&self) -> ByteOrder {
        self.order
    }

    pub(super) fn set_order(&mut self, order: ByteOrder) {
        self.order = order;
    }

    /// Where the cursor is in the source.
    pub(super) fn offset(&self) -> u64 {
        self.window_start + self.at as u64
    }

    /// Bytes from the cursor to the end of the source.
    pub(super) fn remaining(&self) -> u64 {
        self.len - self.offset()
    }

    /// An error about the field that starts at the cursor.
    pub(super) fn invalid(&self, field: Field, problem: Problem) -> GgufError {
        invalid(self.offset(), field, problem)
    }

    /// Errors unless `needed` bytes follow the cursor.
    pub(super) fn require(
        &self,
        needed: u64,
        field: impl FnOnce() -> Field,
    ) -> Result<(), GgufError> {
        match needed.checked_sub(self.remaining()) {
            None | Some(0) => Ok(()),
            Some(missing) => Err(self.invalid(field(), Problem::CutShort { needed, missing })),
        }
    }

    /// Makes the window reach at least one byte and at most `bytes` past the cursor, and gives
    /// that part of it. The caller has required `bytes`, which are not 0.
    async fn fill(&mut self, bytes: u64) -> Result<&[u8], GgufError> {
        if self.at == self.window.len() {
            let start = self.offset();
            let end = self.len.min(start + self.next_window_bytes);
            self.next_window_bytes = (self.next_window_bytes * 2).min(LARGEST_WINDOW_BYTES);
            // Freed first, so that two windows never live at once.
            self.window = Cow::Borrowed(&[]);
            self.window_start = start;
            self.at = 0;
            self.window = read_exact(self.source, start..end).await?;
        }
        let available = self.window.len() - self.at;
        let take = usize::try_from(bytes).map_or(available, |bytes| available.min(bytes));
        Ok(&self.window[self.at..self.at + take])
    }

    pub(super) async fn scalar<T: Scalar>(
        &mut self,
        field: impl FnOnce() -> Field,
    ) -> Result<T, GgufError> {
        if let Some(bytes) = self.window.get(self.at..self.at + T::BYTES) {
            let value = T::decode(bytes, self.order);
            self.at += T::BYTES;
            return Ok(value);
        }
        self.require(T::BYTES as u64, field)?;
        let mut raw = [0; 8];
        let mut filled = 0;
        while filled < T::BYTES {
            let part = self.fill((T::BYTES - filled) as u64).await?;
            let taken = part.len();
            raw[filled..filled + taken].copy_from_slice(part);
            filled += taken;
            self.at += taken;
        }
        Ok(T::decode(&raw[..T::BYTES], self.order))
    }

    /// `count` numbers, allocated only once the source is known to hold them.
    pub(super) async fn scalars<T: Scalar>(
        &mut self,
        count: u64,
        field: impl Fn() -> Field,
    ) -> Result<Vec<T>, GgufError> {
        self.require(count.saturating_mul(T::BYTES as u64), &field)?;
        let mut values = Vec::new();
        // Cannot truncate: that many bytes are in a source, whose ranges are checked to fit.
        values.reserve_exact(count as usize);
        while (values.len() as u64) < count {
            let order = self.order;
            let left = (count - values.len() as u64) * T::BYTES as u64;
            let part = self.fill(left).await?;
            let whole = part.len() - part.len() % T::BYTES;
            values.extend(
                part[..whole]
                    .chunks_exact(T::BYTES)
                    .map(|raw| T::decode(raw, order)),
            );
            self.at += whole;
            if whole == 0 {
                // The next number straddles two windows.
                values.push(self.scalar(&field).await?);
            }
        }
        Ok(values)
    }

    /// Appends `bytes` bytes to `out`, which the caller has made room for as it sees fit.
    pub(super) async fn append(
        &mut self,
        bytes: u64,
        out: &mut Vec<u8>,
        field: impl FnOnce() -> Field,
    ) -> Result<(), GgufError> {
        self.require(bytes, field)?;
        let mut left = bytes;
        while left > 0 {
            let part = self.fill(left).await?;
            let taken = part.len();
            out.extend_from_slice(part);
            self.at += taken;
            left -= taken as u64;
        }
        Ok(())
    }

    /// A length-prefixed string of at most `limit` bytes.
    pub(super) async fn string(
        &mut self,
        limit: u64,
        field: impl Fn() -> Field,
    ) -> Result<Vec<u8>, GgufError> {
        let start = self.offset();
        let bytes = self.scalar::<u64>(&field).await?;
        if bytes > limit {
            return Err(invalid(start, field(), Problem::TooLong { bytes, limit }));
        }
        self.require(bytes, &field)?;
        let mut out = Vec::new();
        out.reserve_exact(bytes as usize);
        self.append(bytes, &mut out, field).await?;
        Ok(out)
    }

    /// A key or tensor name: a non-empty UTF-8 string.
    pub(super) async fn name(
        &mut self,
        limit: u64,
        field: impl Fn() -> Field,
    ) -> Result<String, GgufError> {
        let start = self.offset();
        let raw = self.string(limit, &field).await?;
        if raw.is_empty() {
            return Err(invalid(start, field(), Problem::Empty));
        }
        String::from_utf8(raw).map_err(|_| invalid(start, field(), Problem::NotUtf8))
    }
}

/// An error about the field that starts at `offset`.
pub(super) fn invalid(offset: u64, field: Field, problem: Problem) -> GgufError {
    GgufError::Invalid {
        offset,
        field,
        problem,
    }
}
