//! Least-squares searches for the scale (and minimum) of a group.

use super::{EPSILON, nearest, signed_extreme};

/// How a scale and minimum are searched for.
pub(super) struct ScaleMinSearch {
    /// Largest code; the smallest is 0.
    pub(super) levels: u8,
    /// The trials map the range onto `levels + first + 0.1 * trial` codes.
    pub(super) first: f32,
    /// Number of the last trial.
    pub(super) last_trial: u8,
    /// Whether trials are compared by absolute instead of squared error.
    pub(super) absolute_error: bool,
}

/// Scale and (subtracted, never negative) minimum of a group.
pub(super) struct ScaleMin<const N: usize> {
    pub(super) scale: f32,
    pub(super) min: f32,
    pub(super) codes: [u8; N],
}

impl ScaleMinSearch {
    /// Finds `scale`, `min` and codes so that `scale * code - min` is near the values: the plain
    /// spread over the range, then for each trial the weighted least-squares fit to the codes of a
    /// slightly different spread. Later trials start from the best minimum so far, as the
    /// reference does.
    pub(super) fn run<const N: usize>(&self, values: &[f32; N], weights: &[f32; N]) -> ScaleMin<N> {
        let levels = f32::from(self.levels);
        let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut min = values.iter().copied().fold(0.0, f32::min);
        if max == min {
            return ScaleMin {
                scale: 0.0,
                min: -min,
                codes: [0; N],
            };
        }
        let sum_w: f32 = sum(weights.iter().copied());
        let sum_x: f32 = sum(weights.iter().zip(values).map(|(w, x)| w * x));

        let inverse = levels / (max - min);
        let mut scale = 1.0 / inverse;
        let mut codes = self.codes(values, inverse, min);
        let mut least = self.error(values, weights, &codes, scale, min);
        for trial in 0..=self.last_trial {
            let inverse = (self.first + 0.1 * f32::from(trial) + levels) / (max - min);
            let trial_codes = self.codes(values, inverse, min);
            let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0, 0.0, 0.0);
            for ((&x, &w), &code) in values.iter().zip(weights).zip(&trial_codes) {
                let l = f32::from(code);
                sum_l += w * l;
                sum_l2 += w * l * l;
                sum_xl += w * l * x;
            }
            let determinant = sum_w * sum_l2 - sum_l * sum_l;
            if determinant <= 0.0 {
                continue;
            }
            let mut trial_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
            let mut trial_min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
            if trial_min > 0.0 {
                trial_min = 0.0;
                trial_scale = sum_xl / sum_l2;
            }
            let error = self.error(values, weights, &trial_codes, trial_scale, trial_min);
            if error < least {
                (least, scale, min, codes) = (error, trial_scale, trial_min, trial_codes);
            }
        }
        ScaleMin {
            scale,
            min: -min,
            codes,
        }
    }

    fn codes<const N: usize>(&self, values: &[f32; N], inverse: f32, min: f32) -> [u8; N] {
        values.map(|x| nearest(inverse * (x - min)).clamp(0, i32::from(self.levels)) as u8)
    }

    fn error<const N: usize>(
        &self,
        values: &[f32; N],
        weights: &[f32; N],
        codes: &[u8; N],
        scale: f32,
        min: f32,
    ) -> f32 {
        sum(values.iter().zip(weights).zip(codes).map(|((x, w), &l)| {
            let difference = scale * f32::from(l) + min - x;
            w * if self.absolute_error {
                difference.abs()
            } else {
                difference * difference
            }
        }))
    }
}

/// Sum from the first to the last: the order is part of the result.
fn sum(terms: impl Iterator<Item = f32>) -> f32 {
    terms.fold(0.0, |sum, term| sum + term)
}

/// `Σ w x q` and `Σ w q²` with `w = x²`: the scale that fits the codes best is their quotient, and
/// the error it leaves is least where `(Σ w x q)² / Σ w q²` is largest.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    xq: f32,
    q2: f32,
}

impl Fit {
    /// Sums what `terms` gives for each value: `w x q` and `w q²`.
    pub(super) fn new(values: &[f32], terms: impl Fn(f32) -> (f32, f32)) -> Self {
        let mut fit = Self { xq: 0.0, q2: 0.0 };
        for &x in values {
            let (xq, q2) = terms(x);
            fit.xq += xq;
            fit.q2 += q2;
        }
        fit
    }

    pub(super) fn scale(self) -> f32 {
        if self.q2 > 0.0 {
            self.xq / self.q2
        } else {
            0.0
        }
    }
}

/// The best of several fits.
pub(super) struct BestFit {
    pub(super) scale: f32,
    gain: f32,
}

impl BestFit {
    pub(super) fn new(fit: Fit) -> Self {
        let scale = fit.scale();
        Self {
            scale,
            gain: scale * fit.xq,
        }
    }

    /// Takes the fit when it is better; says whether it was.
    pub(super) fn offer(&mut self, fit: Fit) -> bool {
        let better = fit.q2 > 0.0 && fit.xq * fit.xq > self.gain * fit.q2;
        if better {
            *self = Self::new(fit);
        }
        better
    }
}

/// The terms of a value with code `q`.
fn terms(x: f32, q: i8) -> (f32, f32) {
    let (w, q) = (x * x, f32::from(q));
    (w * x * q, w * q * q)
}

/// Scale and codes in `-half..half` of a group of 16, by trying spreads around the one that puts
/// the signed extreme on `-half`.
pub(super) fn symmetric(values: &[f32; 16], half: i8) -> (f32, [i8; 16]) {
    let extreme = signed_extreme(values);
    if extreme.abs() < EPSILON {
        return (0.0, [-half; 16]);
    }
    let levels = f32::from(half);
    let code = |inverse: f32, x: f32| {
        nearest(inverse * x).clamp(-i32::from(half), i32::from(half) - 1) as i8
    };
    let mut inverse = -levels / extreme;
    let mut best = BestFit::new(Fit::new(values, |x| terms(x, code(inverse, x))));
    for trial in (-9..=9).filter(|&trial| trial != 0) {
        let trial_inverse = -(levels + 0.1 * trial as f32) / extreme;
        if best.offer(Fit::new(values, |x| terms(x, code(trial_inverse, x)))) {
            inverse = trial_inverse;
        }
    }
    (best.scale, values.map(|x| code(inverse, x)))
}

/// Scale and codes in `-half..half` of a group of 16, improving one code at a time.
pub(super) fn symmetric_by_descent(values: &[f32; 16], half: i8) -> (f32, [i8; 16]) {
    const PASSES: usize = 5;
    let extreme = signed_extreme(values);
    if extreme.abs() < EPSILON {
        return (0.0, [-half; 16]);
    }
    let clamp = |q: i32| q.clamp(-i32::from(half), i32::from(half) - 1) as i8;
    let inverse = -f32::from(half) / extreme;
    let mut codes = values.map(|x| clamp(nearest(inverse * x)));
    let mut fit = Fit::new(values, |x| terms(x, clamp(nearest(inverse * x))));
    for _ in 0..PASSES {
        let mut changed = false;
        for (&x, code) in values.iter().zip(&mut codes) {
            let (xq, q2) = terms(x, *code);
            let mut trial = Fit {
                xq: fit.xq - xq,
                q2: fit.q2 - q2,
            };
            if trial.xq <= 0.0 {
                continue;
            }
            let new_code = clamp(nearest(x * trial.q2 / trial.xq));
            if new_code == *code {
                continue;
            }
            let (xq, q2) = terms(x, new_code);
            trial.xq += xq;
            trial.q2 += q2;
            if trial.q2 > 0.0 && trial.xq * trial.xq * fit.q2 > fit.xq * fit.xq * trial.q2 {
                (*code, fit, changed) = (new_code, trial, true);
            }
        }
        if !changed {
            break;
        }
    }
    (fit.scale(), codes)
}
