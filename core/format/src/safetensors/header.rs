//! The JSON header, read entry by entry so that it never exists as a tree in memory.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::SafeTensorsError;
use crate::MAX_TENSORS_PER_FILE;
use crate::tensor::{Location, TensorFormat, TensorInfo};

/// The most dimensions a shape may have.
const MAX_DIMENSIONS: usize = 16;
/// The longest dtype name.
const MAX_DTYPE_BYTES: usize = 32;
/// The longest string of the header. Strings with escapes pass through a buffer that doubles, so
/// this keeps it small beside what a header of that length may cost.
const MAX_STRING_BYTES: usize = 4 << 20;
/// How deep the header's objects and arrays may nest. Its own structure needs 3.
const MAX_DEPTH: usize = 32;

/// A tensor as its header entry says.
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    begin: u64,
    end: u64,
}

/// The tensors that `json` describes, checked against a file of `len` bytes whose data starts at
/// `data_start`.
pub(super) fn parse(
    json: &[u8],
    shard: u32,
    data_start: u64,
    len: u64,
) -> Result<Vec<TensorInfo>, SafeTensorsError> {
    check_structure(json)?;
    let mut collected = Collected {
        shard,
        data_start,
        tensors: Vec::new(),
        failure: None,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let outcome = deserializer
        .deserialize_map(&mut collected)
        .and_then(|()| deserializer.end());
    if let Some(failure) = collected.failure {
        return Err(failure);
    }
    outcome.map_err(|error| SafeTensorsError::Json {
        offset: 8 + position(json, &error),
        error,
    })?;
    check_tiling(&collected.tensors, data_start, len)?;
    Ok(collected.tensors)
}

/// Checks what the JSON reader would answer with memory: long strings and deep nesting.
fn check_structure(json: &[u8]) -> Result<(), SafeTensorsError> {
    let too_complex = |at: usize| SafeTensorsError::TooComplex {
        offset: 8 + at as u64,
    };
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        match byte {
            b'{' | b'[' if depth == MAX_DEPTH => return Err(too_complex(at)),
            b'{' | b'[' => depth += 1,
            // Too many of these is for the JSON reader to find.
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at;
                at += 1;
                while let Some(&byte) = json.get(at).filter(|&&byte| byte != b'"') {
                    at += if byte == b'\\' { 2 } else { 1 };
                }
                if at - start > MAX_STRING_BYTES {
                    return Err(too_complex(start));
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// About where in `json` the error is: the error only knows line and column.
fn position(json: &[u8], error: &serde_json::Error) -> u64 {
    let line_start = json
        .split_inclusive(|&byte| byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum::<usize>();
    (line_start + error.column().saturating_sub(1)) as u64
}

/// Checks that the tensors cover the data exactly, without holes and without overlap.
fn check_tiling(tensors: &[TensorInfo], data_start: u64, len: u64) -> Result<(), SafeTensorsError> {
    let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
    order.sort_unstable_by_key(|&i| {
        let place = tensors[i as usize].location;
        (place.offset, place.bytes)
    });
    let mut expected = data_start;
    let mut last = "";
    for index in order {
        let TensorInfo { name, location, .. } = &tensors[index as usize];
        if location.offset != expected {
            return Err(SafeTensorsError::NotContiguous {
                name: name.clone(),
                begin: location.offset - data_start,
                expected: expected - data_start,
            });
        }
        expected = location.offset.saturating_add(location.bytes);
        last = name;
    }
    if expected > len {
        return Err(SafeTensorsError::Truncated {
            what: format!("tensor {last}"),
            end: expected,
            len,
            missing: expected - len,
        });
    }
    if expected < len {
        return Err(SafeTensorsError::ExtraData {
            extra: len - expected,
        });
    }
    Ok(())
}

/// The header's outermost object.
struct Collected {
    shard: u32,
    data_start: u64,
    tensors: Vec<TensorInfo>,
    /// Why reading stopped, when the JSON itself was not the reason.
    failure: Option<SafeTensorsError>,
}

impl<'de> Visitor<'de> for &mut Collected {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensor descriptions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry = map.next_value_seed(EntrySeed)?;
            let outcome = if self.tensors.len() as u64 == MAX_TENSORS_PER_FILE {
                Err(SafeTensorsError::TooManyTensors)
            } else {
                check(name, entry, self.shard, self.data_start)
            };
            match outcome {
                Ok(info) => self.tensors.push(info),
                Err(failure) => {
                    self.failure = Some(failure);
                    return Err(A::Error::custom("stopped"));
                }
            }
        }
        Ok(())
    }
}

/// One entry as a tensor, its length checked against its shape and dtype.
fn check(
    name: String,
    entry: Entry,
    shard: u32,
    data_start: u64,
) -> Result<TensorInfo, SafeTensorsError> {
    let Entry {
        dtype,
        shape,
        begin,
        end,
    } = entry;
    // Zeros count as ones, so that a product of some of the dimensions cannot overflow either.
    let elements = shape
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim.max(1)))
        .filter(|&product| isize::try_from(product).is_ok());
    let bits = dtype_bits(&dtype);
    let total_bits = elements.and_then(|elements| elements.checked_mul(bits.unwrap_or(1)));
    let (Some(_), Some(total_bits)) = (elements, total_bits) else {
        return Err(SafeTensorsError::Overflow { name, shape });
    };
    let total_bits = if shape.contains(&0) { 0 } else { total_bits };
    let bytes = end.checked_sub(begin);
    // The length of an unknown dtype cannot be checked; it is an error when it is used.
    let fits = bits.is_none() || bytes.and_then(|bytes| bytes.checked_mul(8)) == Some(total_bits);
    let (Some(bytes), Some(offset), true) = (bytes, data_start.checked_add(begin), fits) else {
        return Err(SafeTensorsError::Length {
            name,
            shape,
            dtype,
            expected: total_bits.div_ceil(8),
            begin,
            end,
        });
    };
    Ok(TensorInfo {
        name,
        // Cannot truncate: the product was checked to fit.
        shape: shape.iter().map(|&dim| dim as usize).collect(),
        format: TensorFormat::from_dtype(&dtype),
        location: Location {
            shard,
            offset,
            bytes,
        },
    })
}

/// Bits an element takes, for the dtypes that the format defines.
fn dtype_bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

struct EntrySeed;

impl<'de> DeserializeSeed<'de> for EntrySeed {
    type Value = Entry;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Entry, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntrySeed {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut dtype = None;
        let mut shape = None;
        let mut offsets = None;
        while let Some(key) = map.next_key::<String>()? {
            let repeated = match key.as_str() {
                "dtype" => dtype.replace(map.next_value::<String>()?).is_some(),
                "shape" => shape.replace(map.next_value_seed(ShapeSeed)?).is_some(),
                "data_offsets" => offsets.replace(map.next_value::<[u64; 2]>()?).is_some(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if repeated {
                return Err(A::Error::custom(format_args!("{key} occurs twice")));
            }
        }
        let dtype = dtype.ok_or_else(|| A::Error::missing_field("dtype"))?;
        let shape = shape.ok_or_else(|| A::Error::missing_field("shape"))?;
        let [begin, end] = offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?;
        if dtype.len() > MAX_DTYPE_BYTES {
            return Err(A::Error::custom("the dtype's name is too long"));
        }
        Ok(Entry {
            dtype,
            shape,
            begin,
            end,
        })
    }
}

struct ShapeSeed;

impl<'de> DeserializeSeed<'de> for ShapeSeed {
    type Value = Vec<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {MAX_DIMENSIONS} dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u64>, A::Error> {
        let mut shape = Vec::new();
        while let Some(dim) = seq.next_element()? {
            if shape.len() == MAX_DIMENSIONS {
                return Err(A::Error::invalid_length(MAX_DIMENSIONS + 1, &self));
            }
            shape.push(dim);
        }
        Ok(shape)
    }
}
