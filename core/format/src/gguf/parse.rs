//! The header of one GGUF file: metadata and tensor descriptions, checked against the file.

use super::error::{Field, GgufError, Problem};
use super::header::{HeaderReader, invalid};
use super::metadata::Metadata;
use super::value::{Array, StringArray, Value};
use super::{DEFAULT_ALIGNMENT, MAX_METADATA_ENTRIES, MAX_NAME_BYTES};
use crate::MAX_TENSORS_PER_FILE;
use crate::source::{Source, read_exact};
use crate::store::ByteOrder;
use crate::tensor::{Location, TensorFormat, TensorInfo};

/// The least bytes a metadata entry takes: key length, one byte of key, type, one byte of value.
const LEAST_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// The least bytes a tensor's description takes: name length, one byte of name, dimension count,
/// one dimension, type, offset.
const LEAST_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// What one file's header says.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) order: ByteOrder,
    pub(super) alignment: u64,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
    /// Where the tensors' data starts.
    pub(super) data_start: u64,
}

/// Reads and checks the header of `source`, which is file number `shard` of its checkpoint.
pub(super) async fn parse(source: &dyn Source, shard: u32) -> Result<Header, GgufError> {
    let mut reader = HeaderReader::new(source);
    let version = preamble(&mut reader, source).await?;
    let n_tensors = count(
        &mut reader,
        Field::TensorCount,
        MAX_TENSORS_PER_FILE,
        LEAST_TENSOR_BYTES,
    )
    .await?;
    let n_entries = count(
        &mut reader,
        Field::MetadataCount,
        MAX_METADATA_ENTRIES,
        LEAST_ENTRY_BYTES,
    )
    .await?;
    let metadata = metadata(&mut reader, n_entries).await?;
    let alignment = alignment(&metadata)?;
    let tensors = Tensors::read(&mut reader, n_tensors, shard, alignment).await?;
    let end = reader.offset();
    let order = reader.order();
    let (tensors, data_start) = tensors.place(end, alignment, source.len())?;
    Ok(Header {
        version,
        order,
        alignment,
        metadata,
        tensors,
        data_start,
    })
}

/// Magic number and version; finds the byte order.
async fn preamble(reader: &mut HeaderReader<'_>, source: &dyn Source) -> Result<u32, GgufError> {
    let first = read_exact(source, 0..source.len().min(16)).await?;
    if !first.starts_with(b"GGUF") {
        // A file cut inside the magic number is cut short rather than of another kind.
        if !first.is_empty() && b"GGUF".starts_with(&first) {
            reader.require(4, || Field::Magic)?;
        }
        return Err(GgufError::NotGguf {
            found: first.into_owned(),
        });
    }
    reader.scalar::<u32>(|| Field::Magic).await?;
    let version = reader.scalar::<u32>(|| Field::Version).await?;
    let (version, order) = match version & 0xffff {
        // The version is small, so its low half is 0 only when the bytes are in the other order.
        0 => (version.swap_bytes(), ByteOrder::Big),
        _ => (version, ByteOrder::Little),
    };
    if !(2..=3).contains(&version) {
        return Err(GgufError::Version { version });
    }
    reader.set_order(order);
    Ok(version)
}

/// A count of things that take at least `least_bytes` each.
async fn count(
    reader: &mut HeaderReader<'_>,
    field: Field,
    limit: u64,
    least_bytes: u64,
) -> Result<u64, GgufError> {
    let start = reader.offset();
    let count = reader.scalar::<u64>(|| field.clone()).await?;
    if count > limit {
        return Err(invalid(start, field, Problem::TooMany { count, limit }));
    }
    reader.require(count * least_bytes, || field)?;
    Ok(count)
}

async fn metadata(reader: &mut HeaderReader<'_>, count: u64) -> Result<Metadata, GgufError> {
    let mut entries = Vec::with_capacity(count as usize);
    let mut starts = Vec::with_capacity(count as usize);
    for index in 0..count {
        starts.push(reader.offset());
        let key = reader.name(MAX_NAME_BYTES, || Field::Key(index)).await?;
        let value = value(reader, &key).await?;
        entries.push((key, value));
    }
    Metadata::new(entries).map_err(|duplicate| {
        let index = duplicate.index as u64;
        let field = Field::Key(index);
        let name = duplicate.key;
        invalid(starts[duplicate.index], field, Problem::Duplicate { name })
    })
}

async fn value(reader: &mut HeaderReader<'_>, key: &str) -> Result<Value, GgufError> {
    let field = || Field::Value(key.to_owned());
    let start = reader.offset();
    let value_type = reader
        .scalar::<u32>(|| Field::ValueType(key.to_owned()))
        .await?;
    Ok(match value_type {
        0 => Value::U8(reader.scalar(field).await?),
        1 => Value::I8(reader.scalar(field).await?),
        2 => Value::U16(reader.scalar(field).await?),
        3 => Value::I16(reader.scalar(field).await?),
        4 => Value::U32(reader.scalar(field).await?),
        5 => Value::I32(reader.scalar(field).await?),
        6 => Value::F32(reader.scalar(field).await?),
        7 => {
            let start = reader.offset();
            match reader.scalar::<u8>(field).await? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                byte => return Err(invalid(start, field(), Problem::Bool { byte })),
            }
        }
        8 => Value::String(reader.string(u64::MAX, field).await?),
        9 => Value::Array(array(reader, key).await?),
        10 => Value::U64(reader.scalar(field).await?),
        11 => Value::I64(reader.scalar(field).await?),
        12 => Value::F64(reader.scalar(field).await?),
        id => {
            let field = Field::ValueType(key.to_owned());
            return Err(invalid(start, field, Problem::ValueType { id }));
        }
    })
}

async fn array(reader: &mut HeaderReader<'_>, key: &str) -> Result<Array, GgufError> {
    let field = || Field::Value(key.to_owned());
    let start = reader.offset();
    let element_type = reader
        .scalar::<u32>(|| Field::ValueType(key.to_owned()))
        .await?;
    let count = reader.scalar::<u64>(field).await?;
    Ok(match element_type {
        0 => Array::U8(reader.scalars(count, field).await?),
        1 => Array::I8(reader.scalars(count, field).await?),
        2 => Array::U16(reader.scalars(count, field).await?),
        3 => Array::I16(reader.scalars(count, field).await?),
        4 => Array::U32(reader.scalars(count, field).await?),
        5 => Array::I32(reader.scalars(count, field).await?),
        6 => Array::F32(reader.scalars(count, field).await?),
        7 => {
            let start = reader.offset();
            let bytes: Vec<u8> = reader.scalars(count, field).await?;
            if let Some(at) = bytes.iter().position(|&byte| byte > 1) {
                let problem = Problem::Bool { byte: bytes[at] };
                return Err(invalid(start + at as u64, field(), problem));
            }
            Array::Bool(bytes.into_iter().map(|byte| byte == 1).collect())
        }
        8 => Array::String(string_array(reader, key, count).await?),
        9 => return Err(invalid(start, field(), Problem::NestedArray)),
        10 => Array::U64(reader.scalars(count, field).await?),
        11 => Array::I64(reader.scalars(count, field).await?),
        12 => Array::F64(reader.scalars(count, field).await?),
        id => {
            let field = Field::ValueType(key.to_owned());
            return Err(invalid(start, field, Problem::ValueType { id }));
        }
    })
}

async fn string_array(
    reader: &mut HeaderReader<'_>,
    key: &str,
    count: u64,
) -> Result<StringArray, GgufError> {
    let field = || Field::Value(key.to_owned());
    // Each string takes at least its length.
    reader.require(count.saturating_mul(8), field)?;
    let mut strings = StringArray::with_count(count as usize);
    for _ in 0..count {
        let start = reader.offset();
        let bytes = reader.scalar::<u64>(field).await?;
        reader.require(bytes, field)?;
        let limit = StringArray::MAX_BYTES;
        let total = strings.total_bytes() + bytes;
        if total > limit {
            let problem = Problem::TooLong {
                bytes: total,
                limit,
            };
            return Err(invalid(start, field(), problem));
        }
        strings.reserve(bytes as usize);
        reader.append(bytes, strings.bytes_mut(), field).await?;
        strings.end();
    }
    strings.shrink();
    Ok(strings)
}

fn alignment(metadata: &Metadata) -> Result<u64, GgufError> {
    let key = "general.alignment";
    let alignment = metadata.find::<u32>(key)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() {
        return Err(GgufError::Alignment {
            alignment: alignment.into(),
        });
    }
    Ok(alignment.into())
}

/// Tensor descriptions whose offsets still count from the start of the data section.
struct Tensors {
    infos: Vec<TensorInfo>,
    /// Where each offset field is in the header.
    offset_fields: Vec<u64>,
}

impl Tensors {
    async fn read(
        reader: &mut HeaderReader<'_>,
        count: u64,
        shard: u32,
        alignment: u64,
    ) -> Result<Self, GgufError> {
        let mut infos = Vec::with_capacity(count as usize);
        let mut offset_fields = Vec::with_capacity(count as usize);
        for index in 0..count {
            let name = reader
                .name(MAX_NAME_BYTES, || Field::TensorName(index))
                .await?;
            let (dims, dims_start) = dimensions(reader, &name).await?;
            let type_id = reader
                .scalar::<u32>(|| Field::TensorType(name.clone()))
                .await?;
            let format = TensorFormat::from_ggml_id(type_id);
            let bytes = tensor_bytes(&dims, &format)
                .map_err(|problem| invalid(dims_start, Field::Dimensions(name.clone()), problem))?;
            let field = || Field::TensorOffset(name.clone());
            let offset_start = reader.offset();
            let offset = reader.scalar::<u64>(field).await?;
            if !offset.is_multiple_of(alignment) {
                let problem = Problem::Misaligned { offset, alignment };
                return Err(invalid(offset_start, field(), problem));
            }
            offset_fields.push(offset_start);
            infos.push(TensorInfo {
                name,
                // Cannot truncate: the product was checked to fit.
                shape: dims.iter().rev().map(|&dim| dim as usize).collect(),
                format,
                location: Location {
                    shard,
                    offset,
                    bytes,
                },
            });
        }
        Ok(Self {
            infos,
            offset_fields,
        })
    }

    /// Makes offsets count from the start of the file, given where the header ends, and checks
    /// that the tensors lie inside it and not inside each other.
    fn place(
        mut self,
        header_end: u64,
        alignment: u64,
        len: u64,
    ) -> Result<(Vec<TensorInfo>, u64), GgufError> {
        let data_start = header_end.saturating_add(alignment - 1) & !(alignment - 1);
        let mut by_offset: Vec<u32> = (0..self.infos.len() as u32).collect();
        by_offset.sort_unstable_by_key(|&i| self.infos[i as usize].location.offset);

        // The last of those known so far, and where it ends in the data section.
        let mut last: Option<(usize, u64)> = None;
        for &index in &by_offset {
            let index = index as usize;
            let Location { offset, bytes, .. } = self.infos[index].location;
            let end = offset.saturating_add(bytes);
            if let Some((other, other_end)) = last
                && offset < other_end
            {
                let problem = Problem::Overlap {
                    offset,
                    other: self.infos[other].name.clone(),
                };
                let field = Field::TensorOffset(self.infos[index].name.clone());
                return Err(invalid(self.offset_fields[index], field, problem));
            }
            last = Some((index, end));
        }
        if let Some((index, end)) = last {
            let end = data_start.saturating_add(end);
            if let Some(missing) = end.checked_sub(len).filter(|&missing| missing > 0) {
                return Err(GgufError::Truncated {
                    tensor: self.infos[index].name.clone(),
                    end,
                    len,
                    missing,
                });
            }
        }
        for info in &mut self.infos {
            info.location.offset += data_start;
        }
        Ok((self.infos, data_start))
    }
}

/// The dimensions of a tensor, contiguous first as in the file, and where they start.
async fn dimensions(
    reader: &mut HeaderReader<'_>,
    name: &str,
) -> Result<(Vec<u64>, u64), GgufError> {
    let count_start = reader.offset();
    let field = || Field::DimensionCount(name.to_owned());
    let count = reader.scalar::<u32>(field).await?;
    if !(1..=4).contains(&count) {
        let problem = Problem::DimensionCount { count };
        return Err(invalid(count_start, field(), problem));
    }
    let start = reader.offset();
    let field = || Field::Dimensions(name.to_owned());
    let dims = reader.scalars(count.into(), field).await?;
    Ok((dims, start))
}

/// Bytes of a tensor; 0 when the format, and so the length, is unknown.
fn tensor_bytes(dims: &[u64], format: &TensorFormat) -> Result<u64, Problem> {
    let overflow = || Problem::Overflow {
        dims: dims.to_vec(),
    };
    if dims.contains(&0) {
        return Err(Problem::ZeroDimension {
            dims: dims.to_vec(),
        });
    }
    // Signed, as everybody who computes with offsets into it will want.
    let elements = dims
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim))
        .and_then(|elements| isize::try_from(elements).ok())
        .ok_or_else(overflow)?;
    let Some(format) = format.known() else {
        return Ok(0);
    };
    let block = format.block().elements;
    if !dims[0].is_multiple_of(block as u64) {
        return Err(Problem::Block {
            dims: dims.to_vec(),
            format: format.name(),
            block,
        });
    }
    format
        .bytes_for(elements as usize)
        .and_then(|bytes| isize::try_from(bytes).ok())
        .map(|bytes| bytes as u64)
        .ok_or_else(overflow)
}
