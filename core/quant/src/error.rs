//! What can be wrong with the bytes or the values of a tensor.

use crate::WeightFormat;

/// Why a tensor could not be decoded, encoded or accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantError {
    /// The byte length is not a whole number of blocks.
    #[error("{bytes} bytes are not whole {format} blocks of {} bytes", format.block().bytes)]
    PartialBlock {
        /// The tensor's format.
        format: WeightFormat,
        /// Bytes given.
        bytes: usize,
    },
    /// The number of values is not a whole number of blocks.
    #[error("{elements} values are not whole {format} blocks of {} values", format.block().elements)]
    PartialElements {
        /// The tensor's format.
        format: WeightFormat,
        /// Values given.
        elements: usize,
    },
    /// The two sides of a decode or an encode do not hold the same number of blocks.
    #[error(
        "{bytes} bytes of {format} hold {} values, but the other side has {elements}",
        bytes / format.block().bytes * format.block().elements
    )]
    LengthMismatch {
        /// The tensor's format.
        format: WeightFormat,
        /// Bytes on the packed side.
        bytes: usize,
        /// Values on the float side.
        elements: usize,
    },
    /// A block has a scale that its format does not allow: NaN, infinite, or out of range.
    #[error("block {block} of the {format} tensor has a scale that is not a valid finite number")]
    InvalidScale {
        /// The tensor's format.
        format: WeightFormat,
        /// Index of the first such block in the tensor.
        block: usize,
    },
    /// A value is NaN or infinite.
    #[error("value {index} of the {format} tensor is not a finite number")]
    NonFiniteValue {
        /// The tensor's format (of the target, when encoding).
        format: WeightFormat,
        /// Index of the first such value in the tensor.
        index: usize,
    },
    /// Values are finite, but too large for what the format can hold.
    #[error("block {block} has values too large for {format}")]
    Overflow {
        /// The target format.
        format: WeightFormat,
        /// Index of the first such block.
        block: usize,
    },
    /// There is no encoder for this format.
    #[error("{format} can be read but not written")]
    NoEncoder {
        /// The target format.
        format: WeightFormat,
    },
}

/// Number of blocks when `bytes` bytes and `elements` values are the same whole number of blocks.
pub(crate) fn whole_blocks(
    format: WeightFormat,
    bytes: usize,
    elements: usize,
) -> Result<usize, QuantError> {
    let n_blocks = blocks_in_bytes(format, bytes)?;
    if !elements.is_multiple_of(format.block().elements) {
        return Err(QuantError::PartialElements { format, elements });
    }
    if elements / format.block().elements != n_blocks {
        return Err(QuantError::LengthMismatch {
            format,
            bytes,
            elements,
        });
    }
    Ok(n_blocks)
}

/// Number of blocks in `bytes` bytes.
pub(crate) fn blocks_in_bytes(format: WeightFormat, bytes: usize) -> Result<usize, QuantError> {
    if !bytes.is_multiple_of(format.block().bytes) {
        return Err(QuantError::PartialBlock { format, bytes });
    }
    Ok(bytes / format.block().bytes)
}
