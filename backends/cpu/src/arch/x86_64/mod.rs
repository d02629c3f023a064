//! x86-64.

pub(crate) mod amx;
pub(crate) mod avx2;
pub(crate) mod avx512;

/// AVX2 with FMA and half-precision conversion.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// AVX-512 with the byte dot product.
pub(crate) fn has_avx512_vnni() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

/// AVX-512 with BF16, and BF16 matrix tiles.
pub(crate) fn has_amx() -> bool {
    has_avx512_vnni() && is_x86_feature_detected!("avx512bf16") && amx::is_available()
}
