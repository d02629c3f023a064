//! Activations in 8 bits: `[rows, k]` floats become blocks of 32 codes with a scale.
//!
//! Rows come in panels of [`PANEL_ROWS`]; a panel is `[k / 32][rows of the panel]` [`ActBlock`]s, so
//! that a kernel that holds one k block of weights walks through memory in order.

use crate::weights::BLOCK_COLS;

/// Rows of a panel; the last panel may have fewer.
pub(crate) const PANEL_ROWS: usize = 64;

/// 32 activations of one row: `x ≈ scale * code`, codes in -127..=127. One cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct ActBlock {
    /// Codes.
    pub(crate) codes: [i8; BLOCK_COLS],
    /// Scale.
    pub(crate) scale: f32,
    /// `scale` times the sum of all codes.
    pub(crate) scaled_sum: f32,
    /// `scale` times the sum of codes 0..16 and of 16..32.
    pub(crate) scaled_half_sums: [f32; 2],
    /// `-128` times the sum of all codes.
    pub(crate) bias_sum: i32,
    /// `-8` times the sum of all codes.
    pub(crate) bias_sum_8: i32,
    /// `-128` times the sum of codes 0..16 and of 16..32.
    pub(crate) bias_half_sums: [i32; 2],
}

const _: () = assert!(size_of::<ActBlock>() == 64);

/// Bytes of `rows` rows of `k` columns.
pub(crate) fn act_bytes(rows: usize, k: usize) -> usize {
    rows * (k / BLOCK_COLS) * size_of::<ActBlock>()
}

/// First block of the panel that begins with row `first_row`.
pub(crate) fn panel_at(first_row: usize, k: usize) -> usize {
    debug_assert!(first_row.is_multiple_of(PANEL_ROWS));
    first_row * (k / BLOCK_COLS)
}

/// Rows to quantise: `rows` rows of panel `x`, `[rows of the panel, k]`, from row `first` of it on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuantizeArgs {
    /// Row 0 of the panel.
    pub(crate) x: *const f32,
    /// Columns, a multiple of 32.
    pub(crate) k: usize,
    /// First row to quantise.
    pub(crate) first: usize,
    /// Row after the last.
    pub(crate) end: usize,
    /// Rows of the panel.
    pub(crate) panel_rows: usize,
    /// First block of the panel.
    pub(crate) out: *mut ActBlock,
}

/// Quantises rows: `scale = max |x| / 127`, codes rounded to nearest, ties to even. An infinity or a
/// NaN makes the scale of its block NaN, so that it is not lost.
///
/// # Safety
/// `x` is valid for reading `panel_rows * k` floats and `out` for writing as many blocks / 32; nobody
/// else accesses the rows' blocks.
#[inline(always)]
pub(crate) unsafe fn quantize(args: &QuantizeArgs) {
    for row in args.first..args.end {
        for block in 0..args.k / BLOCK_COLS {
            // SAFETY: row < panel_rows and block < k / 32.
            unsafe {
                let x = args.x.add(row * args.k + block * BLOCK_COLS);
                let x = &*x.cast::<[f32; BLOCK_COLS]>();
                let out = args.out.add(block * args.panel_rows + row);
                out.write(quantize_block(x));
            }
        }
    }
}

#[inline(always)]
fn quantize_block(x: &[f32; BLOCK_COLS]) -> ActBlock {
    // Magnitudes are ordered as their bits are, infinity and NaN last.
    let bits = x.iter().fold(0, |most, v| most.max(v.abs().to_bits()));
    let largest = f32::from_bits(bits);
    let scale = if bits < f32::INFINITY.to_bits() {
        largest / 127.0
    } else {
        f32::NAN
    };
    // A block of tiny numbers would have an infinite inverse: its values are zero to every purpose.
    let inverse = if (1e-36..f32::INFINITY).contains(&largest) {
        127.0 / largest
    } else {
        0.0
    };
    let mut codes = [0i8; BLOCK_COLS];
    let mut sums = [0i32; 2];
    for half in 0..2 {
        for i in 16 * half..16 * half + 16 {
            // Adding 1.5 * 2^23 leaves the rounded number in the low bits.
            let code = (x[i] * inverse + 12_582_912.0).to_bits() as i8;
            codes[i] = code;
            sums[half] += i32::from(code);
        }
    }
    let sum = sums[0] + sums[1];
    ActBlock {
        codes,
        scale,
        scaled_sum: scale * sum as f32,
        scaled_half_sums: sums.map(|s| scale * s as f32),
        bias_sum: -128 * sum,
        bias_sum_8: -8 * sum,
        bias_half_sums: sums.map(|s| -128 * s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_are_near_and_their_sums_agree(
            x in prop::array::uniform32(-1e3f32..1e3),
            shrink in prop::sample::select(vec![1f32, 1e-3, 1e-20, 1e30]),
        ) {
            let x = x.map(|v| v * shrink);
            let block = quantize_block(&x);
            let largest = x.iter().fold(0f32, |a, v| a.max(v.abs()));
            for (&x, &code) in x.iter().zip(&block.codes) {
                prop_assert!(code > -128);
                let error = (f64::from(x) - f64::from(block.scale) * f64::from(code)).abs();
                prop_assert!(error <= 0.5001 * f64::from(largest) / 127.0);
            }
            let sum: i32 = block.codes.iter().map(|&c| i32::from(c)).sum();
            prop_assert_eq!(block.bias_sum, -128 * sum);
            prop_assert_eq!(block.bias_sum_8, -8 * sum);
            prop_assert_eq!(block.bias_half_sums[0] + block.bias_half_sums[1], -128 * sum);
            prop_assert_eq!(block.scaled_sum, block.scale * sum as f32);
        }
    }

    #[test]
    fn zeros_tiny_values_and_non_numbers() {
        let zero = quantize_block(&[0.0; 32]);
        assert_eq!((zero.scale, zero.codes), (0.0, [0; 32]));
        let tiny = quantize_block(&[1e-40; 32]);
        assert!(tiny.scale.is_finite() && tiny.codes == [0; 32]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[7] = bad;
            assert!(quantize_block(&x).scale.is_nan());
        }
    }

    #[test]
    fn integers_up_to_127_are_exact() {
        let mut x: [f32; 32] = std::array::from_fn(|i| (i as f32 * 7.0) - 100.0);
        x[31] = 127.0;
        let block = quantize_block(&x);
        assert_eq!(block.scale, 1.0);
        assert!(block.codes.iter().zip(&x).all(|(&c, &x)| f32::from(c) == x));
    }
}
