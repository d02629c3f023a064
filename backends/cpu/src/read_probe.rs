//! How fast a team reads memory when it does nothing else: what bounds decoding.

use std::hint::black_box;
use std::time::Instant;

use crate::Level;
use crate::team::Team;
use crate::vector::{F32s, Kernel, dispatch};
use crate::weights::{OutOfMemory, WeightArena};

/// Bytes that a thread claims at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes read at least, so that a pass is far longer than waking a thread takes.
const LEAST_CHUNKS: usize = 16;
/// Bytes read at most: more than any cache holds.
const MOST_CHUNKS: usize = 1024;
/// Seconds of passes; the fastest counts, as others may use the memory too.
const SECONDS: f64 = 0.5;
/// Passes at least.
const LEAST_PASSES: usize = 8;

/// Bytes a second that `n_threads` threads read from `bytes` bytes of memory that lies as packed
/// weights do, with the widest loads of `level` and a sum of what they loaded. Memory that fits a
/// cache is read from there, as weights that fit would be.
///
/// # Errors
/// [`OutOfMemory`] when the system has no room for the bytes (1 GiB at most).
pub fn read_bytes_per_second(
    level: Level,
    n_threads: usize,
    bytes: usize,
) -> Result<f64, OutOfMemory> {
    let n_chunks = bytes.div_ceil(CHUNK_BYTES).clamp(LEAST_CHUNKS, MOST_CHUNKS);
    let bytes = n_chunks * CHUNK_BYTES;
    let mut region = WeightArena::new().alloc(bytes)?;
    // SAFETY: the region is ours alone. Pages that nobody wrote would all be read from one page.
    unsafe { region.as_mut_ptr().write_bytes(1, bytes) };
    let region = &region;
    let team = Team::new(n_threads);
    let started = Instant::now();
    let mut fastest = f64::INFINITY;
    let mut passes = 0;
    while passes < LEAST_PASSES || started.elapsed().as_secs_f64() < SECONDS {
        let clock = Instant::now();
        // Reading cannot panic.
        let _ = team.for_each(n_chunks, |chunk, _thread| {
            let words = region.as_ptr().wrapping_add(chunk * CHUNK_BYTES).cast();
            // SAFETY: chunk `chunk` of the region, whose bytes are any floats.
            black_box(unsafe { dispatch(level, Read { words }) });
        });
        fastest = fastest.min(clock.elapsed().as_secs_f64());
        passes += 1;
    }
    Ok(bytes as f64 / fastest)
}

/// Adds up a chunk of floats.
struct Read {
    words: *const f32,
}

impl Kernel for Read {
    type Out = f32;

    #[inline(always)]
    unsafe fn run<V: F32s>(self) -> f32 {
        const SUMS: usize = 8;
        // SAFETY: by the caller, `words` is valid for a chunk, which is a multiple of the stride.
        unsafe {
            let mut sums = [V::splat(0.0); SUMS];
            for at in (0..CHUNK_BYTES / size_of::<f32>()).step_by(SUMS * V::LANES) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.add(V::load(self.words.add(at + i * V::LANES)));
                }
            }
            sums.into_iter()
                .fold(V::splat(0.0), |all, sum| all.add(sum))
                .sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_reads_whole_chunks() {
        let chunk = vec![1.0f32; CHUNK_BYTES / size_of::<f32>()];
        for level in Level::available() {
            let words = chunk.as_ptr();
            // SAFETY: a chunk of floats.
            let sum = unsafe { dispatch(level, Read { words }) };
            assert_eq!(sum, chunk.len() as f32);
        }
    }

    #[test]
    fn a_probe_gives_a_rate() {
        let rate = read_bytes_per_second(Level::detect(), 2, 1).expect("16 MiB");
        assert!(rate.is_finite() && rate > 0.0);
    }
}
