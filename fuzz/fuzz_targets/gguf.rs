//! A whole GGUF file.
//!
//! Whatever it says, it is refused with an error, or everything it describes can be read.

#![no_main]

use kvant_format::gguf::Value;
use kvant_format::{BytesSource, Gguf, block_on};
use kvant_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let source = BytesSource::shared(data.to_vec());
    match bounded(data.len(), || block_on(Gguf::open(source))) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(gguf) => {
            bounded(data.len(), || metadata(&gguf));
            bounded(data.len(), || tensors(&gguf, data.len()));
        }
    }
});

/// Asks for every entry as each type.
fn metadata(gguf: &Gguf) {
    let metadata = &gguf.metadata;
    for (key, value) in metadata.iter() {
        assert!(
            metadata
                .value(key)
                .is_some_and(|found| std::ptr::eq(found, value))
        );
        let as_u32 = metadata.get::<u32>(key);
        assert_eq!(
            as_u32.is_ok(),
            value.as_integer().is_some_and(|v| u32::try_from(v).is_ok())
        );
        let as_text = metadata.get::<&str>(key);
        assert_eq!(
            as_text.is_ok(),
            matches!(value, Value::String(bytes) if std::str::from_utf8(bytes).is_ok())
        );
        let _ = metadata.get::<f32>(key);
        let _ = metadata.get::<bool>(key);
        let _ = metadata.get::<Vec<u32>>(key);
        let _ = metadata.get::<Vec<&str>>(key);
        let _ = metadata.per_layer::<u32>(key, 3);
        let _ = value.to_string();
    }
}

/// Reads every tensor, in pieces.
fn tensors(gguf: &Gguf, len: usize) {
    let store = &gguf.tensors;
    let mut total = 0;
    for info in store.tensors() {
        assert_eq!(store.tensor(&info.name), Some(info));
        let mut bytes = 0;
        for rows in info.pieces() {
            match block_on(store.read_rows(info, rows)) {
                Ok(piece) => bytes += piece.len(),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(bytes as u64, info.location.bytes);
        assert_eq!(info.location.offset % gguf.alignment, 0);
        total += bytes;
    }
    // Tensors do not share bytes.
    assert!(total <= len);
}
