//! The decoders against vectors written by the public `gguf` package, equal to the bit.
//!
//! `tests/fixtures/quant/generate.py` writes them. The package cannot decode Q8_1, Q8_K, Q1_0,
//! Q2_0, F64 and the integers; those are checked against formulas in `decode_formulas.rs`.

use kvant_quant::{WeightFormat, decode};

macro_rules! goldens {
    ($($format:ident: $file:literal),+ $(,)?) => {
        &[$((
            WeightFormat::$format,
            include_bytes!(concat!("../../../tests/fixtures/quant/decode/", $file, ".bin")),
        )),+]
    };
}

const GOLDENS: &[(WeightFormat, &[u8])] = goldens![
    F32: "f32", F16: "f16", BF16: "bf16",
    Q4_0: "q4_0", Q4_1: "q4_1", Q5_0: "q5_0", Q5_1: "q5_1", Q8_0: "q8_0",
    Q2_K: "q2_k", Q3_K: "q3_k", Q4_K: "q4_k", Q5_K: "q5_k", Q6_K: "q6_k",
    IQ2_XXS: "iq2_xxs", IQ2_XS: "iq2_xs", IQ2_S: "iq2_s", IQ3_XXS: "iq3_xxs", IQ3_S: "iq3_s",
    IQ1_S: "iq1_s", IQ1_M: "iq1_m", IQ4_NL: "iq4_nl", IQ4_XS: "iq4_xs",
    TQ1_0: "tq1_0", TQ2_0: "tq2_0", MXFP4: "mxfp4", NVFP4: "nvfp4",
];

#[test]
fn decoding_equals_the_package_to_the_bit() {
    for &(format, golden) in GOLDENS {
        let block = format.block();
        let n_blocks = golden.len() / (block.bytes + 4 * block.elements);
        let (blocks, expected) = golden.split_at(n_blocks * block.bytes);
        assert!(n_blocks >= 4, "{format}");
        let mut out = vec![f32::NAN; n_blocks * block.elements];
        decode(format, blocks, &mut out).expect("golden blocks decode");
        for (i, (actual, expected)) in out.iter().zip(expected.as_chunks().0).enumerate() {
            let expected = f32::from_le_bytes(*expected);
            assert_eq!(
                actual.to_bits(),
                expected.to_bits(),
                "{format} element {i}: {actual} is not {expected}"
            );
        }
    }
}
