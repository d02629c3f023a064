//! What can be wrong with a GGUF file.

use crate::source::SourceError;

/// A part of a GGUF header, as errors name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// The four bytes "GGUF".
    Magic,
    /// The format version.
    Version,
    /// The number of tensors.
    TensorCount,
    /// The number of metadata entries.
    MetadataCount,
    /// The key of the metadata entry with this index.
    Key(u64),
    /// The type of this key's value.
    ValueType(String),
    /// This key's value.
    Value(String),
    /// The name of the tensor with this index.
    TensorName(u64),
    /// The number of dimensions of this tensor.
    DimensionCount(String),
    /// The dimensions of this tensor.
    Dimensions(String),
    /// The element type of this tensor.
    TensorType(String),
    /// The place of this tensor's data.
    TensorOffset(String),
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => f.write_str("the magic number"),
            Self::Version => f.write_str("the version"),
            Self::TensorCount => f.write_str("the tensor count"),
            Self::MetadataCount => f.write_str("the metadata count"),
            Self::Key(i) => write!(f, "metadata key {i}"),
            Self::ValueType(key) => write!(f, "the value type of {key}"),
            Self::Value(key) => write!(f, "the value of {key}"),
            Self::TensorName(i) => write!(f, "the name of tensor {i}"),
            Self::DimensionCount(name) => write!(f, "the dimension count of tensor {name}"),
            Self::Dimensions(name) => write!(f, "the dimensions of tensor {name}"),
            Self::TensorType(name) => write!(f, "the type of tensor {name}"),
            Self::TensorOffset(name) => write!(f, "the data offset of tensor {name}"),
        }
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file ends inside the field.
    #[error(
        "needs {needed} bytes, but the file ends {missing} bytes too early; it is cut short or \
         damaged: download it again"
    )]
    CutShort {
        /// Bytes the field takes, at least.
        needed: u64,
        /// How many of them the file lacks.
        missing: u64,
    },
    /// More entries than the limit.
    #[error("is {count}; at most {limit} are accepted")]
    TooMany {
        /// Entries in the file.
        count: u64,
        /// Entries accepted.
        limit: u64,
    },
    /// A string longer than the limit.
    #[error("is {bytes} bytes long; at most {limit} are accepted")]
    TooLong {
        /// Length in the file.
        bytes: u64,
        /// Length accepted.
        limit: u64,
    },
    /// An empty key or name.
    #[error("is empty")]
    Empty,
    /// A key or name that is not UTF-8.
    #[error("is not UTF-8")]
    NotUtf8,
    /// A key or name that occurred before.
    #[error("repeats {name}")]
    Duplicate {
        /// The key or name.
        name: String,
    },
    /// A value type that the format does not define.
    #[error("is {id}; types 0 to 12 are defined")]
    ValueType {
        /// The type in the file.
        id: u32,
    },
    /// An array of arrays.
    #[error("is an array of arrays, which no reader accepts")]
    NestedArray,
    /// A truth value that is neither 0 nor 1.
    #[error("holds {byte} as a truth value; 0 and 1 are defined")]
    Bool {
        /// The byte in the file.
        byte: u8,
    },
    /// Not 1 to 4 dimensions.
    #[error("is {count}; 1 to 4 are accepted")]
    DimensionCount {
        /// Dimensions in the file.
        count: u32,
    },
    /// A dimension of 0.
    #[error("are {dims:?}; none may be 0")]
    ZeroDimension {
        /// Dimensions, contiguous first as in the file.
        dims: Vec<u64>,
    },
    /// More elements or bytes than this machine can address.
    #[error("are {dims:?}, more elements than can be addressed")]
    Overflow {
        /// Dimensions, contiguous first as in the file.
        dims: Vec<u64>,
    },
    /// A row that is not whole blocks.
    #[error("are {dims:?}; rows of {format} are multiples of {block} elements")]
    Block {
        /// Dimensions, contiguous first as in the file.
        dims: Vec<u64>,
        /// The element type.
        format: &'static str,
        /// Elements a block.
        block: usize,
    },
    /// A tensor that does not start on the alignment.
    #[error("is {offset}, not a multiple of the alignment {alignment}")]
    Misaligned {
        /// Offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A tensor that starts inside another.
    #[error("is {offset}, inside the data of tensor {other}")]
    Overlap {
        /// Offset in the data section.
        offset: u64,
        /// The tensor that is already there.
        other: String,
    },
}

/// A GGUF file that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// Not a GGUF file at all.
    #[error("not a GGUF file: it starts with {found:02x?} and not with \"GGUF\"{}", hint(.found))]
    NotGguf {
        /// The first bytes, at most 16.
        found: Vec<u8>,
    },
    /// A version that this reader does not know.
    #[error("GGUF version {version} is not supported; versions 2 and 3 are")]
    Version {
        /// The version in the file.
        version: u32,
    },
    /// A field that cannot be right.
    #[error("byte {offset}: {field} {problem}")]
    Invalid {
        /// Where the field starts in its file.
        offset: u64,
        /// Which field.
        field: Field,
        /// What is wrong.
        problem: Problem,
    },
    /// An alignment that is not a power of two.
    #[error("general.alignment is {alignment}; a power of two is expected")]
    Alignment {
        /// The alignment in the file.
        alignment: u64,
    },
    /// Data of a tensor reaches past the end of the file.
    #[error(
        "the file is {missing} bytes short: tensor {tensor} ends at byte {end} of {len}; the \
         download is incomplete or damaged: download it again"
    )]
    Truncated {
        /// The tensor that ends last.
        tensor: String,
        /// Where it ends.
        end: u64,
        /// Length of the file.
        len: u64,
        /// Bytes missing.
        missing: u64,
    },
    /// A metadata entry of the container itself has the wrong type or value.
    #[error(transparent)]
    Metadata(#[from] super::MetadataError),
    /// One file of a split model that must be opened with the others.
    #[error(
        "this is part {part} of a model split into {count} files; open it by a path that ends in \
         -00001-of-{count:05}.gguf with all of them beside it"
    )]
    PartOfSplit {
        /// Which part, from 1.
        part: u64,
        /// How many there are.
        count: u64,
    },
    /// The files given are not the parts of one split model, in order.
    #[error("file {index} of the split model: {key} is {found}; {expected} is expected")]
    Split {
        /// Which file, from 1.
        index: usize,
        /// The metadata key that disagrees.
        key: &'static str,
        /// Its value.
        found: String,
        /// What it should be.
        expected: u64,
    },
    /// A file of a split model is missing.
    #[error("part {part} of {count} is missing: {path} does not exist")]
    MissingPart {
        /// Which part, from 1.
        part: u32,
        /// How many there are.
        count: u32,
        /// The file looked for.
        path: String,
    },
    /// Two tensors have the same name, in one file or in two of a split model.
    #[error("tensor {name} occurs twice")]
    DuplicateTensor {
        /// The tensor.
        name: String,
    },
    /// The bytes could not be had.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// What a file that is not GGUF probably is.
fn hint(found: &[u8]) -> &'static str {
    match found {
        [] => "; it is empty: download it again",
        [b'<', ..] => "; it looks like a web page: the download link was wrong",
        [b'v', b'e', b'r', b's', b'i', b'o', b'n', b' ', ..] => {
            "; it looks like a Git LFS pointer: fetch the file itself with git lfs pull"
        }
        [b'P', b'K', ..] => "; it is a zip archive: unpack it first",
        [b'g', b'g', b'j' | b'm' | b'l' | b'f', ..]
        | [b'l' | b't' | b'j', b'm' | b'j', b'g', b'g', ..] => {
            "; it is of a format older than GGUF: convert the original model again"
        }
        [_, _, _, _, _, _, _, _, b'{', ..] => {
            "; it looks like a safetensors file: open the folder it lies in"
        }
        _ => "",
    }
}
