//! GGUF bytes put together field by field, so that any of them can be wrong.

/// A little-endian GGUF file being built.
#[derive(Clone)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// Magic number, version 3 and the counts.
    pub(crate) fn new(n_tensors: u64, n_entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_entries)
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn string(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// A metadata entry up to its value, which follows.
    pub(crate) fn entry(self, key: &str, value_type: u32) -> Self {
        self.string(key).u32(value_type)
    }

    /// A tensor's description; `dims` with the contiguous dimension first.
    pub(crate) fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Self {
        let described = self.string(name).u32(dims.len() as u32);
        dims.iter()
            .fold(described, |raw, &dim| raw.u64(dim))
            .u32(type_id)
            .u64(offset)
    }

    /// Padding to the default alignment and `n` bytes of data.
    pub(crate) fn data(mut self, n: usize) -> Self {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + n, 0x5a);
        self
    }

    /// The bytes, for as long as the test process lives.
    pub(crate) fn leak(self) -> &'static [u8] {
        self.0.leak()
    }
}
