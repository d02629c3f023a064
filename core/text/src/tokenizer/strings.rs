//! Many short strings in one allocation.

/// A list of byte strings stored end to end: a vocabulary of 262,144 tokens is two
/// allocations, not 262,145.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringTable {
    bytes: Vec<u8>,
    /// End of each string in `bytes`.
    ends: Vec<usize>,
}

impl StringTable {
    /// An empty table with room for `strings` strings of `bytes` bytes together.
    pub fn with_capacity(strings: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(strings),
        }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Length of all strings together, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a string.
    pub fn push(&mut self, s: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(s.as_ref());
        self.ends.push(self.bytes.len());
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = match index {
            0 => 0,
            i => self.ends[i - 1],
        };
        Some(&self.bytes[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StringTable {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let iter = iter.into_iter();
        let n = iter.size_hint().0;
        let mut table = Self::with_capacity(n, n.saturating_mul(8));
        iter.for_each(|s| table.push(s));
        table
    }
}
