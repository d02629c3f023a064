//! Any file that can be written is read as it was written.

use kvant_format::gguf::{Array, Value};
use kvant_format::{ByteOrder, block_on};
use kvant_quant::WeightFormat;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::common::{Tensor, open, read_all, write};

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        (-1e30_f32..1e30).prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        vec(any::<u8>(), 0..40).prop_map(Value::String),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        (-1e200_f64..1e200).prop_map(Value::F64),
    ]
}

fn array() -> impl Strategy<Value = Value> {
    prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(Array::U8),
        vec(any::<i8>(), 0..20).prop_map(Array::I8),
        vec(any::<u16>(), 0..20).prop_map(Array::U16),
        vec(any::<i16>(), 0..20).prop_map(Array::I16),
        vec(any::<u32>(), 0..20).prop_map(Array::U32),
        vec(any::<i32>(), 0..20).prop_map(Array::I32),
        vec(-1e30_f32..1e30, 0..20).prop_map(Array::F32),
        vec(any::<bool>(), 0..20).prop_map(Array::Bool),
        vec(vec(any::<u8>(), 0..9), 0..20).prop_map(|v| Array::String(v.iter().collect())),
        vec(any::<u64>(), 0..20).prop_map(Array::U64),
        vec(any::<i64>(), 0..20).prop_map(Array::I64),
        vec(-1e200_f64..1e200, 0..20).prop_map(Array::F64),
    ]
    .prop_map(Value::Array)
}

/// A tensor's format, rows and blocks a row.
fn tensor() -> impl Strategy<Value = (WeightFormat, Vec<usize>)> {
    let format = prop::sample::select(WeightFormat::ALL);
    (format, vec(1_usize..4, 0..4), 1_usize..4).prop_map(|(format, mut shape, blocks)| {
        shape.push(blocks * format.block().elements);
        (format, shape)
    })
}

proptest! {
    #[test]
    fn gguf_round_trip(
        big in any::<bool>(),
        alignment in 0_u32..10,
        values in vec(prop_oneof![scalar(), array()], 0..12),
        shapes in vec(tensor(), 0..6),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut metadata: Vec<(String, Value)> = values
            .into_iter()
            .enumerate()
            .map(|(i, value)| (format!("key.{i}"), value))
            .collect();
        metadata.push(("general.alignment".into(), Value::U32(1 << alignment)));
        let tensors: Vec<Tensor> = shapes
            .iter()
            .enumerate()
            .map(|(i, (format, shape))| Tensor::new(&format!("t.{i}"), shape, *format))
            .collect();
        let gguf = open(&write(order, &metadata, &tensors)).unwrap();
        let read: Vec<(String, Value)> = gguf
            .metadata
            .iter()
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        prop_assert_eq!(read, metadata);
        prop_assert_eq!(gguf.tensors.tensors().len(), tensors.len());
        for tensor in &tensors {
            prop_assert_eq!(read_all(&gguf.tensors, tensor), tensor.bytes.clone());
        }
    }

    #[test]
    fn any_range_of_rows_is_that_part_of_the_tensor(
        big in any::<bool>(),
        (format, shape) in tensor(),
        a in 0_usize..70,
        b in 0_usize..70,
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let tensor = Tensor::new("t", &shape, format);
        let gguf = open(&write(order, &[], std::slice::from_ref(&tensor))).unwrap();
        let info = gguf.tensors.tensor("t").unwrap();
        let read = block_on(gguf.tensors.read_rows(info, a..b));
        if a <= b && b <= info.n_rows() {
            let row = info.row_bytes().unwrap();
            prop_assert_eq!(&*read.unwrap(), &tensor.bytes[a * row..b * row]);
        } else {
            prop_assert!(read.is_err());
        }
    }

    #[test]
    fn any_bytes_after_a_good_start_are_an_error_or_a_model(
        counts in any::<[u8; 2]>(),
        rest in vec(any::<u8>(), 0..400),
    ) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        for count in counts {
            bytes.extend_from_slice(&u64::from(count % 4).to_le_bytes());
        }
        bytes.extend_from_slice(&rest);
        if let Err(error) = open(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
