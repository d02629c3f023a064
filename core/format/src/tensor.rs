//! What a checkpoint says about one tensor.

use std::ops::Range;

use kvant_quant::WeightFormat;

/// The most bytes of a tensor read at once: large enough for full speed, small enough that loading
/// never holds a second copy of the model.
pub const PIECE_BYTES: usize = 8 << 20;

/// Where a tensor's bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Index of the file among the checkpoint's files.
    pub shard: u32,
    /// First byte, counted from the start of that file.
    pub offset: u64,
    /// Length in bytes; 0 when the format is unknown and so the length too.
    pub bytes: u64,
}

/// The element format a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TensorFormat {
    /// One this engine decodes.
    Known(WeightFormat),
    /// One it does not; an error only when the tensor is used.
    Unsupported(UnsupportedFormat),
}

/// An element format that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedFormat {
    /// A GGML type that was withdrawn; its files must be made again.
    #[error(
        "GGML type {id} ({name}) was withdrawn; quantise the original model again to {instead}"
    )]
    Retired {
        /// The type id in the file.
        id: u32,
        /// Its name when it was in use.
        name: &'static str,
        /// The type to use in its place.
        instead: &'static str,
    },
    /// A GGML type id nobody had defined when this was written.
    #[error("GGML type {id} is not known")]
    UnknownGgml {
        /// The type id in the file.
        id: u32,
    },
    /// A safetensors dtype without a weight format.
    #[error("dtype {dtype} is not supported; F32, F16 and BF16 are")]
    Dtype {
        /// The dtype in the file.
        dtype: String,
    },
}

impl TensorFormat {
    /// The format of a GGML type id, as found in a GGUF file.
    pub fn from_ggml_id(id: u32) -> Self {
        let retired =
            |name, instead| Self::Unsupported(UnsupportedFormat::Retired { id, name, instead });
        match id {
            4 => retired("Q4_2", "Q4_0"),
            5 => retired("Q4_3", "Q4_1"),
            31 => retired("Q4_0_4_4", "Q4_0"),
            32 => retired("Q4_0_4_8", "Q4_0"),
            33 => retired("Q4_0_8_8", "Q4_0"),
            36 => retired("IQ4_NL_4_4", "IQ4_NL"),
            37 => retired("IQ4_NL_4_8", "IQ4_NL"),
            38 => retired("IQ4_NL_8_8", "IQ4_NL"),
            _ => match WeightFormat::from_ggml_id(id) {
                Some(format) => Self::Known(format),
                None => Self::Unsupported(UnsupportedFormat::UnknownGgml { id }),
            },
        }
    }

    /// The format of a safetensors dtype.
    pub fn from_dtype(dtype: &str) -> Self {
        Self::Known(match dtype {
            "F32" => WeightFormat::F32,
            "F16" => WeightFormat::F16,
            "BF16" => WeightFormat::BF16,
            "F64" => WeightFormat::F64,
            "I8" => WeightFormat::I8,
            "I16" => WeightFormat::I16,
            "I32" => WeightFormat::I32,
            "I64" => WeightFormat::I64,
            other => {
                return Self::Unsupported(UnsupportedFormat::Dtype {
                    dtype: other.to_owned(),
                });
            }
        })
    }

    /// The weight format, if there is one.
    pub fn known(&self) -> Option<WeightFormat> {
        match self {
            Self::Known(format) => Some(*format),
            Self::Unsupported(_) => None,
        }
    }
}

impl std::fmt::Display for TensorFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(format) => format.fmt(f),
            Self::Unsupported(UnsupportedFormat::Retired { name, .. }) => f.write_str(name),
            Self::Unsupported(UnsupportedFormat::UnknownGgml { id }) => write!(f, "GGML type {id}"),
            Self::Unsupported(UnsupportedFormat::Dtype { dtype }) => f.write_str(dtype),
        }
    }
}

/// One tensor of a checkpoint: its name, shape, format and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// Dimensions, outermost first and contiguous last: a weight matrix is `[n_rows, n_cols]`.
    /// Empty for a scalar.
    pub shape: Vec<usize>,
    /// Element format.
    pub format: TensorFormat,
    /// Where the bytes are.
    pub location: Location,
}

impl TensorInfo {
    /// Elements a row: the contiguous dimension; 1 for a scalar.
    pub fn n_cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows: the product of all dimensions but the contiguous one.
    pub fn n_rows(&self) -> usize {
        // The whole product was checked against the file's length when the file was opened.
        self.shape.iter().rev().skip(1).product()
    }

    /// Elements in all.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of one row; `None` when the format is not supported.
    pub fn row_bytes(&self) -> Option<usize> {
        self.format.known()?.bytes_for(self.n_cols())
    }

    /// The tensor as consecutive ranges of whole rows, each at most [`PIECE_BYTES`] long unless
    /// one row alone is longer. Empty when the format is not supported or there are no elements.
    pub fn pieces(&self) -> Pieces {
        let rows = if self.n_elements() == 0 {
            0
        } else {
            self.n_rows()
        };
        Pieces {
            next: 0,
            rows: if self.row_bytes().is_some() { rows } else { 0 },
            step: (PIECE_BYTES / self.row_bytes().unwrap_or(1).max(1)).max(1),
        }
    }
}

/// Ranges of rows; see [`TensorInfo::pieces`].
#[derive(Debug, Clone)]
pub struct Pieces {
    next: usize,
    rows: usize,
    step: usize,
}

impl Iterator for Pieces {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.next >= self.rows {
            return None;
        }
        let start = self.next;
        self.next = start.saturating_add(self.step).min(self.rows);
        Some(start..self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(shape: &[usize], format: WeightFormat) -> TensorInfo {
        TensorInfo {
            name: "t".into(),
            shape: shape.to_vec(),
            format: TensorFormat::Known(format),
            location: Location {
                shard: 0,
                offset: 0,
                bytes: 0,
            },
        }
    }

    #[test]
    fn pieces_cover_every_row_once() {
        for shape in [
            &[3000_usize, 4096][..],
            &[7, 11, 4096],
            &[1 << 23],
            &[2, 1 << 24],
            &[],
        ] {
            let info = info(shape, WeightFormat::F32);
            let mut next = 0;
            for piece in info.pieces() {
                assert_eq!(piece.start, next);
                assert!(piece.len() * info.row_bytes().unwrap() <= PIECE_BYTES || piece.len() == 1);
                next = piece.end;
            }
            assert_eq!(next, info.n_rows());
        }
        assert_eq!(info(&[3, 0], WeightFormat::F32).pieces().count(), 0);
    }

    #[test]
    fn retired_types_say_what_to_use() {
        for id in [4, 5, 31, 32, 33, 36, 37, 38] {
            let TensorFormat::Unsupported(reason) = TensorFormat::from_ggml_id(id) else {
                panic!("type {id} is retired");
            };
            assert!(
                reason
                    .to_string()
                    .contains("quantise the original model again")
            );
        }
        assert_eq!(
            TensorFormat::from_ggml_id(12),
            TensorFormat::Known(WeightFormat::Q4_K)
        );
        assert!(TensorFormat::from_ggml_id(43).known().is_none());
        assert!(TensorFormat::from_dtype("F8_E4M3").known().is_none());
    }
}
