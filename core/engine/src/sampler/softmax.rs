//! Passes over all logits: the largest, and sums of exponentials. Written as loops over fixed lanes,
//! so that compilers vectorise them and every machine adds in the same order.

use super::error::SamplerError;

/// Independent accumulators of a pass.
const LANES: usize = 16;
/// Logits that one 32-bit sum covers before it goes into a 64-bit one.
pub(super) const CHUNK: usize = 1024;

/// The largest logit, of equals the one with the lowest id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Max {
    pub(super) id: u32,
    pub(super) logit: f32,
}

/// Finds the largest logit. Not a number and positive infinity are errors, negative infinity rules
/// a token out.
pub(super) fn find_max(logits: &[f32]) -> Result<Max, SamplerError> {
    let mut best = f32::NEG_INFINITY;
    let mut best_chunk = 0;
    let mut all_good = true;
    for (at, chunk) in logits.chunks(CHUNK).enumerate() {
        let (largest, good) = chunk_max(chunk);
        all_good &= good;
        if largest > best {
            best = largest;
            best_chunk = at;
        }
    }
    if !all_good && let Some(token) = logits.iter().position(|x| !is_good(*x)) {
        return Err(SamplerError::BadLogit {
            token: token as u32,
            value: if logits[token].is_nan() { "NaN" } else { "inf" },
        });
    }
    let start = best_chunk * CHUNK;
    if best == f32::NEG_INFINITY {
        return Err(SamplerError::NoCandidate);
    }
    let offset = logits[start..].iter().position(|&x| x == best);
    Ok(Max {
        id: (start + offset.unwrap_or(0)) as u32,
        logit: best,
    })
}

/// The largest of a few logits, and whether all of them are numbers below infinity.
#[inline]
fn chunk_max(chunk: &[f32]) -> (f32, bool) {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let mut good = [true; LANES];
    let (groups, rest) = chunk.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            let x = group[lane];
            largest[lane] = if x > largest[lane] { x } else { largest[lane] };
            good[lane] &= is_good(x);
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        largest[lane] = if x > largest[lane] { x } else { largest[lane] };
        good[lane] &= is_good(x);
    }
    let max = largest
        .into_iter()
        .fold(f32::NEG_INFINITY, |m, x| if x > m { x } else { m });
    (max, good.into_iter().all(|g| g))
}

/// False for infinity and for what is not a number.
#[inline]
fn is_good(x: f32) -> bool {
    x < f32::INFINITY
}

/// The sum of `exp((x - max) / temperature)` over a few logits.
#[inline]
pub(super) fn chunk_sum(chunk: &[f32], max: f32, temperature: f32) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (groups, rest) = chunk.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            sums[lane] += exp((group[lane] - max) / temperature);
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        sums[lane] += exp((x - max) / temperature);
    }
    sums.into_iter().map(f64::from).sum()
}

/// Whether any of a few logits is at least the threshold.
#[inline]
pub(super) fn any_from(chunk: &[f32], threshold: f32) -> bool {
    // Not `Iterator::any`: leaving early would keep the loop from being vectorised.
    chunk.iter().fold(false, |any, &x| any | (x >= threshold))
}

/// The sum of `exp((x - max) / temperature)` over all logits.
pub(super) fn sum(logits: &[f32], max: f32, temperature: f32) -> f64 {
    logits
        .chunks(CHUNK)
        .map(|chunk| chunk_sum(chunk, max, temperature))
        .sum()
}

/// `e^x` for `x <= 0`, to within two units in the last place; 0 below -87, where results would be
/// subnormal.
///
/// `e^x = 2^n * e^r` with `n` the nearest integer to `x / ln 2`, and a Taylor polynomial for
/// `|r| <= ln 2 / 2`.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first with few bits so that its products with `n` are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding this to a small number rounds it to an integer, held in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x > -87.0 { x } else { -87.0 };
    let shifted = clamped * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let p = 1.0 / 720.0 + r * (1.0 / 5040.0);
    let p = 1.0 / 120.0 + r * p;
    let p = 1.0 / 24.0 + r * p;
    let p = 1.0 / 6.0 + r * p;
    let p = 0.5 + r * p;
    let p = 1.0 + r * p;
    let p = 1.0 + r * p;
    // 2^n by its exponent bits; n is -126 or more.
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x >= -87.0 { p * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exp_is_close_everywhere() {
        for i in 0..=870_000 {
            let x = -(i as f32) * 1e-4;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(
                (got - want).abs() <= 2.5e-7 * want,
                "exp({x}) = {got}, {want}"
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    }

    #[test]
    fn bad_logits_are_named() {
        for n in [1usize, 15, 16, 17, 1024, 1025, 5000] {
            let mut logits = vec![0.5f32; n];
            logits[n - 1] = f32::NAN;
            let (token, value) = (n as u32 - 1, "NaN");
            assert_eq!(
                find_max(&logits),
                Err(SamplerError::BadLogit { token, value })
            );
            logits[n / 2] = f32::INFINITY;
            assert!(matches!(
                find_max(&logits),
                Err(SamplerError::BadLogit { token, .. }) if token == n as u32 / 2
            ));
            logits.fill(f32::NEG_INFINITY);
            assert_eq!(find_max(&logits), Err(SamplerError::NoCandidate));
        }
        assert_eq!(find_max(&[]), Err(SamplerError::NoCandidate));
    }

    proptest! {
        #[test]
        fn max_is_the_first_of_the_largest(
            logits in prop::collection::vec(prop_oneof![
                (-20i32..20).prop_map(|x| x as f32), Just(f32::NEG_INFINITY)], 1..3000),
        ) {
            let want = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let got = find_max(&logits);
            if want == f32::NEG_INFINITY {
                prop_assert_eq!(got, Err(SamplerError::NoCandidate));
            } else {
                let id = logits.iter().position(|&x| x == want).unwrap() as u32;
                prop_assert_eq!(got, Ok(Max { id, logit: want }));
            }
        }

        #[test]
        fn sums_are_close(
            logits in prop::collection::vec(-40.0f32..40.0, 1..4000),
            temperature in 0.05f32..10.0,
        ) {
            let max = find_max(&logits).unwrap().logit;
            let want: f64 = logits
                .iter()
                .map(|&x| ((f64::from(x) - f64::from(max)) / f64::from(temperature)).exp())
                .sum();
            let got = sum(&logits, max, temperature);
            prop_assert!((got - want).abs() <= 2e-5 * want, "{} {}", got, want);
        }
    }
}
