//! Hostile safetensors files, one idea each.

use std::sync::MutexGuard;

use kvant_format::safetensors::{self, SafeTensorsError};
use kvant_format::{BytesSource, TensorStore, block_on};

use crate::{bounded, measuring, read_everything};

/// A file of this header and `data` bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0x5a);
    bytes
}

fn open(bytes: Vec<u8>) -> Result<TensorStore, SafeTensorsError> {
    open_in_turn(&measuring(), bytes)
}

fn open_in_turn(
    turn: &MutexGuard<'_, ()>,
    bytes: Vec<u8>,
) -> Result<TensorStore, SafeTensorsError> {
    let len = bytes.len();
    let source = BytesSource::shared(bytes);
    let outcome = bounded(turn, len, || block_on(safetensors::open(source)));
    if let Ok(store) = &outcome {
        read_everything(store, len);
    }
    outcome
}

#[track_caller]
fn refused(bytes: Vec<u8>, expected: &str) {
    let error = open(bytes).expect_err("a hostile file").to_string();
    assert!(
        error.contains(expected),
        "{error}\ndoes not say: {expected}"
    );
}

const PLAIN: &str = r#"{"__metadata__":{"format":"pt"},
    "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},
    "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
    "scalar":{"data_offsets":[20,22],"shape":[],"dtype":"F16"}}   "#;

#[test]
fn plain_file() {
    let store = open(file(PLAIN, 22)).unwrap();
    assert_eq!(store.tensor("b").unwrap().shape, [2, 3]);
    assert_eq!(store.tensor("scalar").unwrap().n_rows(), 1);
    assert!(store.tensor("__metadata__").is_none());
    assert_eq!(open(file("{}", 0)).unwrap().tensors().len(), 0);
}

#[test]
fn cut_anywhere() {
    let whole = file(PLAIN, 22);
    for len in 0..whole.len() {
        let says = open(whole[..len].to_vec()).unwrap_err().to_string();
        assert!(says.contains("download it again"), "cut at {len}: {says}");
    }
}

#[test]
fn any_byte_changed() {
    let whole = file(PLAIN, 22);
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            let _ = open(changed);
        }
    }
}

#[test]
fn header_lengths() {
    let with = |length: u64| {
        let mut bytes = file(PLAIN, 22);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    refused(
        with(u64::MAX),
        "the header length is 18446744073709551615, more than 100000000",
    );
    refused(with(100_000_001), "more than 100000000");
    refused(
        with(99_999_999),
        "bytes short: the header ends at byte 100000007",
    );
    refused(with(0), "header, byte 8 of the file");
    refused(with(10), "header, byte 17 of the file: EOF");
}

#[test]
fn headers_that_are_not_what_they_should_be() {
    for (header, says) in [
        ("", "EOF while parsing"),
        ("[]", "expected an object of tensor descriptions"),
        (
            "{\"a\":1}",
            "expected an object with dtype, shape and data_offsets",
        ),
        ("{\"a\":{}}", "missing field `dtype`"),
        (
            r#"{"a":{"dtype":"F32","data_offsets":[0,4]}}"#,
            "missing field `shape`",
        ),
        (
            r#"{"a":{"dtype":"F32","shape":[1]}}"#,
            "missing field `data_offsets`",
        ),
        (
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}"#,
            "invalid length 1",
        ),
        (
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}"#,
            "trailing",
        ),
        (
            r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
            "invalid value",
        ),
        (
            r#"{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}"#,
            "invalid type",
        ),
        (
            r#"{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            "dtype occurs twice",
        ),
        ("{} x", "trailing characters"),
    ] {
        refused(file(header, 4), says);
    }
}

#[test]
fn lengths_and_places() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let case = |dtype: &str, shape: &str, offsets: &str, says: &str| {
        refused(file(&one(dtype, shape, offsets), 16), says);
    };
    case(
        "F32",
        "[4]",
        "[0,15]",
        "takes 16 bytes; its offsets 0..15 do not",
    );
    case("F32", "[4]", "[16,0]", "its offsets 16..0 do not");
    case("F32", "[3]", "[0,12]", "4 bytes follow the last tensor");
    case(
        "F32",
        "[3]",
        "[4,16]",
        "tensor t starts at byte 4 of the data; 0 is expected",
    );
    case(
        "F32",
        "[5]",
        "[0,20]",
        "4 bytes short: tensor t ends at byte",
    );
    case(
        "F32",
        "[4294967296,4294967296]",
        "[0,16]",
        "more elements than can be addressed",
    );
    case(
        "F32",
        "[18446744073709551615]",
        "[0,16]",
        "more elements than can be addressed",
    );
    case(
        "F32",
        "[0,4294967296,4294967296]",
        "[0,0]",
        "more elements than can be addressed",
    );
    case(
        "F32",
        "[4]",
        "[18446744073709551599,18446744073709551615]",
        "do not",
    );
    let many = format!("[{}]", vec!["1"; 17].join(","));
    case("F32", &many, "[0,16]", "an array of at most 16 dimensions");
    let long = "F".repeat(33);
    case(&long, "[4]", "[0,16]", "the dtype's name is too long");
    let empty = open(file(&one("F32", "[0,4]", "[0,0]"), 0)).unwrap();
    assert_eq!(empty.tensor("t").unwrap().pieces().count(), 0);
}

#[test]
fn names_twice_and_tensors_inside_each_other() {
    let two = |second: &str, offsets: &str| {
        format!(
            r#"{{"t":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},
                "{second}":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}"#
        )
    };
    refused(file(&two("t", "[8,16]"), 16), "tensor t occurs twice");
    refused(
        file(&two("u", "[4,12]"), 16),
        "tensor u starts at byte 4 of the data; 8 is expected",
    );
    refused(
        file(&two("u", "[0,8]"), 8),
        "starts at byte 0 of the data; 8 is expected",
    );
    assert!(open(file(&two("u", "[8,16]"), 16)).is_ok());
}

#[test]
fn other_dtypes_are_an_error_only_when_used() {
    let header = r#"{"q":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]},
        "n":{"dtype":"NEW","shape":[7],"data_offsets":[4,8]},
        "t":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#;
    let store = open(file(header, 12)).unwrap();
    for (name, dtype) in [("q", "F8_E4M3"), ("n", "NEW")] {
        let info = store.tensor(name).unwrap();
        let error = block_on(store.read_rows(info, 0..1))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            format!("tensor {name}: dtype {dtype} is not supported; F32, F16 and BF16 are")
        );
    }
    assert!(block_on(store.read(store.tensor("t").unwrap())).is_ok());
}

#[test]
fn expensive_headers_stay_within_the_bound() {
    // Taken before the inputs are made, which are large.
    let turn = measuring();
    let n = 8 << 20;
    let padded =
        |open: &str, middle: String, close: &str| file(&format!("{open}{middle}{close}"), 0);
    let text = || "\\u0041".repeat(n / 6);
    for bytes in [
        padded("{\"", text(), "\":{}}"),
        padded("{\"a\":{\"dtype\":\"", text(), "\"}}"),
        padded("{\"a\":{\"shape\":[", "1,".repeat(n / 2), "1]}}"),
        padded("{\"__metadata__\":", "[".repeat(n), ""),
        padded("{\"a\":{\"other\":", "[".repeat(n), ""),
        padded("{\"__metadata__\":[", "[],".repeat(n / 3), "1]}"),
    ] {
        let _ = open_in_turn(&turn, bytes);
    }
    // The shortest tensors, as many as are accepted, and one more.
    let many = |n: usize| {
        let entries: Vec<String> = (0..n)
            .map(|i| format!(r#""{i:x}":{{"dtype":"X","shape":[],"data_offsets":[0,0]}}"#))
            .collect();
        file(&format!("{{{}}}", entries.join(",")), 0)
    };
    assert!(open_in_turn(&turn, many(1 << 17)).is_ok());
    let error = open_in_turn(&turn, many((1 << 17) + 1)).unwrap_err();
    assert!(matches!(error, SafeTensorsError::TooManyTensors));
}
