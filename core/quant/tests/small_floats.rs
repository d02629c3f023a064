//! The small floats against their definitions, code by code.

use kvant_quant::small_float::*;
use proptest::prelude::*;

/// Value by the definition: sign, exponent of the given bias, mantissa; largest exponent ordinary.
fn by_definition(code: u8, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
    let sign = if code >> (exponent_bits + mantissa_bits) & 1 == 1 {
        -1.0
    } else {
        1.0
    };
    let exponent = i32::from(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    sign * if exponent == 0 {
        mantissa * 2f64.powi(1 - bias)
    } else {
        (1.0 + mantissa) * 2f64.powi(exponent - bias)
    }
}

/// The code whose value is nearest, a tie going to the even code, among those of `value`'s sign.
fn nearest_code(value: f32, finite: &[u8], decode: impl Fn(u8) -> f32) -> u8 {
    let distance = |&code: &u8| (f64::from(decode(code)) - f64::from(value)).abs();
    *finite
        .iter()
        .filter(|&&code| decode(code).is_sign_negative() == value.is_sign_negative())
        .min_by(|a, b| {
            distance(a)
                .total_cmp(&distance(b))
                .then((**a % 2).cmp(&(**b % 2)))
        })
        .expect("there are codes of both signs")
}

#[test]
fn e4m3_codes_decode_by_definition_and_encode_back() {
    for code in 0..=u8::MAX {
        let value = e4m3_decode(code);
        if code & 0x7F == 0x7F {
            assert!(value.is_nan());
            assert_eq!(e4m3_encode(value) & 0x7F, 0x7F);
            continue;
        }
        assert_eq!(f64::from(value), by_definition(code, 4, 3, 7));
        assert_eq!(e4m3_encode(value), code);
    }
}

#[test]
fn e5m2_codes_decode_by_definition_and_encode_back() {
    for code in 0..=u8::MAX {
        let value = e5m2_decode(code);
        match code & 0x7F {
            0x7C => {
                assert!(value.is_infinite());
                assert_eq!(e5m2_encode(value), code - 1);
            }
            0x7D..=0x7F => {
                assert!(value.is_nan());
                assert!(e5m2_decode(e5m2_encode(value)).is_nan());
            }
            _ => {
                assert_eq!(f64::from(value), by_definition(code, 5, 2, 15));
                assert_eq!(e5m2_encode(value), code);
            }
        }
    }
}

#[test]
fn ue4m3_and_e2m1_codes_decode_by_definition_and_encode_back() {
    for code in 0..0x7F {
        assert_eq!(f64::from(ue4m3_decode(code)), by_definition(code, 4, 3, 7));
        assert_eq!(ue4m3_encode(ue4m3_decode(code)), code);
    }
    assert!(ue4m3_decode(0x7F).is_nan());
    assert_eq!(ue4m3_encode(f32::NAN), 0x7F);
    assert_eq!(ue4m3_encode(-3.0), 0);
    assert_eq!(ue4m3_encode(-0.0), 0);
    assert_eq!(ue4m3_encode(f32::INFINITY), 0x7E);
    for code in 0..16 {
        let value = e2m1_decode(code);
        assert_eq!(f64::from(value), by_definition(code, 2, 1, 1));
        assert_eq!(value.is_sign_negative(), code >= 8);
        assert_eq!(e2m1_encode(value), code);
    }
    assert_eq!(e2m1_encode(f32::NEG_INFINITY), 15);
}

#[test]
fn e8m0_codes_are_powers_of_two() {
    for code in 0..0xFF {
        let value = e8m0_decode(code);
        assert_eq!(f64::from(value), 2f64.powi(i32::from(code) - 127));
        assert_eq!(e8m0_encode(value), code);
    }
    assert!(e8m0_decode(0xFF).is_nan());
    assert_eq!(e8m0_encode(f32::NAN), 0xFF);
    assert_eq!(e8m0_encode(f32::INFINITY), 0xFE);
    assert_eq!(e8m0_encode(0.0), 0);
    assert_eq!(e8m0_encode(-1.0), 0);
    assert_eq!(e8m0_encode(2.9), 128);
    assert_eq!(e8m0_encode(3.1), 129);
    // Halfway between 2 (code 128) and 4, then between 4 (code 129) and 8.
    assert_eq!(e8m0_encode(3.0), 128);
    assert_eq!(e8m0_encode(6.0), 130);
}

#[test]
fn published_examples() {
    let e4m3 = [
        (0.1, 0x1D),
        (1.0, 0x38),
        (-3.3, 0xC5),
        (17.0, 0x58),
        (300.0, 0x79),
        (464.0, 0x7E),
        (f32::NEG_INFINITY, 0xFE),
        (2f32.powi(-10), 0x00),
    ];
    for (value, code) in e4m3 {
        assert_eq!(e4m3_encode(value), code, "{value}");
    }
    let e5m2 = [(0.1, 0x2E), (-3.3, 0xC3), (300.0, 0x5D), (60000.0, 0x7B)];
    for (value, code) in e5m2 {
        assert_eq!(e5m2_encode(value), code, "{value}");
    }
    let ties = [
        (0.25, 0.0),
        (0.75, 1.0),
        (1.25, 1.0),
        (1.75, 2.0),
        (2.5, 2.0),
        (3.5, 4.0),
        (5.0, 4.0),
    ];
    for (value, rounded) in ties {
        assert_eq!(e2m1_decode(e2m1_encode(value)), rounded, "{value}");
        assert_eq!(e2m1_decode(e2m1_encode(-value)), -rounded, "{value}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn bf16_agrees_with_the_half_crate(bits: u32) {
        let value = f32::from_bits(bits);
        prop_assert_eq!(bf16_encode(value), half::bf16::from_f32(value).to_bits());
        let code = bits as u16;
        let (decoded, expected) = (bf16_decode(code), half::bf16::from_bits(code).to_f32());
        prop_assert!(decoded == expected || (decoded.is_nan() && expected.is_nan()));
    }

    #[test]
    fn encoders_give_the_nearest_code(bits: u32, exponent in -20i32..20, mantissa in -4096i32..4096) {
        // Any float, and one with a short mantissa, which ties often have.
        for value in [f32::from_bits(bits), mantissa as f32 / 256.0 * 2f32.powi(exponent)] {
            if value.is_nan() {
                continue;
            }
            let e4m3: Vec<u8> = (0..=u8::MAX).filter(|c| c & 0x7F != 0x7F).collect();
            prop_assert_eq!(e4m3_encode(value), nearest_code(value.clamp(-448.0, 448.0), &e4m3, e4m3_decode));
            let e5m2: Vec<u8> = (0..=u8::MAX).filter(|c| c & 0x7F < 0x7C).collect();
            prop_assert_eq!(
                e5m2_encode(value),
                nearest_code(value.clamp(-57344.0, 57344.0), &e5m2, e5m2_decode)
            );
            let e2m1: Vec<u8> = (0..16).collect();
            prop_assert_eq!(e2m1_encode(value), nearest_code(value.clamp(-6.0, 6.0), &e2m1, e2m1_decode));
            if value > 0.0 {
                let e8m0: Vec<u8> = (0..0xFF).collect();
                let in_range = value.min(2f32.powi(127));
                prop_assert_eq!(e8m0_encode(value), nearest_code(in_range, &e8m0, e8m0_decode));
            }
        }
    }
}
