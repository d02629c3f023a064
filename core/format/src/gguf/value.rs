//! Metadata values, arrays kept as typed vectors: a vocabulary has hundreds of thousands of entries.

use std::fmt;

/// One metadata value. Strings are bytes: files hold text that is not UTF-8, and it matters only
/// when somebody asks for it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Type 0.
    U8(u8),
    /// Type 1.
    I8(i8),
    /// Type 2.
    U16(u16),
    /// Type 3.
    I16(i16),
    /// Type 4.
    U32(u32),
    /// Type 5.
    I32(i32),
    /// Type 6.
    F32(f32),
    /// Type 7.
    Bool(bool),
    /// Type 8.
    String(Vec<u8>),
    /// Type 9.
    Array(Array),
    /// Type 10.
    U64(u64),
    /// Type 11.
    I64(i64),
    /// Type 12.
    F64(f64),
}

/// An array of values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Elements of type 0.
    U8(Vec<u8>),
    /// Elements of type 1.
    I8(Vec<i8>),
    /// Elements of type 2.
    U16(Vec<u16>),
    /// Elements of type 3.
    I16(Vec<i16>),
    /// Elements of type 4.
    U32(Vec<u32>),
    /// Elements of type 5.
    I32(Vec<i32>),
    /// Elements of type 6.
    F32(Vec<f32>),
    /// Elements of type 7.
    Bool(Vec<bool>),
    /// Elements of type 8.
    String(StringArray),
    /// Elements of type 10.
    U64(Vec<u64>),
    /// Elements of type 11.
    I64(Vec<i64>),
    /// Elements of type 12.
    F64(Vec<f64>),
}

impl Value {
    /// The type's name, as errors show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
            Self::Array(array) => array.type_name(),
        }
    }

    /// The integer, whatever its width.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match self {
            Self::U8(v) => i128::from(*v),
            Self::I8(v) => i128::from(*v),
            Self::U16(v) => i128::from(*v),
            Self::I16(v) => i128::from(*v),
            Self::U32(v) => i128::from(*v),
            Self::I32(v) => i128::from(*v),
            Self::U64(v) => i128::from(*v),
            Self::I64(v) => i128::from(*v),
            _ => return None,
        })
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`, as a value of its own.
    pub fn get(&self, index: usize) -> Option<Value> {
        Some(match self {
            Self::U8(v) => Value::U8(*v.get(index)?),
            Self::I8(v) => Value::I8(*v.get(index)?),
            Self::U16(v) => Value::U16(*v.get(index)?),
            Self::I16(v) => Value::I16(*v.get(index)?),
            Self::U32(v) => Value::U32(*v.get(index)?),
            Self::I32(v) => Value::I32(*v.get(index)?),
            Self::F32(v) => Value::F32(*v.get(index)?),
            Self::Bool(v) => Value::Bool(*v.get(index)?),
            Self::String(v) => Value::String(v.get(index)?.to_vec()),
            Self::U64(v) => Value::U64(*v.get(index)?),
            Self::I64(v) => Value::I64(*v.get(index)?),
            Self::F64(v) => Value::F64(*v.get(index)?),
        })
    }

    /// The type's name, as errors show it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "array of u8",
            Self::I8(_) => "array of i8",
            Self::U16(_) => "array of u16",
            Self::I16(_) => "array of i16",
            Self::U32(_) => "array of u32",
            Self::I32(_) => "array of i32",
            Self::F32(_) => "array of f32",
            Self::Bool(_) => "array of bool",
            Self::String(_) => "array of string",
            Self::U64(_) => "array of u64",
            Self::I64(_) => "array of i64",
            Self::F64(_) => "array of f64",
        }
    }
}

/// An array of strings in one allocation, with the end of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl StringArray {
    /// The most bytes all strings of one array may have together.
    pub const MAX_BYTES: u64 = u32::MAX as u64;

    /// Room for exactly `count` strings.
    pub(super) fn with_count(count: usize) -> Self {
        let mut ends = Vec::new();
        ends.reserve_exact(count);
        Self {
            bytes: Vec::new(),
            ends,
        }
    }

    /// Makes room for `more` bytes, growing by a quarter: by doubling, the old and the new bytes
    /// together would be three times what the file holds.
    pub(super) fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() < more {
            let growth = more.max(self.bytes.len() / 4).max(64 << 10);
            self.bytes.reserve_exact(growth);
        }
    }

    /// The buffer that takes the next string's bytes, to be followed by [`StringArray::end`].
    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the string whose bytes were appended. The total was checked against `MAX_BYTES`.
    pub(super) fn end(&mut self) {
        self.ends.push(self.bytes.len() as u32);
    }

    /// Bytes of all strings together.
    pub(super) fn total_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of the string at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = match index.checked_sub(1) {
            Some(before) => self.ends[before] as usize,
            None => 0,
        };
        Some(&self.bytes[start..end])
    }

    /// The bytes of every string.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let string = &self.bytes[start..end as usize];
            start = end as usize;
            string
        })
    }
}

/// Collects strings. Panics when they are more than [`StringArray::MAX_BYTES`] together.
impl<S: AsRef<[u8]>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut array = Self::default();
        for string in strings {
            array.bytes.extend_from_slice(string.as_ref());
            assert!(
                array.total_bytes() <= Self::MAX_BYTES,
                "string array too large"
            );
            array.end();
        }
        array
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::String(v) => write!(f, "{:?}", String::from_utf8_lossy(v)),
            Self::Array(array) => {
                /// Elements shown before an ellipsis.
                const SHOWN: usize = 6;
                f.write_str("[")?;
                for index in 0..array.len().min(SHOWN) {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    if let Some(value) = array.get(index) {
                        value.fmt(f)?;
                    }
                }
                if array.len() > SHOWN {
                    write!(f, ", … {} in all", array.len())?;
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_array_keeps_empty_strings_and_bytes() {
        let strings: [&[u8]; 5] = [b"", b"ab", b"", b"\xff\xfe", b"c"];
        let array: StringArray = strings.iter().collect();
        assert_eq!(array.len(), 5);
        assert_eq!(array.iter().collect::<Vec<_>>(), strings);
        for (i, want) in strings.iter().enumerate() {
            assert_eq!(array.get(i), Some(*want));
        }
        assert_eq!(array.get(5), None);
    }

    #[test]
    fn long_arrays_are_shown_short() {
        let array = Value::Array(Array::I32((0..100).collect()));
        assert_eq!(array.to_string(), "[0, 1, 2, 3, 4, 5, … 100 in all]");
        assert_eq!(array.type_name(), "array of i32");
    }
}
