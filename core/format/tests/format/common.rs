//! Shared by the integration tests.

use std::path::PathBuf;
use std::sync::Arc;

use kvant_format::gguf::write::GgufBuilder;
use kvant_format::gguf::{Array, Value};
use kvant_format::{ByteOrder, BytesSource, Gguf, GgufError, Source, TensorStore, block_on};
use kvant_quant::WeightFormat;

/// Opens GGUF bytes.
pub(crate) fn open(bytes: &[u8]) -> Result<Gguf, GgufError> {
    let source: Arc<dyn Source> = BytesSource::shared(bytes.to_vec());
    block_on(Gguf::open(source))
}

/// The folder of real models, filled by `cargo xtask models`.
pub(crate) fn real_model(file: &str) -> PathBuf {
    let folder = std::env::var_os("KVANT_MODELS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/models"),
        PathBuf::from,
    );
    let path = folder.join(file);
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask models`, or set KVANT_MODELS to the folder that has it",
        path.display()
    );
    path
}

/// A value of every type, and an array of every type.
pub(crate) fn every_value() -> Vec<(String, Value)> {
    let scalars = [
        Value::U8(200),
        Value::I8(-100),
        Value::U16(60_000),
        Value::I16(-30_000),
        Value::U32(4_000_000_000),
        Value::I32(-2_000_000_000),
        Value::F32(1.5e-7),
        Value::Bool(true),
        Value::String("caf\u{e9}".into()),
        Value::U64(1 << 60),
        Value::I64(-(1 << 60)),
        Value::F64(1.0 / 3.0),
    ];
    let arrays = [
        Array::U8(vec![1, 2, 3]),
        Array::I8(vec![-1, 0, 1]),
        Array::U16(vec![1, 65_535]),
        Array::I16(vec![-32_768, 5]),
        Array::U32(vec![7; 5]),
        Array::I32(vec![-7; 3]),
        Array::F32(vec![0.25, -0.5]),
        Array::Bool(vec![true, false, true]),
        Array::String(["", "a", "bc", "\u{1f600}"].iter().collect()),
        Array::U64(vec![u64::MAX]),
        Array::I64(vec![i64::MIN, 0]),
        Array::F64(vec![]),
    ];
    let name = |i: usize, value: &Value| (format!("test.value.{i}"), value.clone());
    let scalars = scalars.iter().enumerate().map(|(i, v)| name(i, v));
    let arrays = arrays.into_iter().map(Value::Array);
    let arrays = arrays.enumerate().map(|(i, v)| name(100 + i, &v));
    scalars.chain(arrays).collect()
}

/// A tensor for [`write`].
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) format: WeightFormat,
    /// Little-endian.
    pub(crate) bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor whose bytes are all different from those of its neighbours.
    pub(crate) fn new(name: &str, shape: &[usize], format: WeightFormat) -> Self {
        let elements = shape.iter().product();
        let seed = name
            .bytes()
            .fold(17_u8, |hash, b| hash.wrapping_mul(31) ^ b);
        let bytes = (0..format.bytes_for(elements).unwrap())
            .map(|i| (i as u8).wrapping_mul(7) ^ seed ^ (i >> 8) as u8)
            .collect();
        Self {
            name: name.to_owned(),
            shape: shape.to_vec(),
            format,
            bytes,
        }
    }
}

/// Writes a GGUF file.
pub(crate) fn write(order: ByteOrder, metadata: &[(String, Value)], tensors: &[Tensor]) -> Vec<u8> {
    let mut builder = GgufBuilder::new(order);
    for (key, value) in metadata {
        builder.metadata(key, value.clone());
    }
    for tensor in tensors {
        builder.tensor(&tensor.name, &tensor.shape, tensor.format);
    }
    let mut writer = builder.start(Vec::new()).unwrap();
    for tensor in tensors {
        writer.data(&tensor.bytes).unwrap();
    }
    writer.finish().unwrap()
}

/// The bytes of a tensor, by pieces, after checking its shape and format.
pub(crate) fn read_all(store: &TensorStore, tensor: &Tensor) -> Vec<u8> {
    let info = store.tensor(&tensor.name).unwrap();
    assert_eq!(info.shape, tensor.shape);
    assert_eq!(info.format.known(), Some(tensor.format));
    let mut bytes = Vec::new();
    for rows in info.pieces() {
        bytes.extend_from_slice(&block_on(store.read_rows(info, rows)).unwrap());
    }
    bytes
}
