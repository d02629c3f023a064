//! GGUF files are read as they were written, in both byte orders, whole and split.

use std::path::Path;
use std::sync::Arc;

use kvant_format::gguf::Value;
use kvant_format::{
    ByteOrder, BytesSource, Checkpoint, FileSource, Gguf, GgufError, Source, block_on,
};
use kvant_quant::WeightFormat;

use crate::common::{Tensor, every_value, open, read_all, real_model, write};

#[test]
fn every_value_type_and_weight_format_round_trips_in_both_orders() {
    let tensors: Vec<Tensor> = WeightFormat::ALL
        .iter()
        .map(|&format| Tensor::new(format.name(), &[2, 3, 256], format))
        .collect();
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let gguf = open(&write(order, &every_value(), &tensors)).unwrap();
        assert_eq!(gguf.byte_order(), order);
        assert_eq!(gguf.version, 3);
        let read: Vec<(String, Value)> = gguf
            .metadata
            .iter()
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        assert_eq!(read, every_value());
        for tensor in &tensors {
            assert_eq!(read_all(&gguf.tensors, tensor), tensor.bytes);
        }
    }
}

#[test]
fn version_2_is_version_3_by_another_number() {
    let tensor = Tensor::new("t", &[3, 32], WeightFormat::Q8_0);
    let mut bytes = write(
        ByteOrder::Little,
        &every_value(),
        std::slice::from_ref(&tensor),
    );
    bytes[4] = 2;
    let gguf = open(&bytes).unwrap();
    assert_eq!(gguf.version, 2);
    assert_eq!(read_all(&gguf.tensors, &tensor), tensor.bytes);
}

#[test]
fn alignment_in_the_file_is_obeyed() {
    for alignment in [1_u32, 8, 64, 4096] {
        let metadata = [("general.alignment".to_owned(), Value::U32(alignment))];
        let tensors = [
            Tensor::new("a", &[3, 1], WeightFormat::F16),
            Tensor::new("b", &[7], WeightFormat::I8),
            Tensor::new("c", &[2, 32], WeightFormat::Q4_0),
        ];
        let gguf = open(&write(ByteOrder::Little, &metadata, &tensors)).unwrap();
        assert_eq!(gguf.alignment, u64::from(alignment));
        for tensor in &tensors {
            let info = gguf.tensors.tensor(&tensor.name).unwrap();
            assert_eq!(info.location.offset % u64::from(alignment), 0);
            assert_eq!(read_all(&gguf.tensors, tensor), tensor.bytes);
        }
    }
}

/// A three-part model: metadata in the first part, four tensors spread over the parts.
fn parts() -> (Vec<Vec<u8>>, Vec<Tensor>) {
    let tensors: Vec<Tensor> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| Tensor::new(name, &[4, 32], WeightFormat::Q4_1))
        .collect();
    let shards = [&tensors[..2], &tensors[2..3], &tensors[3..]];
    let files = shards.iter().enumerate().map(|(number, tensors)| {
        let mut metadata = vec![
            ("split.no".to_owned(), Value::U16(number as u16)),
            ("split.count".to_owned(), Value::U16(3)),
            ("split.tensors.count".to_owned(), Value::I32(4)),
        ];
        if number == 0 {
            metadata.extend(every_value());
        }
        // The parts may even differ in byte order.
        let order = [ByteOrder::Little, ByteOrder::Big][number % 2];
        write(order, &metadata, tensors)
    });
    (files.collect(), tensors)
}

fn sources(files: &[Vec<u8>]) -> Vec<Arc<dyn Source>> {
    let source = |file: &Vec<u8>| BytesSource::shared(file.clone());
    files.iter().map(source).collect()
}

#[test]
fn split_files_are_one_model() {
    let (files, tensors) = parts();
    let gguf = block_on(Gguf::open_parts(sources(&files))).unwrap();
    assert_eq!(gguf.tensors.tensors().len(), 4);
    assert_eq!(gguf.metadata.get::<u8>("test.value.0"), Ok(200));
    for tensor in &tensors {
        assert_eq!(read_all(&gguf.tensors, tensor), tensor.bytes);
    }
}

#[test]
fn split_files_out_of_order_or_incomplete_are_refused() {
    let (files, _) = parts();
    let open = |order: &[usize]| {
        let files: Vec<Vec<u8>> = order.iter().map(|&i| files[i].clone()).collect();
        block_on(Gguf::open_parts(sources(&files)))
            .unwrap_err()
            .to_string()
    };
    assert!(open(&[0, 2, 1]).contains("split.no is 2; 1 is expected"));
    assert!(open(&[0, 1]).contains("split.count is 3; 2 is expected"));
    assert!(open(&[1]).contains("part 2 of a model split into 3 files"));
    assert!(open(&[0, 0, 2]).contains("split.no is 0; 1 is expected"));
}

#[test]
fn split_files_are_found_by_the_path_of_any() {
    let (files, tensors) = parts();
    let folder = tempfile::tempdir().unwrap();
    let path = |part: usize| folder.path().join(format!("m-{part:05}-of-00003.gguf"));
    for (index, file) in files.iter().enumerate() {
        std::fs::write(path(index + 1), file).unwrap();
    }
    for part in 1..=3 {
        let gguf = Gguf::open_path(&path(part)).unwrap();
        for tensor in &tensors {
            assert_eq!(read_all(&gguf.tensors, tensor), tensor.bytes);
        }
    }
    std::fs::remove_file(path(2)).unwrap();
    let error = Gguf::open_path(&path(1)).unwrap_err();
    assert!(matches!(
        error,
        GgufError::MissingPart {
            part: 2,
            count: 3,
            ..
        }
    ));
    assert!(error.to_string().contains("m-00002-of-00003.gguf"));
}

fn check_real_model(file: &str, n_tensors: usize, n_vocabulary: usize, architecture: &str) {
    let path = real_model(file);
    let Checkpoint::Gguf(mapped) = Checkpoint::open_path(&path).unwrap() else {
        panic!("a GGUF file is expected");
    };
    assert_eq!(mapped.tensors.tensors().len(), n_tensors);
    assert_eq!(
        mapped.metadata.get("general.architecture"),
        Ok(architecture)
    );
    let tokens: Vec<&str> = mapped.metadata.get("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len(), n_vocabulary);

    // Windows smaller than the header give what the whole map gives.
    let read = block_on(Gguf::open(FileSource::open(&path).unwrap().shared())).unwrap();
    assert_eq!(read.metadata, mapped.metadata);
    assert_eq!(read.tensors.tensors(), mapped.tensors.tensors());

    for info in mapped.tensors.tensors() {
        for rows in info.pieces() {
            let a = block_on(mapped.tensors.read_rows(info, rows.clone())).unwrap();
            let b = block_on(read.tensors.read_rows(info, rows.clone())).unwrap();
            assert!(a == b, "{} {rows:?}", info.name);
            mapped.tensors.release_rows(info, rows);
        }
    }
    assert_eq!(mapped.tensors.file_bytes(), file_len(&path));
}

fn file_len(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn smollm2_opens() {
    check_real_model("SmolLM2-135M-Instruct.Q4_1.gguf", 272, 49_152, "llama");
}

#[test]
fn gemma3_opens() {
    check_real_model("gemma-3-270m-q4_k_m.gguf", 236, 262_144, "gemma3");
}
