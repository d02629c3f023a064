//! Functions of vectors: exponential, tanh, sigmoid, error function.

use super::F32s;

/// `e^x` within 2e-7 relative; exactly 1 at 0, 0 below -87.3 (no subnormal results), infinite above
/// 89; NaN stays NaN.
///
/// Splits off `n = round(x / ln 2)` (Cody and Waite's two-part constant) and takes the Taylor series
/// of the rest, `|r| <= 0.35`, whose seventh term is 1.2e-7.
///
/// # Safety
/// As [`F32s`].
#[inline(always)]
pub(crate) unsafe fn exp<V: F32s>(x: V) -> V {
    // SAFETY: by the caller.
    unsafe {
        let least = V::splat(-87.3);
        let given = x;
        let x = x.max(least).min(V::splat(89.0));
        let n = x.mul(V::splat(std::f32::consts::LOG2_E)).round();
        let r = n.mul_add(V::splat(-0.693_359_4), x);
        let r = n.mul_add(V::splat(2.121_944_4e-4), r);
        let mut p = V::splat(1.0 / 720.0);
        p = p.mul_add(r, V::splat(1.0 / 120.0));
        p = p.mul_add(r, V::splat(1.0 / 24.0));
        p = p.mul_add(r, V::splat(1.0 / 6.0));
        p = p.mul_add(r, V::splat(0.5));
        p = p.mul_add(r, V::splat(1.0));
        p = p.mul_add(r, V::splat(1.0));
        p.scale_by_power(n).zero_where_less(given, least)
    }
}

/// `1 / (1 + e^-x)`.
///
/// # Safety
/// As [`F32s`].
#[inline(always)]
pub(crate) unsafe fn sigmoid<V: F32s>(x: V) -> V {
    // SAFETY: by the caller.
    unsafe {
        let one = V::splat(1.0);
        one.div(one.add(exp(V::splat(0.0).sub(x))))
    }
}

/// `tanh x` within 2e-7 absolute, and relative near 0.
///
/// # Safety
/// As [`F32s`].
#[inline(always)]
pub(crate) unsafe fn tanh<V: F32s>(x: V) -> V {
    // SAFETY: by the caller.
    unsafe {
        // Above: 1 - 2 / (e^2|x| + 1). Below 0.35: the odd Taylor series, without cancellation.
        let a = x.abs();
        let one = V::splat(1.0);
        let e = exp(a.add(a));
        let large = one.sub(V::splat(2.0).div(e.add(one)));
        let s = a.min(V::splat(0.35));
        let s2 = s.mul(s);
        let mut p = V::splat(-1_382.0 / 155_925.0);
        p = p.mul_add(s2, V::splat(62.0 / 2_835.0));
        p = p.mul_add(s2, V::splat(-17.0 / 315.0));
        p = p.mul_add(s2, V::splat(2.0 / 15.0));
        p = p.mul_add(s2, V::splat(-1.0 / 3.0));
        let small = p.mul(s2).mul_add(s, s);
        // Both rise with |x|, and they meet at 0.35: `small` stays at its value there.
        let limit = V::splat(0.336_375_54);
        let r = large.max(limit).sub(limit).add(small.min(limit));
        r.copysign(x)
    }
}

/// The error function within 2e-7 absolute (Abramowitz and Stegun 7.1.26).
///
/// # Safety
/// As [`F32s`].
#[inline(always)]
pub(crate) unsafe fn erf<V: F32s>(x: V) -> V {
    // SAFETY: by the caller.
    unsafe {
        let a = x.abs();
        let one = V::splat(1.0);
        let t = one.div(a.mul_add(V::splat(0.327_591_1), one));
        let mut p = V::splat(1.061_405_4);
        p = p.mul_add(t, V::splat(-1.453_152));
        p = p.mul_add(t, V::splat(1.421_413_7));
        p = p.mul_add(t, V::splat(-0.284_496_74));
        p = p.mul_add(t, V::splat(0.254_829_6));
        let e = exp(V::splat(0.0).sub(a.mul(a)));
        one.sub(p.mul(t).mul(e)).copysign(x)
    }
}
