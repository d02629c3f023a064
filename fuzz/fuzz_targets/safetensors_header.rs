//! A safetensors header, after two bytes that say how many bytes of data follow it in the file.
//!
//! Whatever it says, it is refused with an error, or its tensors tile the data and can be read.

#![no_main]

use kvant_format::{BytesSource, TensorStore, block_on, safetensors};
use kvant_fuzz::bounded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((data_len, header)) = data.split_first_chunk::<2>() else {
        return;
    };
    let data_len = usize::from(u16::from_le_bytes(*data_len));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.resize(file.len() + data_len, 0);
    let len = file.len();
    let source = BytesSource::shared(file);
    match bounded(len, || block_on(safetensors::open(source))) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(store) => bounded(len, || tensors(&store, data_len)),
    }
});

/// Reads every tensor, in pieces.
fn tensors(store: &TensorStore, data_len: usize) {
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
        if info.format.known().is_some() {
            assert_eq!(bytes as u64, info.location.bytes);
        }
        total += info.location.bytes;
    }
    assert_eq!(total, data_len as u64);
}
