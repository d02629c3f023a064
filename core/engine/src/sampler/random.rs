//! Random numbers without state: each is a function of a seed and a position.

/// A number in `0 ..= 1 - 2^-53` for the token at `position` of a sequence. It depends on nothing
/// else, so a sequence draws the same tokens alone, in a batch, or after it was cut and resumed.
///
/// Two rounds of SplitMix64's output function (Steele, Lea, Flood 2014) over seed and position.
pub(super) fn uniform(seed: u64, position: u64) -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = mix(seed.wrapping_add(GOLDEN));
    let bits = mix(key.wrapping_add(position.wrapping_mul(GOLDEN)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A bijection of 64 bits in which every input bit flips every output bit half the time.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic over equally likely cells.
    fn chi_square(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts
            .iter()
            .map(|&n| (f64::from(n) - expected).powi(2) / expected)
            .sum()
    }

    #[test]
    fn positions_and_seeds_fill_the_interval_evenly() {
        let along_positions: Vec<f64> = (0..100_000).map(|p| uniform(1, p)).collect();
        let along_seeds: Vec<f64> = (0..100_000).map(|s| uniform(s, 1)).collect();
        for numbers in [along_positions, along_seeds] {
            let mut cells = [0u32; 100];
            let mut pairs = [0u32; 100];
            for two in numbers.windows(2) {
                cells[(two[0] * 100.0) as usize] += 1;
                pairs[(two[0] * 10.0) as usize * 10 + (two[1] * 10.0) as usize] += 1;
            }
            // 99 degrees of freedom: above 148 with probability 0.001.
            assert!(chi_square(&cells) < 148.0);
            assert!(chi_square(&pairs) < 148.0);
        }
    }

    #[test]
    fn numbers_stay_what_they_are() {
        // A change here changes what every seed draws.
        assert_eq!((uniform(42, 7) * 1e9) as u64, 195_351_559);
        assert_eq!((uniform(u64::MAX, 1 << 40) * 1e9) as u64, 725_438_256);
    }
}
