//! Hostile GGUF files, one idea each.

use kvant_format::gguf::GgufError;
use kvant_format::{Gguf, MetadataError, TensorFormat};

use crate::raw::Raw;
use crate::{measuring, open_gguf};

const F32: u32 = 0;
const Q4_0: u32 = 2;

fn open(raw: Raw) -> Result<Gguf, GgufError> {
    open_gguf(&measuring(), raw.leak())
}

/// The error of opening `raw`, which must say `expected`.
#[track_caller]
fn refused(raw: Raw, expected: &str) {
    let error = open(raw).expect_err("a hostile file").to_string();
    assert!(
        error.contains(expected),
        "{error}\ndoes not say: {expected}"
    );
}

#[test]
fn counts_beyond_the_file() {
    refused(
        Raw::new(u64::MAX, 0),
        "byte 8: the tensor count is 18446744073709551615; at most",
    );
    refused(
        Raw::new(100, 0),
        "byte 16: the tensor count needs 3300 bytes",
    );
    refused(
        Raw::new(0, u64::MAX),
        "byte 16: the metadata count is 18446744073709551615; at most",
    );
    refused(
        Raw::new(0, 1000),
        "byte 24: the metadata count needs 14000 bytes",
    );
}

#[test]
fn gigabyte_strings_in_a_tiny_file() {
    let gib = 1 << 30;
    let tail = [0; 64];
    refused(
        Raw::new(0, 1).u64(gib).bytes(&tail),
        "byte 24: metadata key 0 is 1073741824 bytes long; at most 65535",
    );
    refused(
        Raw::new(0, 1).entry("k", 8).u64(gib).bytes(&tail),
        "the value of k needs 1073741824 bytes, but the file ends 1073741760 bytes too early",
    );
    refused(
        Raw::new(0, 1).entry("k", 8).u64(u64::MAX).bytes(&tail),
        "the value of k needs 18446744073709551615 bytes",
    );
    refused(
        Raw::new(1, 0).u64(gib).bytes(&tail),
        "the name of tensor 0 is 1073741824 bytes long; at most 65535",
    );
    // The lengths inside an array are as untrusted as any.
    refused(
        Raw::new(0, 1)
            .entry("k", 9)
            .u32(8)
            .u64(2)
            .string("a")
            .u64(gib)
            .bytes(&tail),
        "the value of k needs 1073741824 bytes",
    );
}

#[test]
fn array_counts_beyond_the_file() {
    for element_type in [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12] {
        for count in [1 << 20, 1 << 40, u64::MAX / 8 + 1, u64::MAX] {
            let array = Raw::new(0, 1).entry("k", 9).u32(element_type).u64(count);
            refused(array.bytes(&[0; 64]), "the value of k needs");
        }
    }
}

#[test]
fn array_type_confusion() {
    let array = |element_type: u32| Raw::new(0, 1).entry("k", 9).u32(element_type).u64(1);
    refused(array(9).u32(4).u64(1).u32(7), "is an array of arrays");
    refused(
        array(13).u64(1),
        "the value type of k is 13; types 0 to 12 are defined",
    );
    refused(
        Raw::new(0, 1).entry("k", 13).u64(1),
        "the value type of k is 13",
    );
    // A vocabulary that is not an array of strings loads, but is not taken for one.
    let gguf = open(
        Raw::new(0, 2)
            .entry("tokenizer.ggml.tokens", 9)
            .u32(4)
            .u64(2)
            .u32(1)
            .u32(2)
            .entry("n", 9)
            .u32(8)
            .u64(1)
            .string("7"),
    )
    .unwrap();
    let error = gguf.metadata.get::<Vec<&str>>("tokenizer.ggml.tokens");
    assert_eq!(
        error.unwrap_err().to_string(),
        "metadata key tokenizer.ggml.tokens is of type array of u32; array of string is expected"
    );
    assert!(matches!(
        gguf.metadata.get::<Vec<u32>>("n"),
        Err(MetadataError::Type { .. })
    ));
}

#[test]
fn truth_values_are_0_or_1() {
    refused(
        Raw::new(0, 1).entry("k", 7).bytes(&[2]),
        "holds 2 as a truth value",
    );
    refused(
        Raw::new(0, 1)
            .entry("k", 9)
            .u32(7)
            .u64(3)
            .bytes(&[1, 0, 255]),
        "byte 51: the value of k holds 255 as a truth value",
    );
}

#[test]
fn keys_and_names() {
    let twice = Raw::new(0, 2)
        .entry("k", 0)
        .bytes(&[1])
        .entry("k", 0)
        .bytes(&[1]);
    refused(twice, "byte 38: metadata key 1 repeats k");
    refused(
        Raw::new(0, 1).entry("", 4).u64(1),
        "metadata key 0 is empty",
    );
    refused(
        Raw::new(0, 1).u64(2).bytes(b"\xff\xfe").u32(4).u32(1),
        "metadata key 0 is not UTF-8",
    );
    refused(
        Raw::new(1, 0).tensor("", &[1], F32, 0).data(4),
        "the name of tensor 0 is empty",
    );
    refused(
        Raw::new(2, 0)
            .tensor("t", &[8], F32, 0)
            .tensor("t", &[8], F32, 32)
            .data(64),
        "tensor t occurs twice",
    );
}

#[test]
fn alignment() {
    let with = |alignment: u32, offset: u64| {
        Raw::new(1, 1)
            .entry("general.alignment", 4)
            .u32(alignment)
            .tensor("t", &[1], F32, offset)
            .data(64)
    };
    refused(
        with(0, 0),
        "general.alignment is 0; a power of two is expected",
    );
    refused(
        with(48, 0),
        "general.alignment is 48; a power of two is expected",
    );
    refused(
        with(u32::MAX, 0),
        "general.alignment is 4294967295; a power of two",
    );
    // The data would start past the end.
    refused(
        with(1 << 31, 0),
        "bytes short: tensor t ends at byte 2147483652 of 160",
    );
    refused(with(1 << 31, 1 << 63), "bytes short: tensor t ends at byte");
    refused(
        with(32, 8),
        "the data offset of tensor t is 8, not a multiple of the alignment 32",
    );
    let text = Raw::new(0, 1).entry("general.alignment", 8).string("32");
    refused(
        text,
        "metadata key general.alignment is of type string; u32 is expected",
    );
}

#[test]
fn dimensions_that_overflow() {
    let with = |dims: &[u64]| Raw::new(1, 0).tensor("t", dims, F32, 0).data(1024);
    for dims in [
        &[1 << 32, 1 << 32][..],
        &[u64::MAX],
        &[1 << 31, 1 << 31, 1 << 31, 1 << 31],
        &[1 << 62],
        &[1 << 16, 1 << 16, 1 << 16, (1 << 16) + 1],
    ] {
        refused(with(dims), "more elements than can be addressed");
    }
    // 2^61 elements can be counted, their bytes cannot.
    refused(with(&[1 << 61]), "more elements than can be addressed");
    refused(with(&[1 << 40]), "bytes short: tensor t");
}

#[test]
fn dimensions_of_zero_and_too_many() {
    let with = |dims: &[u64]| Raw::new(1, 0).tensor("t", dims, F32, 0).data(1024);
    refused(with(&[0]), "are [0]; none may be 0");
    refused(with(&[32, 0, 4]), "are [32, 0, 4]; none may be 0");
    refused(with(&[0, u64::MAX]), "none may be 0");
    refused(
        with(&[]),
        "the dimension count of tensor t is 0; 1 to 4 are accepted",
    );
    refused(with(&[1; 5]), "the dimension count of tensor t is 5");
    let huge = Raw::new(1, 0).string("t").u32(u32::MAX).data(1024);
    refused(huge, "the dimension count of tensor t is 4294967295");
}

#[test]
fn rows_that_are_not_whole_blocks() {
    // 4 rows of 8 are as many elements as a block, but no row is one.
    refused(
        Raw::new(1, 0).tensor("t", &[8, 4], Q4_0, 0).data(1024),
        "the dimensions of tensor t are [8, 4]; rows of Q4_0 are multiples of 32 elements",
    );
}

#[test]
fn tensors_outside_the_file() {
    refused(
        Raw::new(1, 0).tensor("t", &[8], F32, 0).data(31),
        "the file is 1 bytes short: tensor t ends at byte 96 of 95",
    );
    refused(
        Raw::new(1, 0).tensor("t", &[8], F32, 1 << 40).data(64),
        "bytes short",
    );
    refused(
        Raw::new(1, 0)
            .tensor("t", &[8], F32, u64::MAX - 31)
            .data(64),
        "bytes short: tensor t ends at byte 18446744073709551615",
    );
}

#[test]
fn tensors_inside_each_other() {
    let two = |offset: u64| {
        Raw::new(2, 0)
            .tensor("a", &[16], F32, 0)
            .tensor("b", &[16], F32, offset)
            .data(256)
    };
    refused(
        two(0),
        "the data offset of tensor b is 0, inside the data of tensor a",
    );
    refused(
        two(32),
        "the data offset of tensor b is 32, inside the data of tensor a",
    );
    assert!(open(two(64)).is_ok());
    // A gap is waste, not harm.
    assert!(open(two(128)).is_ok());
    let reversed = Raw::new(2, 0)
        .tensor("a", &[16], F32, 64)
        .tensor("b", &[16], F32, 0)
        .data(256);
    assert!(open(reversed).is_ok());
}

#[test]
fn retired_and_unknown_types_are_an_error_only_when_used() {
    for (id, says) in [
        (
            4,
            "GGML type 4 (Q4_2) was withdrawn; quantise the original model again to Q4_0",
        ),
        (31, "GGML type 31 (Q4_0_4_4) was withdrawn"),
        (36, "GGML type 36 (IQ4_NL_4_4) was withdrawn"),
        (77, "GGML type 77 is not known"),
        (u32::MAX, "GGML type 4294967295 is not known"),
    ] {
        let gguf = open(
            Raw::new(2, 0)
                .tensor("odd", &[32], id, 0)
                .tensor("plain", &[8], F32, 32)
                .data(64),
        )
        .unwrap();
        let odd = gguf.tensors.tensor("odd").unwrap();
        assert!(matches!(odd.format, TensorFormat::Unsupported(_)));
        assert_eq!(odd.pieces().count(), 0);
        let error = kvant_format::block_on(gguf.tensors.read_rows(odd, 0..1));
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("tensor odd") && error.contains(says),
            "{error}"
        );
        let plain = gguf.tensors.tensor("plain").unwrap();
        assert!(kvant_format::block_on(gguf.tensors.read(plain)).is_ok());
    }
}

#[test]
fn other_files() {
    for (bytes, says) in [
        (&b""[..], "it is empty"),
        (b"<!DOCTYPE html><html>", "web page"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "git lfs pull",
        ),
        (b"PK\x03\x04..........", "zip archive"),
        (b"tjgg\x01\0\0\0", "older than GGUF"),
        (b"lmgg\x01\0\0\0", "older than GGUF"),
        (b"fmgg\x01\0\0\0", "not a GGUF file"),
        (b"\x40\0\0\0\0\0\0\0{\"__me", "safetensors"),
        (b"GGUX\x03\0\0\0", "not a GGUF file"),
        (
            b"GG",
            "the magic number needs 4 bytes, but the file ends 2 bytes too early",
        ),
    ] {
        refused(Raw(bytes.to_vec()), says);
    }
    for version in [0, 1, 4, 0x0001_0000, 0x0400_0000, u32::MAX] {
        let mut raw = Raw::new(0, 0);
        raw.0[4..8].copy_from_slice(&u32::to_le_bytes(version));
        refused(raw, "is not supported; versions 2 and 3 are");
    }
}

#[test]
fn the_dearest_entries_stay_within_the_bound() {
    // Taken before the inputs are made, which are large.
    let turn = measuring();
    let open = |raw: Raw| open_gguf(&turn, raw.leak());
    // The shortest entries of each kind, as many as are accepted.
    let n = 1 << 16;
    let entries = (0..n).fold(Raw::new(0, n), |raw, i| {
        raw.entry(&format!("{i:x}"), 8).u64(1).bytes(b"x")
    });
    assert!(open(entries).is_ok());
    let n = 1 << 17;
    let tensors = (0..n).fold(Raw::new(n, 0), |raw, i| {
        raw.tensor(&format!("{i:x}"), &[1], 24, i * 32)
    });
    assert!(open(tensors.data(n as usize * 32)).is_ok());
    // Short strings, where the index costs most, and long ones, where growth does.
    for (count, text) in [(3 << 20, ""), (1 << 20, "ab"), (200, &*"x".repeat(100_000))] {
        let array = Raw::new(0, 1).entry("k", 9).u32(8).u64(count);
        assert!(open((0..count).fold(array, |raw, _| raw.string(text))).is_ok());
    }
}
