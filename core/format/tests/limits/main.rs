//! Nothing hostile gets through: every damaged file is an error or loads as what it says, and
//! opening it never allocates more than twice its length plus 16 MiB.

mod gguf_cases;
mod mutations;
mod raw;
mod safetensors_cases;

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvant_format::gguf::GgufError;
use kvant_format::{BytesSource, Gguf, TensorStore, block_on};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What opening a file may allocate beyond twice its length.
const SLACK_BYTES: usize = 16 << 20;

/// Tests that measure take turns: the allocator counts for the whole process.
fn measuring() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on an input of `len` bytes and checks what it allocates meanwhile.
fn bounded<T>(_turn: &MutexGuard<'_, ()>, len: usize, work: impl FnOnce() -> T) -> T {
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

/// Opens GGUF bytes within the bound and, when that works, reads everything the header describes.
fn open_gguf(turn: &MutexGuard<'_, ()>, bytes: &'static [u8]) -> Result<Gguf, GgufError> {
    let source = BytesSource::shared(bytes);
    let outcome = bounded(turn, bytes.len(), || block_on(Gguf::open(source)));
    if let Ok(gguf) = &outcome {
        read_everything(&gguf.tensors, bytes.len());
    }
    outcome
}

/// Reads every tensor and checks that it has the length that its shape says.
fn read_everything(store: &TensorStore, file_len: usize) {
    for info in store.tensors() {
        assert!(info.location.offset + info.location.bytes <= file_len as u64);
        let mut bytes = 0;
        for rows in info.pieces() {
            bytes += block_on(store.read_rows(info, rows)).unwrap().len();
        }
        if let Some(format) = info.format.known() {
            assert_eq!(Some(bytes), format.bytes_for(info.n_elements()));
            assert_eq!(bytes as u64, info.location.bytes);
        }
    }
}
