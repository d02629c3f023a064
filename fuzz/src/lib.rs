//! What the fuzz targets share: the bound on memory.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What reading an input may allocate beyond twice its length.
pub const SLACK_BYTES: usize = 16 << 20;

/// Runs `work`, which reads an input of `len` bytes, and checks what it allocates meanwhile.
pub fn bounded<T>(len: usize, work: impl FnOnce() -> T) -> T {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let outcome = work();
    let used = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(
        used <= 2 * len + SLACK_BYTES,
        "{used} bytes allocated for an input of {len}"
    );
    outcome
}

/// What comes before the first zero byte, and what comes after it.
pub fn split_at_zero(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|&byte| byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}
