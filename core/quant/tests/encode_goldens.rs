//! The encoders against the bytes of the public quantisers, and against signal-to-noise targets.
//!
//! `tests/fixtures/quant/generate.py` writes the vectors: with the `gguf` package where it can
//! encode, with llama.cpp's library (compiled without fused multiply-adds) for the others.

use kvant_quant::testing::Random;
use kvant_quant::{QuantError, WeightFormat, decode, encode};

macro_rules! goldens {
    ($($format:ident: $file:literal),+ $(,)?) => {
        &[$((
            WeightFormat::$format,
            include_bytes!(concat!("../../../tests/fixtures/quant/encode/", $file, ".bin")),
        )),+]
    };
}

const INPUT: &[u8] = include_bytes!("../../../tests/fixtures/quant/encode/input.bin");
const GOLDENS: &[(WeightFormat, &[u8])] = goldens![
    F32: "input", F16: "f16", BF16: "bf16",
    Q4_0: "q4_0", Q4_1: "q4_1", Q5_0: "q5_0", Q5_1: "q5_1", Q8_0: "q8_0",
    Q2_K: "q2_k", Q3_K: "q3_k", Q4_K: "q4_k", Q5_K: "q5_k", Q6_K: "q6_k",
    IQ4_NL: "iq4_nl", IQ4_XS: "iq4_xs", TQ1_0: "tq1_0", TQ2_0: "tq2_0", MXFP4: "mxfp4",
];

fn encoded(format: WeightFormat, values: &[f32]) -> Result<Vec<u8>, QuantError> {
    let mut out = vec![0xA5; values.len() / format.block().elements * format.block().bytes];
    encode(format, values, &mut out)?;
    Ok(out)
}

#[test]
fn encoding_equals_the_public_quantisers_byte_for_byte() {
    let mut values = vec![0.0; INPUT.len() / 4];
    decode(WeightFormat::F32, INPUT, &mut values).expect("whole floats");
    for &(format, golden) in GOLDENS {
        let bytes = encoded(format, &values).expect("finite values");
        assert_eq!(bytes.len(), golden.len(), "{format}");
        for (i, (actual, expected)) in bytes.iter().zip(golden).enumerate() {
            let (block, offset) = (i / format.block().bytes, i % format.block().bytes);
            assert_eq!(actual, expected, "{format} block {block} byte {offset}");
        }
    }
}

/// `Σ (x - x̂)² / Σ x²` of normal samples, at most 3 % above the published figure of the format.
#[test]
fn relative_error_of_normal_samples_meets_the_targets() {
    let targets = [
        (WeightFormat::Q4_0, 7.2e-3),
        (WeightFormat::Q4_1, 5.9e-3),
        (WeightFormat::Q4_K, 4.9e-3),
        (WeightFormat::Q5_0, 1.8e-3),
        (WeightFormat::Q5_1, 1.4e-3),
        (WeightFormat::Q6_K, 3.0e-4),
        (WeightFormat::Q8_0, 2.8e-5),
        (WeightFormat::MXFP4, 1.29e-2),
    ];
    let mut random = Random::new(20);
    let values: Vec<f32> = (0..16384).map(|_| 0.02 * random.normal()).collect();
    let mut errors = std::collections::HashMap::new();
    for &(format, _) in GOLDENS {
        let bytes = encoded(format, &values).expect("finite values");
        let mut decoded = vec![0.0; values.len()];
        decode(format, &bytes, &mut decoded).expect("whole blocks");
        let noise: f64 = values
            .iter()
            .zip(&decoded)
            .map(|(x, y)| f64::from(x - y).powi(2))
            .sum();
        let power: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
        errors.insert(format, noise / power);
    }
    for (format, target) in targets {
        assert!(
            errors[&format] < 1.03 * target,
            "{format} {}",
            errors[&format]
        );
    }
    let by_quality = [
        WeightFormat::F32,
        WeightFormat::F16,
        WeightFormat::BF16,
        WeightFormat::Q8_0,
        WeightFormat::Q6_K,
        WeightFormat::Q5_K,
        WeightFormat::Q4_K,
        WeightFormat::Q3_K,
        WeightFormat::Q2_K,
    ];
    for pair in by_quality.windows(2) {
        assert!(errors[&pair[0]] < errors[&pair[1]], "{pair:?}");
    }
    assert!(errors[&WeightFormat::IQ4_NL] < errors[&WeightFormat::Q4_0]);
    assert!(errors[&WeightFormat::IQ4_XS] < errors[&WeightFormat::Q4_0]);
}

/// What a format can hold exactly comes back as the same values.
#[test]
fn values_of_a_ternary_or_integer_grid_survive() {
    let mut random = Random::new(4);
    let ternary: Vec<f32> = (0..512).map(|_| random.below(3) as f32 - 1.0).collect();
    for format in [WeightFormat::TQ1_0, WeightFormat::TQ2_0, WeightFormat::Q8_0] {
        let bytes = encoded(format, &ternary).expect("finite values");
        let mut decoded = vec![0.0; ternary.len()];
        decode(format, &bytes, &mut decoded).expect("whole blocks");
        let largest = ternary.iter().zip(&decoded).map(|(x, y)| (x - y).abs());
        assert!(largest.fold(0.0, f32::max) < 1e-3, "{format}");
    }
}

#[test]
fn zeros_stay_zeros() {
    for &(format, _) in GOLDENS {
        let bytes = encoded(format, &[0.0; 512]).expect("finite values");
        let mut decoded = [f32::NAN; 512];
        decode(format, &bytes, &mut decoded).expect("whole blocks");
        assert_eq!(decoded, [0.0; 512], "{format}");
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    for &(format, _) in GOLDENS {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = [0.5; 1024];
            values[700] = bad;
            let index = 700;
            assert_eq!(
                encoded(format, &values),
                Err(QuantError::NonFiniteValue { format, index })
            );
        }
        let mut values = [0.5; 1024];
        values[700] = f32::MAX;
        let block = 700 / format.block().elements;
        match format {
            WeightFormat::F32 | WeightFormat::MXFP4 => assert!(encoded(format, &values).is_ok()),
            _ => assert_eq!(
                encoded(format, &values),
                Err(QuantError::Overflow { format, block }),
                "{format}"
            ),
        }
    }
}

#[test]
fn formats_without_an_encoder_say_so() {
    let with_encoder: Vec<_> = GOLDENS.iter().map(|&(format, _)| format).collect();
    for &format in WeightFormat::ALL {
        let result = encoded(format, &[0.5; 512]);
        if with_encoder.contains(&format) {
            assert!(result.is_ok(), "{format}");
        } else {
            assert_eq!(result, Err(QuantError::NoEncoder { format }));
        }
    }
}

#[test]
fn lengths_must_agree() {
    let format = WeightFormat::Q4_0;
    assert_eq!(
        encode(format, &[0.0; 31], &mut [0; 18]),
        Err(QuantError::PartialElements {
            format,
            elements: 31
        })
    );
    assert_eq!(
        encode(format, &[0.0; 32], &mut [0; 19]),
        Err(QuantError::PartialBlock { format, bytes: 19 })
    );
    assert_eq!(
        encode(format, &[0.0; 64], &mut [0; 18]),
        Err(QuantError::LengthMismatch {
            format,
            bytes: 18,
            elements: 64
        })
    );
}
