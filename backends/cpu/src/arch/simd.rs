//! The vectors that kernels are written for.

/// Vectors of one instruction set. A vector has [`ROWS`](Self::ROWS) lanes of 32 bits, one a weight
/// row; a lane is an `f32`, an `i32` or four bytes.
///
/// # Safety
/// Every function is only called on a machine with the instruction set, from a function that enables
/// it (so that all of this is inlined). Pointers are valid for the bytes that the name says; no
/// alignment is asked.
pub(crate) trait Simd: Copy {
    /// Lanes: 16, 8 or 4.
    const ROWS: usize;
    /// Whether [`dot`](Self::dot) of codes above 127 multiplies the codes themselves. If not, it
    /// multiplies `code - 128` and needs no correction.
    const WIDE_KEEPS_BIAS: bool;
    /// Row groups that share a load of activations when there are many rows: 1 or 2.
    const MANY_GROUPS: usize;
    /// Rows of activations whose sums are taken side by side, to hide the latency of a dot product:
    /// 1 or 4.
    const MANY_ROWS: usize;

    /// Integers.
    type I: Copy;
    /// Floats.
    type F: Copy;

    /// `4 * ROWS` bytes.
    unsafe fn load(p: *const u8) -> Self::I;
    /// The same byte everywhere.
    unsafe fn splat_u8(v: u8) -> Self::I;
    /// The same 32-bit integer in every lane.
    unsafe fn splat_i32(v: i32) -> Self::I;
    /// Bitwise and.
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    /// `a | (b & mask)`.
    unsafe fn or_masked(a: Self::I, b: Self::I, mask: Self::I) -> Self::I;
    /// Shift of each lane to the left.
    unsafe fn shl<const N: i32>(a: Self::I) -> Self::I;
    /// Logical shift of each lane to the right.
    unsafe fn shr<const N: i32>(a: Self::I) -> Self::I;
    /// Arithmetic shift of each lane to the right.
    unsafe fn sra<const N: i32>(a: Self::I) -> Self::I;
    /// Sum of each lane.
    unsafe fn add_i32(a: Self::I, b: Self::I) -> Self::I;
    /// Looks up each byte, below 16, in a table of 16.
    unsafe fn lookup(table: &[u8; 16], index: Self::I) -> Self::I;
    /// Adds to each lane the products of `N` chunks of codes (at most `max`, a constant; four a lane and chunk)
    /// with the `4 N` activations at `x`, which are above -128.
    unsafe fn dot<const N: usize>(
        acc: Self::I,
        codes: [Self::I; N],
        x: *const i8,
        max: u32,
    ) -> Self::I;
    /// [`dot`](Self::dot) of `R` rows, whose activations are `stride` bytes apart, with `G` groups.
    #[inline(always)]
    unsafe fn dots<const R: usize, const G: usize, const N: usize>(
        acc: [[Self::I; G]; R],
        codes: [[Self::I; N]; G],
        x: *const i8,
        stride: usize,
        max: u32,
    ) -> [[Self::I; G]; R] {
        let mut acc = acc;
        for r in 0..R {
            for g in 0..G {
                // SAFETY: as the caller promises.
                acc[r][g] = unsafe { Self::dot::<N>(acc[r][g], codes[g], x.add(r * stride), max) };
            }
        }
        acc
    }
    /// `i32` to `f32`.
    unsafe fn to_f32(a: Self::I) -> Self::F;
    /// `f32` to the nearest `i32`, ties to even. Values fit.
    unsafe fn round_i32(a: Self::F) -> Self::I;
    /// Lanes as floats.
    unsafe fn as_f32(a: Self::I) -> Self::F;

    /// `ROWS` floats.
    unsafe fn load_f32(p: *const f32) -> Self::F;
    /// Stores `ROWS` floats.
    unsafe fn store_f32(p: *mut f32, a: Self::F);
    /// `ROWS` binary16 numbers.
    unsafe fn load_f16(p: *const u8) -> Self::F;
    /// `ROWS` bfloat16 numbers.
    unsafe fn load_bf16(p: *const u8) -> Self::F;
    /// `ROWS` unsigned bytes as integers.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// `ROWS` signed bytes as integers.
    unsafe fn load_i8(p: *const u8) -> Self::I;
    /// The same float in every lane.
    unsafe fn splat(v: f32) -> Self::F;
    /// Sum.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// Difference.
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    /// Product.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// Quotient.
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the hardware does so.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger; `b` when `a` is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; `b` when `a` is not a number.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// Asks for the cache line at `p`, which need not exist, in the first-level cache.
    unsafe fn prefetch(p: *const u8);
    /// The same in the second-level cache.
    unsafe fn prefetch_far(p: *const u8);
}
