//! Zeroed memory shared by the threads of a team.

use std::sync::Arc;

/// Alignment of every allocation and of every part carved from one, in bytes: a cache line.
pub(crate) const ALIGN: usize = 64;

/// Zeroed memory; clones share it. Pages that nobody wrote to take no room.
#[derive(Debug, Clone)]
pub struct CpuBuffer(Arc<Memory>);

impl CpuBuffer {
    /// Allocates; `None` when the system has no more.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        Some(Self(Arc::new(Memory::new(bytes)?)))
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// First byte, aligned to [`ALIGN`]. Whoever uses it sees that no two threads write the same
    /// bytes, or one writes and another reads them, at the same time.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.0.start
    }
}

#[derive(Debug)]
struct Memory {
    start: *mut u8,
    len: usize,
    _owner: Owner,
}

// SAFETY: the memory is plain bytes without an owner thread; access is through raw pointers only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

#[cfg(not(target_arch = "wasm32"))]
type Owner = memmap2::MmapMut;

#[cfg(target_arch = "wasm32")]
type Owner = Vec<Line>;

#[cfg(target_arch = "wasm32")]
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; ALIGN],
}

impl Memory {
    #[cfg(not(target_arch = "wasm32"))]
    fn new(len: usize) -> Option<Self> {
        let mut owner = memmap2::MmapMut::map_anon(len.max(1)).ok()?;
        // A kernel that knows no huge pages serves small ones: slower, not wrong.
        #[cfg(target_os = "linux")]
        if len >= 2 << 20 {
            let _ = owner.advise(memmap2::Advice::HugePage);
        }
        Some(Self {
            start: owner.as_mut_ptr(),
            len,
            _owner: owner,
        })
    }

    #[cfg(target_arch = "wasm32")]
    fn new(len: usize) -> Option<Self> {
        let lines = len.div_ceil(ALIGN);
        let mut owner = Vec::new();
        owner.try_reserve_exact(lines).ok()?;
        owner.resize(lines, Line { _bytes: [0; ALIGN] });
        Some(Self {
            start: owner.as_mut_ptr().cast(),
            len,
            _owner: owner,
        })
    }
}

/// Adds up parts of an allocation, each aligned; the same sum prices it and carves it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carver {
    used: usize,
}

impl Carver {
    /// First byte of the next part, of `count` elements of `T`; `None` on overflow.
    pub(crate) fn part<T>(&mut self, count: usize) -> Option<usize> {
        let at = self.used;
        let bytes = count.checked_mul(size_of::<T>())?;
        self.used = at.checked_add(bytes.checked_next_multiple_of(ALIGN)?)?;
        Some(at)
    }

    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.used
    }
}
