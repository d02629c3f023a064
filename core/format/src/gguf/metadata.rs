//! The metadata of a GGUF file, with getters that say what was wrong.

use super::value::{Array, StringArray, Value};

/// A metadata entry is missing or not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// There is no such key.
    #[error("metadata key {key} is missing; {wanted} is expected")]
    Missing {
        /// The key.
        key: String,
        /// The type asked for.
        wanted: &'static str,
    },
    /// The value has another type.
    #[error("metadata key {key} is of type {found}; {wanted} is expected")]
    Type {
        /// The key.
        key: String,
        /// The type asked for.
        wanted: &'static str,
        /// The type in the file.
        found: &'static str,
    },
    /// The integer does not fit in the type asked for.
    #[error("metadata key {key} is {value}, which is out of range for {wanted}")]
    Range {
        /// The key.
        key: String,
        /// The type asked for.
        wanted: &'static str,
        /// The value in the file.
        value: i128,
    },
    /// The string is not UTF-8.
    #[error("metadata key {key} is not UTF-8 after {valid} bytes of string {index}")]
    NotUtf8 {
        /// The key.
        key: String,
        /// Which string of an array; 0 for a single string.
        index: usize,
        /// Bytes before the first that is wrong.
        valid: usize,
    },
    /// The array has another length.
    #[error("metadata key {key} has {found} entries; {wanted} are expected")]
    Length {
        /// The key.
        key: String,
        /// Entries asked for.
        wanted: usize,
        /// Entries in the file.
        found: usize,
    },
}

/// A key that occurs twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata key {key} occurs twice, again at entry {index}")]
pub struct DuplicateKey {
    /// The key.
    pub key: String,
    /// Index of the entry that repeats it.
    pub index: usize,
}

/// Keys and values, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    /// Indices into `entries`, sorted by key.
    by_key: Vec<u32>,
}

impl Metadata {
    /// Metadata of these entries.
    ///
    /// # Errors
    /// [`DuplicateKey`] when a key occurs twice.
    pub fn new(entries: Vec<(String, Value)>) -> Result<Self, DuplicateKey> {
        let mut by_key: Vec<u32> = (0..entries.len() as u32).collect();
        let key = |index: u32| entries[index as usize].0.as_str();
        by_key.sort_unstable_by(|&a, &b| key(a).cmp(key(b)).then(a.cmp(&b)));
        for pair in by_key.windows(2) {
            if key(pair[0]) == key(pair[1]) {
                return Err(DuplicateKey {
                    key: key(pair[1]).to_owned(),
                    index: pair[1] as usize,
                });
            }
        }
        Ok(Self { entries, by_key })
    }

    /// Every entry, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key` as it is in the file.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.by_key
            .binary_search_by(|&i| self.entries[i as usize].0.as_str().cmp(key))
            .ok()
            .map(|at| &self.entries[self.by_key[at] as usize].1)
    }

    /// The value of `key` as a `T`: an integer of any width that holds it, `bool`, `f32` or `f64`,
    /// `&str`, a [`StringArray`], a `Vec` of strings or of numbers.
    ///
    /// # Errors
    /// [`MetadataError`] when the key is missing or its value is not a `T`.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, MetadataError> {
        self.find(key)?.ok_or_else(|| MetadataError::Missing {
            key: key.to_owned(),
            wanted: T::WANTED,
        })
    }

    /// As [`Metadata::get`], with `None` for a missing key.
    ///
    /// # Errors
    /// [`MetadataError`] when there is a value that is not a `T`.
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, MetadataError> {
        self.value(key)
            .map(|value| T::from_value(key, value))
            .transpose()
    }

    /// A value for each of `n_layers` layers: an array of that length, or one value for all.
    ///
    /// # Errors
    /// [`MetadataError`] when the key is missing, its value is neither, or the length differs.
    pub fn per_layer<'a, T>(&'a self, key: &str, n_layers: usize) -> Result<Vec<T>, MetadataError>
    where
        T: FromValue<'a> + FromElement + Clone,
    {
        if let Some(Value::Array(_)) = self.value(key) {
            let values = self.get::<Vec<T>>(key)?;
            if values.len() != n_layers {
                return Err(MetadataError::Length {
                    key: key.to_owned(),
                    wanted: n_layers,
                    found: values.len(),
                });
            }
            return Ok(values);
        }
        Ok(vec![self.get::<T>(key)?; n_layers])
    }
}

/// A type that [`Metadata::get`] gives.
pub trait FromValue<'a>: Sized {
    /// The type's name in errors.
    const WANTED: &'static str;

    /// Converts the value of `key`.
    ///
    /// # Errors
    /// [`MetadataError`] when `value` is not a `Self`.
    fn from_value(key: &str, value: &'a Value) -> Result<Self, MetadataError>;
}

/// A number or truth value that [`Metadata::get`] gives in a `Vec`.
pub trait FromElement: Sized {
    /// The array type's name in errors.
    const WANTED_ARRAY: &'static str;

    /// Converts an element of the array `key`.
    ///
    /// # Errors
    /// [`MetadataError`] when `value` is not a `Self`.
    fn from_element(key: &str, value: &Value) -> Result<Self, MetadataError>;
}

fn type_error(key: &str, wanted: &'static str, value: &Value) -> MetadataError {
    MetadataError::Type {
        key: key.to_owned(),
        wanted,
        found: value.type_name(),
    }
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl FromValue<'_> for $t {
            const WANTED: &'static str = stringify!($t);
            fn from_value(key: &str, value: &Value) -> Result<Self, MetadataError> {
                let integer = value
                    .as_integer()
                    .ok_or_else(|| type_error(key, Self::WANTED, value))?;
                Self::try_from(integer).map_err(|_| MetadataError::Range {
                    key: key.to_owned(),
                    wanted: Self::WANTED,
                    value: integer,
                })
            }
        }
        impl FromElement for $t {
            const WANTED_ARRAY: &'static str = concat!("array of ", stringify!($t));
            fn from_element(key: &str, value: &Value) -> Result<Self, MetadataError> {
                Self::from_value(key, value)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, usize, i8, i16, i32, i64);

macro_rules! others {
    ($($t:ty: $value:ident => $from:expr),*) => {$(
        impl FromValue<'_> for $t {
            const WANTED: &'static str = stringify!($t);
            fn from_value(key: &str, $value: &Value) -> Result<Self, MetadataError> {
                $from.ok_or_else(|| type_error(key, Self::WANTED, $value))
            }
        }
        impl FromElement for $t {
            const WANTED_ARRAY: &'static str = concat!("array of ", stringify!($t));
            fn from_element(key: &str, value: &Value) -> Result<Self, MetadataError> {
                Self::from_value(key, value)
            }
        }
    )*};
}
others!(
    bool: value => match value { Value::Bool(v) => Some(*v), _ => None },
    f32: value => match value {
        Value::F32(v) => Some(*v),
        Value::F64(v) => Some(*v as f32),
        _ => None,
    },
    f64: value => match value {
        Value::F32(v) => Some(f64::from(*v)),
        Value::F64(v) => Some(*v),
        _ => None,
    }
);

fn utf8<'a>(key: &str, index: usize, bytes: &'a [u8]) -> Result<&'a str, MetadataError> {
    std::str::from_utf8(bytes).map_err(|error| MetadataError::NotUtf8 {
        key: key.to_owned(),
        index,
        valid: error.valid_up_to(),
    })
}

impl<'a> FromValue<'a> for &'a str {
    const WANTED: &'static str = "string";
    fn from_value(key: &str, value: &'a Value) -> Result<Self, MetadataError> {
        match value {
            Value::String(bytes) => utf8(key, 0, bytes),
            _ => Err(type_error(key, Self::WANTED, value)),
        }
    }
}

impl<'a> FromValue<'a> for &'a StringArray {
    const WANTED: &'static str = "array of string";
    fn from_value(key: &str, value: &'a Value) -> Result<Self, MetadataError> {
        match value {
            Value::Array(Array::String(strings)) => Ok(strings),
            _ => Err(type_error(key, Self::WANTED, value)),
        }
    }
}

impl<'a> FromValue<'a> for Vec<&'a str> {
    const WANTED: &'static str = "array of string";
    fn from_value(key: &str, value: &'a Value) -> Result<Self, MetadataError> {
        <&StringArray>::from_value(key, value)?
            .iter()
            .enumerate()
            .map(|(index, bytes)| utf8(key, index, bytes))
            .collect()
    }
}

impl<T: FromElement> FromValue<'_> for Vec<T> {
    const WANTED: &'static str = T::WANTED_ARRAY;
    fn from_value(key: &str, value: &Value) -> Result<Self, MetadataError> {
        let Value::Array(array) = value else {
            return Err(type_error(key, Self::WANTED, value));
        };
        (0..array.len())
            .filter_map(|index| array.get(index))
            .map(|element| {
                T::from_element(key, &element).map_err(|error| match error {
                    MetadataError::Type { key, .. } => MetadataError::Type {
                        key,
                        wanted: Self::WANTED,
                        found: array.type_name(),
                    },
                    other => other,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        Metadata::new(vec![
            ("u8".into(), Value::U8(7)),
            ("i64".into(), Value::I64(-3)),
            ("f32".into(), Value::F32(0.5)),
            ("yes".into(), Value::Bool(true)),
            ("text".into(), Value::String(b"a\xc3\xa9".to_vec())),
            ("bytes".into(), Value::String(b"a\xff".to_vec())),
            ("layers".into(), Value::Array(Array::I32(vec![1, 2, 3]))),
            (
                "words".into(),
                Value::Array(Array::String(["x", "", "y"].iter().collect())),
            ),
            ("none".into(), Value::Array(Array::U8(vec![]))),
        ])
        .unwrap()
    }

    #[test]
    fn integers_of_any_width_are_accepted_when_they_fit() {
        let m = metadata();
        assert_eq!(m.get::<u32>("u8"), Ok(7));
        assert_eq!(m.get::<usize>("u8"), Ok(7));
        assert_eq!(m.get::<i32>("i64"), Ok(-3));
        assert_eq!(
            m.get::<u32>("i64").unwrap_err().to_string(),
            "metadata key i64 is -3, which is out of range for u32"
        );
    }

    #[test]
    fn wrong_types_are_named() {
        let m = metadata();
        for (error, want) in [
            (
                m.get::<u32>("f32").unwrap_err(),
                "metadata key f32 is of type f32; u32 is expected",
            ),
            (
                m.get::<u32>("yes").unwrap_err(),
                "metadata key yes is of type bool; u32 is expected",
            ),
            (
                m.get::<bool>("u8").unwrap_err(),
                "metadata key u8 is of type u8; bool is expected",
            ),
            (
                m.get::<u32>("layers").unwrap_err(),
                "metadata key layers is of type array of i32; u32 is expected",
            ),
            (
                m.get::<Vec<f32>>("layers").unwrap_err(),
                "metadata key layers is of type array of i32; array of f32 is expected",
            ),
            (
                m.get::<&str>("words").unwrap_err(),
                "metadata key words is of type array of string; string is expected",
            ),
            (
                m.get::<u32>("gone").unwrap_err(),
                "metadata key gone is missing; u32 is expected",
            ),
            (
                m.get::<&str>("bytes").unwrap_err(),
                "metadata key bytes is not UTF-8 after 1 bytes of string 0",
            ),
        ] {
            assert_eq!(error.to_string(), want);
        }
        assert_eq!(m.find::<u32>("gone"), Ok(None));
        assert!(m.find::<u32>("text").is_err());
    }

    #[test]
    fn arrays_convert_and_one_value_serves_all_layers() {
        let m = metadata();
        assert_eq!(m.get::<Vec<&str>>("words"), Ok(vec!["x", "", "y"]));
        assert_eq!(m.get::<Vec<usize>>("layers"), Ok(vec![1, 2, 3]));
        assert_eq!(m.get::<Vec<f32>>("none"), Ok(vec![]));
        assert_eq!(m.per_layer::<u32>("layers", 3), Ok(vec![1, 2, 3]));
        assert_eq!(m.per_layer::<u32>("u8", 2), Ok(vec![7, 7]));
        assert_eq!(
            m.per_layer::<u32>("layers", 4).unwrap_err().to_string(),
            "metadata key layers has 3 entries; 4 are expected"
        );
    }

    #[test]
    fn a_key_may_occur_once() {
        let entry = |key: &str| (key.to_owned(), Value::U8(0));
        assert_eq!(
            Metadata::new(vec![entry("a"), entry("b"), entry("a")]),
            Err(DuplicateKey {
                key: "a".to_owned(),
                index: 2
            })
        );
    }
}
