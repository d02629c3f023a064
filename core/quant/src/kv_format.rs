//! The formats in which a KV block keeps its keys or values.

use half::f16;
use std::fmt;
use std::str::FromStr;

/// Tokens a KV block holds.
pub const KV_BLOCK_TOKENS: usize = 32;

/// How the keys or the values of one layer are kept in a block.
///
/// The list is closed: a backend matches on it, so that the compiler names every place a new format
/// has to be answered in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// IEEE binary16, two bytes an element, no scales.
    F16,
    /// IEEE binary32, four bytes an element, no scales: nothing is rounded.
    F32,
}

impl KvFormat {
    /// Every format.
    pub const ALL: &[Self] = &[Self::F16, Self::F32];

    /// Bytes of one element.
    pub const fn element_bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// What the address of a block is a multiple of.
    pub const fn align_bytes(self) -> usize {
        self.element_bytes()
    }

    /// Bytes of one block: `[KV_BLOCK_TOKENS, n_kv_heads, head_dim]` elements with their scales.
    /// `None` on overflow.
    pub const fn block_bytes(self, n_kv_heads: usize, head_dim: usize) -> Option<usize> {
        match n_kv_heads.checked_mul(head_dim) {
            Some(width) => width.checked_mul(KV_BLOCK_TOKENS * self.element_bytes()),
            None => None,
        }
    }

    /// Writes `values` side by side, little-endian, rounded to nearest even where the format is
    /// narrower than f32; values beyond its range become infinite.
    ///
    /// # Panics
    /// When `out` has not [`KvFormat::element_bytes`] bytes a value.
    pub fn encode(self, values: &[f32], out: &mut [u8]) {
        assert_eq!(out.len(), values.len() * self.element_bytes());
        match self {
            Self::F16 => {
                let (out, _) = out.as_chunks_mut();
                for (out, &value) in out.iter_mut().zip(values) {
                    *out = f16::from_f32(value).to_le_bytes();
                }
            }
            Self::F32 => {
                let (out, _) = out.as_chunks_mut();
                for (out, &value) in out.iter_mut().zip(values) {
                    *out = value.to_le_bytes();
                }
            }
        }
    }

    /// Reads what [`KvFormat::encode`] wrote.
    ///
    /// # Panics
    /// When `bytes` has not [`KvFormat::element_bytes`] bytes a value.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len(), out.len() * self.element_bytes());
        match self {
            Self::F16 => {
                let (bytes, _) = bytes.as_chunks();
                for (out, &bytes) in out.iter_mut().zip(bytes) {
                    *out = f16::from_le_bytes(bytes).to_f32();
                }
            }
            Self::F32 => {
                let (bytes, _) = bytes.as_chunks();
                for (out, &bytes) in out.iter_mut().zip(bytes) {
                    *out = f32::from_le_bytes(bytes);
                }
            }
        }
    }

    /// The name in plans, options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }

    /// The format of a name, as [`KvFormat::name`] spells it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.name() == name)
    }

    /// The names of all formats, for messages: `f16, f32`.
    pub fn known_names() -> String {
        let names: Vec<&str> = Self::ALL.iter().map(|format| format.name()).collect();
        names.join(", ")
    }
}

/// A name that is no format's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("KV format {name:?} is unknown; known are {}", KvFormat::known_names())]
pub struct UnknownKvFormat {
    /// The name.
    pub name: String,
}

impl FromStr for KvFormat {
    type Err = UnknownKvFormat;

    fn from_str(name: &str) -> Result<Self, UnknownKvFormat> {
        Self::from_name(name).ok_or_else(|| UnknownKvFormat {
            name: name.to_owned(),
        })
    }
}

/// The format of keys and that of values, written `f16` where they are the same and `f32/f16`
/// (keys first) where not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvFormats {
    /// Format of keys.
    pub k: KvFormat,
    /// Format of values.
    pub v: KvFormat,
}

impl KvFormats {
    /// Every format of keys with every format of values.
    pub fn all() -> impl Iterator<Item = Self> {
        let formats = KvFormat::ALL;
        formats
            .iter()
            .flat_map(move |&k| formats.iter().map(move |&v| Self { k, v }))
    }
}

impl From<KvFormat> for KvFormats {
    fn from(format: KvFormat) -> Self {
        Self {
            k: format,
            v: format,
        }
    }
}

impl fmt::Display for KvFormats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.k == self.v {
            return f.pad(self.k.name());
        }
        f.pad(&format!("{}/{}", self.k.name(), self.v.name()))
    }
}

impl FromStr for KvFormats {
    type Err = UnknownKvFormat;

    fn from_str(text: &str) -> Result<Self, UnknownKvFormat> {
        match text.split_once('/') {
            Some((k, v)) => Ok(Self {
                k: k.parse()?,
                v: v.parse()?,
            }),
            None => Ok(Self::from(text.parse::<KvFormat>()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_go_round_alone_and_in_pairs() {
        for &format in KvFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            assert_eq!(format.name().parse(), Ok(KvFormats::from(format)));
        }
        for formats in KvFormats::all() {
            assert_eq!(formats.to_string().parse(), Ok(formats));
        }
        let n = KvFormat::ALL.len();
        assert_eq!(KvFormats::all().count(), n * n);
    }

    #[test]
    fn a_name_that_is_unknown_is_told_with_those_known() {
        for text in [
            "f17",
            "f16/f17",
            "f17/f16",
            "f16/",
            "",
            "f16/f32/f16",
            "F16",
        ] {
            let error = text.parse::<KvFormats>().unwrap_err();
            let message = error.to_string();
            let shown = format!("{:?}", error.name);
            assert!(message.contains(&shown), "{text}: {message}");
            assert!(message.contains("f16, f32"), "{text}: {message}");
        }
    }

    #[test]
    fn block_bytes_are_those_of_the_elements() {
        for &format in KvFormat::ALL {
            let bytes = format.block_bytes(3, 64).unwrap();
            assert_eq!(bytes, 32 * 3 * 64 * format.element_bytes());
            assert_eq!(format.block_bytes(usize::MAX, 2), None);
            assert_eq!(format.block_bytes(1, usize::MAX / 32), None);
            assert!(bytes.is_multiple_of(format.align_bytes()));
        }
    }

    proptest! {
        #[test]
        fn f32_keeps_every_bit_and_f16_the_nearest(values in prop::collection::vec(any::<f32>(), 0..40)) {
            let through = |format: KvFormat| {
                let mut bytes = vec![0; values.len() * format.element_bytes()];
                format.encode(&values, &mut bytes);
                let mut out = vec![0.0; values.len()];
                format.decode(&bytes, &mut out);
                out
            };
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&through(KvFormat::F32)), bits(&values));
            let nearest: Vec<f32> = values.iter().map(|&v| f16::from_f32(v).to_f32()).collect();
            prop_assert_eq!(bits(&through(KvFormat::F16)), bits(&nearest));
        }
    }
}
