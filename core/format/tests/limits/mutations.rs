//! Files cut at every place and changed at every byte.

use std::sync::Arc;

use kvant_format::gguf::write::GgufBuilder;
use kvant_format::gguf::{Array, Value};
use kvant_format::{
    ByteOrder, BytesSource, Gguf, GgufError, ReadFuture, Source, SourceError, block_on,
};
use kvant_quant::WeightFormat;

use crate::{bounded, measuring, open_gguf, read_everything};

/// A small file with metadata of every type and tensors of several formats.
fn small_file(order: ByteOrder) -> Vec<u8> {
    let mut builder = GgufBuilder::new(order);
    for (i, value) in [
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
        Value::Array(Array::U8(vec![1, 2, 3])),
        Value::Array(Array::I8(vec![-1, 0, 1])),
        Value::Array(Array::U16(vec![1, 65_535])),
        Value::Array(Array::I16(vec![-32_768, 5])),
        Value::Array(Array::U32(vec![7; 5])),
        Value::Array(Array::I32(vec![-7; 3])),
        Value::Array(Array::F32(vec![0.25, -0.5])),
        Value::Array(Array::Bool(vec![true, false, true])),
        Value::Array(Array::String(["", "a", "bc"].iter().collect())),
        Value::Array(Array::U64(vec![u64::MAX])),
        Value::Array(Array::I64(vec![i64::MIN, 0])),
        Value::Array(Array::F64(vec![])),
    ]
    .into_iter()
    .enumerate()
    {
        builder.metadata(&format!("v.{i}"), value);
    }
    builder.metadata("general.alignment", Value::U32(32));
    let tensors = [
        ("token_embd.weight", &[5, 64][..], WeightFormat::Q4_0),
        ("output_norm.weight", &[64], WeightFormat::F32),
        ("attn_q.weight", &[2, 256], WeightFormat::Q6_K),
        ("experts.weight", &[2, 3, 32], WeightFormat::F16),
    ];
    for (name, shape, format) in tensors {
        builder.tensor(name, shape, format);
    }
    let mut writer = builder.start(Vec::new()).unwrap();
    for (_, shape, format) in tensors {
        let n = format.bytes_for(shape.iter().product()).unwrap();
        writer.data(&vec![0x3c; n]).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_small_file_cut_anywhere_is_an_error_that_says_it_is_short() {
    let turn = measuring();
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let whole: &'static [u8] = small_file(order).leak();
        // The last tensor ends where the file does: its padding is empty.
        let data_end = block_on(Gguf::open(BytesSource::shared(whole)))
            .unwrap()
            .tensors
            .tensors()
            .iter()
            .map(|info| info.location.offset + info.location.bytes)
            .max();
        assert_eq!(data_end, Some(whole.len() as u64));
        for len in 1..whole.len() {
            let error = open_gguf(&turn, &whole[..len]).expect_err("a cut file");
            let says = error.to_string();
            assert!(
                says.contains("download it again") && says.contains("bytes "),
                "cut at {len}: {says}"
            );
        }
    }
}

#[test]
fn a_small_file_with_any_byte_changed_is_an_error_or_loads_as_it_says() {
    let turn = measuring();
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let whole = small_file(order);
        let header_len = block_on(Gguf::open(BytesSource::shared(whole.clone())))
            .unwrap()
            .data_start as usize;
        for at in 0..header_len {
            // One bit, and the values at which signs and lengths turn.
            let flips = (0..8).map(|bit| whole[at] ^ (1 << bit));
            for value in flips.chain([0, 1, 0x7f, 0x80, 0xff]) {
                let mut changed = whole.clone();
                changed[at] = value;
                let len = changed.len();
                let source = BytesSource::shared(changed);
                let outcome = bounded(&turn, len, || block_on(Gguf::open(source)));
                if let Ok(gguf) = outcome {
                    read_everything(&gguf.tensors, len);
                    for (key, shown) in gguf.metadata.iter() {
                        assert!(!key.is_empty() && shown.to_string().len() < 1000);
                    }
                }
            }
        }
    }
}

/// The first `len` bytes of another source, with one of them changed.
struct Damaged {
    whole: Arc<dyn Source>,
    len: u64,
    /// Which byte, and what to flip of it.
    flip: (u64, u8),
}

impl Source for Damaged {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: std::ops::Range<u64>) -> ReadFuture<'_> {
        if range.start > range.end || range.end > self.len {
            let (start, end, len) = (range.start, range.end, self.len);
            return Box::pin(std::future::ready(Err(SourceError::OutOfRange {
                start,
                end,
                len,
            })));
        }
        Box::pin(async move {
            let mut bytes = self.whole.read(range.clone()).await?;
            let (at, bits) = self.flip;
            if bits != 0 && range.contains(&at) {
                bytes.to_mut()[(at - range.start) as usize] ^= bits;
            }
            Ok(bytes)
        })
    }
}

/// The folder of real models, filled by `cargo xtask models`.
fn real_model() -> Arc<dyn Source> {
    let folder = std::env::var_os("KVANT_MODELS").map_or_else(
        || std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/models"),
        std::path::PathBuf::from,
    );
    let path = folder.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask models`, or set KVANT_MODELS to the folder that has it",
        path.display()
    );
    kvant_format::MapSource::open(&path).unwrap().shared()
}

#[test]
fn a_real_file_cut_at_a_thousand_places_is_an_error() {
    let turn = measuring();
    let whole = real_model();
    let data_start = block_on(Gguf::open(whole.clone())).unwrap().data_start;
    // Half of the cuts in the header, half in the data.
    let cuts = (0..500).map(|i| 1 + i * data_start / 500);
    let data_len = whole.len() - data_start;
    let cuts = cuts.chain((0..500).map(|i| data_start + i * data_len / 500));
    for len in cuts {
        let source = Arc::new(Damaged {
            whole: whole.clone(),
            len,
            flip: (0, 0),
        });
        let error = bounded(&turn, len as usize, || block_on(Gguf::open(source)));
        let says = error.expect_err("a cut file").to_string();
        assert!(says.contains("download it again"), "cut at {len}: {says}");
    }
}

#[test]
fn a_real_file_with_header_bytes_changed_is_an_error_or_loads() {
    let turn = measuring();
    let whole = real_model();
    let gguf = block_on(Gguf::open(whole.clone())).unwrap();
    // All of the parts that are not vocabulary: the first entries and the tensor descriptions.
    let descriptions = gguf.data_start.saturating_sub(16_000);
    for at in (0..1_500)
        .step_by(3)
        .chain((descriptions..gguf.data_start).step_by(31))
    {
        let source = Arc::new(Damaged {
            whole: whole.clone(),
            len: whole.len(),
            flip: (at, 1 << (at % 8)),
        });
        let outcome = bounded(&turn, whole.len() as usize, || block_on(Gguf::open(source)));
        if let Ok(gguf) = outcome {
            for info in gguf.tensors.tensors() {
                assert!(info.location.offset + info.location.bytes <= whole.len());
            }
        }
    }
}

#[test]
fn a_source_that_answers_with_too_little_is_an_error() {
    /// Gives one byte less than asked for.
    struct Short(Vec<u8>);
    impl Source for Short {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }
        fn read(&self, range: std::ops::Range<u64>) -> ReadFuture<'_> {
            let end = (range.end as usize).saturating_sub(1);
            let part = &self.0[range.start as usize..end.max(range.start as usize)];
            Box::pin(std::future::ready(Ok(part.into())))
        }
    }
    let source = Arc::new(Short(small_file(ByteOrder::Little)));
    let error = block_on(Gguf::open(source)).unwrap_err();
    assert!(matches!(
        error,
        GgufError::Source(SourceError::WrongLength { .. })
    ));
}
