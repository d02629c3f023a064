//! Writing GGUF files, version 3.

use std::io::{self, Write};

use kvant_quant::{QuantError, WeightFormat, swap_block_endianness};

use super::value::{Array, Value};
use super::{DEFAULT_ALIGNMENT, DuplicateKey, Metadata};
use crate::store::ByteOrder;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A metadata key occurs twice.
    #[error(transparent)]
    DuplicateKey(#[from] DuplicateKey),
    /// A tensor name occurs twice.
    #[error("tensor {name} occurs twice")]
    DuplicateTensor {
        /// The name.
        name: String,
    },
    /// A shape that the file cannot hold.
    #[error(
        "tensor {name} of shape {shape:?} cannot be {format}: 1 to 4 dimensions, none of them 0, \
         and rows of whole blocks are expected"
    )]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape, outermost first.
        shape: Vec<usize>,
        /// Its format.
        format: WeightFormat,
    },
    /// `general.alignment` is not a `u32` power of two.
    #[error("general.alignment must be a u32 that is a power of two")]
    Alignment,
    /// More bytes were given than the tensor has, or than all tensors have.
    #[error("{extra} bytes more than tensor {tensor} takes")]
    TooMuchData {
        /// The tensor being written; empty when all were complete.
        tensor: String,
        /// Bytes too many.
        extra: usize,
    },
    /// Big-endian data must come in whole blocks.
    #[error("tensor {tensor}: {error}")]
    PartOfBlock {
        /// The tensor being written.
        tensor: String,
        /// What is wrong.
        error: QuantError,
    },
    /// The file was finished before its tensors were complete.
    #[error("{missing} bytes of tensor {tensor} were not given")]
    Incomplete {
        /// The first tensor that is not complete.
        tensor: String,
        /// Bytes missing.
        missing: usize,
    },
    /// The output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A tensor to be written.
#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    format: WeightFormat,
    bytes: usize,
}

/// Collects what goes into a file's header.
#[derive(Debug, Clone)]
pub struct GgufBuilder {
    order: ByteOrder,
    entries: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<usize>, WeightFormat)>,
}

impl GgufBuilder {
    /// An empty file of this byte order.
    pub fn new(order: ByteOrder) -> Self {
        Self {
            order,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Appends a metadata entry. `general.alignment` takes effect.
    pub fn metadata(&mut self, key: &str, value: Value) -> &mut Self {
        self.entries.push((key.to_owned(), value));
        self
    }

    /// Appends a tensor of `shape`, outermost first: `[n_rows, n_cols]`.
    pub fn tensor(&mut self, name: &str, shape: &[usize], format: WeightFormat) -> &mut Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), format));
        self
    }

    /// Writes the header. The tensors' bytes follow by [`GgufWriter::data`].
    ///
    /// # Errors
    /// [`WriteError`] when a name repeats, a shape is not possible, or the output fails.
    pub fn start<W: Write>(&self, out: W) -> Result<GgufWriter<W>, WriteError> {
        let metadata = Metadata::new(self.entries.clone())?;
        let alignment = match metadata.value("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(&Value::U32(alignment)) if alignment.is_power_of_two() => alignment,
            Some(_) => return Err(WriteError::Alignment),
        } as u64;
        let tensors = self.checked_tensors()?;

        let mut header = Encoder {
            order: self.order,
            bytes: b"GGUF".to_vec(),
        };
        header.u32(3);
        header.u64(tensors.len() as u64);
        header.u64(self.entries.len() as u64);
        for (key, value) in &self.entries {
            header.string(key.as_bytes());
            header.value(value);
        }
        let mut offset = 0_u64;
        for tensor in &tensors {
            header.string(tensor.name.as_bytes());
            header.u32(tensor.shape.len() as u32);
            for &dim in tensor.shape.iter().rev() {
                header.u64(dim as u64);
            }
            header.u32(tensor.format.ggml_id());
            header.u64(offset);
            offset = (offset + tensor.bytes as u64).next_multiple_of(alignment);
        }
        let mut writer = GgufWriter {
            out,
            order: self.order,
            alignment,
            tensors,
            current: 0,
            in_tensor: 0,
            position: 0,
        };
        writer.put(&header.bytes)?;
        writer.pad()?;
        Ok(writer)
    }

    fn checked_tensors(&self) -> Result<Vec<Tensor>, WriteError> {
        let mut names: Vec<&str> = self
            .tensors
            .iter()
            .map(|(name, ..)| name.as_str())
            .collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(WriteError::DuplicateTensor {
                name: pair[0].to_owned(),
            });
        }
        let tensor = |(name, shape, format): &(String, Vec<usize>, WeightFormat)| {
            let bytes = bytes_of(shape, *format).ok_or_else(|| WriteError::Shape {
                name: name.clone(),
                shape: shape.clone(),
                format: *format,
            })?;
            Ok(Tensor {
                name: name.clone(),
                shape: shape.clone(),
                format: *format,
                bytes,
            })
        };
        self.tensors.iter().map(tensor).collect()
    }
}

fn bytes_of(shape: &[usize], format: WeightFormat) -> Option<usize> {
    if !(1..=4).contains(&shape.len()) || shape.contains(&0) {
        return None;
    }
    let (&n_cols, outer) = shape.split_last()?;
    outer
        .iter()
        .try_fold(format.bytes_for(n_cols)?, |bytes, &dim| {
            bytes.checked_mul(dim)
        })
}

/// A file whose header is written and whose tensors' bytes are being written.
#[derive(Debug)]
pub struct GgufWriter<W> {
    out: W,
    order: ByteOrder,
    alignment: u64,
    tensors: Vec<Tensor>,
    /// Index of the tensor being written.
    current: usize,
    /// Bytes of it already written.
    in_tensor: usize,
    /// Bytes of the file already written.
    position: u64,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the next `bytes`, little-endian, of the tensors in the order they were declared.
    /// One call stays within one tensor; padding is written when a tensor is complete.
    ///
    /// # Errors
    /// [`WriteError::TooMuchData`] past the tensor's end; in a big-endian file
    /// [`WriteError::PartOfBlock`] when they are not whole blocks; those of the output.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(tensor) = self.tensors.get(self.current) else {
            return Err(WriteError::TooMuchData {
                tensor: String::new(),
                extra: bytes.len(),
            });
        };
        let left = tensor.bytes - self.in_tensor;
        if bytes.len() > left {
            return Err(WriteError::TooMuchData {
                tensor: tensor.name.clone(),
                extra: bytes.len() - left,
            });
        }
        match self.order {
            ByteOrder::Little => self.put(bytes)?,
            ByteOrder::Big => {
                let mut swapped = bytes.to_vec();
                swap_block_endianness(tensor.format, &mut swapped).map_err(|error| {
                    WriteError::PartOfBlock {
                        tensor: tensor.name.clone(),
                        error,
                    }
                })?;
                self.put(&swapped)?;
            }
        }
        self.in_tensor += bytes.len();
        if bytes.len() == left {
            self.pad()?;
            self.current += 1;
            self.in_tensor = 0;
        }
        Ok(())
    }

    /// Ends the file and gives the output back.
    ///
    /// # Errors
    /// [`WriteError::Incomplete`] when tensors' bytes are missing; those of the output.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some(tensor) = self.tensors.get(self.current) {
            return Err(WriteError::Incomplete {
                tensor: tensor.name.clone(),
                missing: tensor.bytes - self.in_tensor,
            });
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        const ZEROS: [u8; 64] = [0; 64];
        let mut left = self.position.next_multiple_of(self.alignment) - self.position;
        while left > 0 {
            let now = left.min(ZEROS.len() as u64);
            self.put(&ZEROS[..now as usize])?;
            left -= now;
        }
        Ok(())
    }
}

/// Header bytes in one byte order.
struct Encoder {
    order: ByteOrder,
    bytes: Vec<u8>,
}

macro_rules! put_numbers {
    ($($name:ident: $t:ty),*) => {$(
        fn $name(&mut self, value: $t) {
            match self.order {
                ByteOrder::Little => self.bytes.extend_from_slice(&value.to_le_bytes()),
                ByteOrder::Big => self.bytes.extend_from_slice(&value.to_be_bytes()),
            }
        }
    )*};
}

impl Encoder {
    put_numbers!(u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, u64: u64, i64: i64,
        f32: f32, f64: f64);

    fn string(&mut self, string: &[u8]) {
        self.u64(string.len() as u64);
        self.bytes.extend_from_slice(string);
    }

    fn value(&mut self, value: &Value) {
        self.u32(value_type(value));
        match value {
            Value::U8(v) => self.u8(*v),
            Value::I8(v) => self.i8(*v),
            Value::U16(v) => self.u16(*v),
            Value::I16(v) => self.i16(*v),
            Value::U32(v) => self.u32(*v),
            Value::I32(v) => self.i32(*v),
            Value::F32(v) => self.f32(*v),
            Value::Bool(v) => self.u8((*v).into()),
            Value::String(v) => self.string(v),
            Value::Array(v) => self.array(v),
            Value::U64(v) => self.u64(*v),
            Value::I64(v) => self.i64(*v),
            Value::F64(v) => self.f64(*v),
        }
    }

    fn array(&mut self, array: &Array) {
        self.u32(element_type(array));
        self.u64(array.len() as u64);
        match array {
            Array::U8(v) => v.iter().for_each(|v| self.u8(*v)),
            Array::I8(v) => v.iter().for_each(|v| self.i8(*v)),
            Array::U16(v) => v.iter().for_each(|v| self.u16(*v)),
            Array::I16(v) => v.iter().for_each(|v| self.i16(*v)),
            Array::U32(v) => v.iter().for_each(|v| self.u32(*v)),
            Array::I32(v) => v.iter().for_each(|v| self.i32(*v)),
            Array::F32(v) => v.iter().for_each(|v| self.f32(*v)),
            Array::Bool(v) => v.iter().for_each(|v| self.u8((*v).into())),
            Array::String(v) => v.iter().for_each(|v| self.string(v)),
            Array::U64(v) => v.iter().for_each(|v| self.u64(*v)),
            Array::I64(v) => v.iter().for_each(|v| self.i64(*v)),
            Array::F64(v) => v.iter().for_each(|v| self.f64(*v)),
        }
    }
}

fn value_type(value: &Value) -> u32 {
    match value {
        Value::U8(_) => 0,
        Value::I8(_) => 1,
        Value::U16(_) => 2,
        Value::I16(_) => 3,
        Value::U32(_) => 4,
        Value::I32(_) => 5,
        Value::F32(_) => 6,
        Value::Bool(_) => 7,
        Value::String(_) => 8,
        Value::Array(_) => 9,
        Value::U64(_) => 10,
        Value::I64(_) => 11,
        Value::F64(_) => 12,
    }
}

fn element_type(array: &Array) -> u32 {
    match array {
        Array::U8(_) => 0,
        Array::I8(_) => 1,
        Array::U16(_) => 2,
        Array::I16(_) => 3,
        Array::U32(_) => 4,
        Array::I32(_) => 5,
        Array::F32(_) => 6,
        Array::Bool(_) => 7,
        Array::String(_) => 8,
        Array::U64(_) => 10,
        Array::I64(_) => 11,
        Array::F64(_) => 12,
    }
}
