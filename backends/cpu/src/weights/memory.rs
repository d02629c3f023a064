//! Where packed weights live: large zeroed slabs, shared by many weights so that huge pages serve
//! even small ones.

use std::sync::{Arc, Mutex, PoisonError};

/// Alignment of everything handed out, in bytes: a cache line, and the widest vector.
pub(crate) const ALIGN: usize = 64;

/// Bytes of a slab unless one weight needs more. Pages nobody wrote to take no memory.
const SLAB_BYTES: usize = 64 << 20;

/// Bytes of a huge page.
#[cfg(not(target_arch = "wasm32"))]
const HUGE_PAGE: usize = 2 << 20;

/// Hands out zeroed memory for weights. A slab is freed when the last weight in it is dropped.
#[derive(Debug, Default)]
pub struct WeightArena {
    current: Mutex<Option<(Arc<Slab>, usize)>>,
}

/// The system has no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory for {bytes} bytes of weights")]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub bytes: usize,
}

impl WeightArena {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// `bytes` of zeroed memory, aligned to [`ALIGN`], that nobody else holds.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<Region, OutOfMemory> {
        let padded = bytes
            .checked_next_multiple_of(ALIGN)
            .ok_or(OutOfMemory { bytes })?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((slab, used)) = current.as_mut()
            && slab.len - *used >= padded
        {
            let start = slab.start.wrapping_add(*used);
            *used += padded;
            return Ok(Region {
                start,
                len: bytes,
                _slab: slab.clone(),
            });
        }
        let slab = Arc::new(Slab::new(padded.max(SLAB_BYTES)).ok_or(OutOfMemory { bytes })?);
        let region = Region {
            start: slab.start,
            len: bytes,
            _slab: slab.clone(),
        };
        *current = Some((slab, padded));
        Ok(region)
    }
}

/// A part of a slab that one weight owns.
#[derive(Debug)]
pub(crate) struct Region {
    start: *mut u8,
    len: usize,
    _slab: Arc<Slab>,
}

// SAFETY: a region is the only owner of its bytes; the slab it keeps alive is never read or written
// through anything else.
unsafe impl Send for Region {}
// SAFETY: shared access only reads (`as_ptr`); writing needs `&mut` or the contract of `as_mut_ptr`.
unsafe impl Sync for Region {}

impl Region {
    /// First byte, aligned to [`ALIGN`].
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// First byte, for writing.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
struct Slab {
    start: *mut u8,
    len: usize,
    _map: memmap2::MmapMut,
}

#[cfg(not(target_arch = "wasm32"))]
impl Slab {
    fn new(len: usize) -> Option<Self> {
        let mut map = memmap2::MmapMut::map_anon(len.checked_add(HUGE_PAGE)?).ok()?;
        // A kernel that knows no huge pages serves small ones: slower, not wrong.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let skip = map.as_ptr().align_offset(HUGE_PAGE);
        Some(Self {
            start: map.as_mut_ptr().wrapping_add(skip),
            len,
            _map: map,
        })
    }
}

#[cfg(target_arch = "wasm32")]
#[derive(Debug)]
struct Slab {
    start: *mut u8,
    len: usize,
    _memory: Vec<Line>,
}

#[cfg(target_arch = "wasm32")]
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; ALIGN],
}

#[cfg(target_arch = "wasm32")]
impl Slab {
    fn new(len: usize) -> Option<Self> {
        let lines = len.div_ceil(ALIGN);
        let mut memory = Vec::new();
        memory.try_reserve_exact(lines).ok()?;
        memory.resize(lines, Line { _bytes: [0; ALIGN] });
        Some(Self {
            start: memory.as_mut_ptr().cast(),
            len,
            _memory: memory,
        })
    }
}

// SAFETY: a slab only keeps its memory alive; regions, which do not overlap, are what is accessed.
unsafe impl Send for Slab {}
// SAFETY: as above; a shared slab offers no access to its bytes.
unsafe impl Sync for Slab {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_zeroed_and_disjoint() {
        let arena = WeightArena::new();
        let mut regions: Vec<Region> = [1, 64, 65, 1000, SLAB_BYTES, 3]
            .iter()
            .map(|&n| arena.alloc(n).expect("memory"))
            .collect();
        for (i, region) in regions.iter_mut().enumerate() {
            assert_eq!(region.as_ptr().addr() % ALIGN, 0);
            for at in [0, region.len() - 1] {
                // SAFETY: `at` lies inside the region, which is not shared.
                unsafe {
                    let byte = region.as_mut_ptr().add(at);
                    assert!(*byte == 0 || at == 0 || region.len() == 1);
                    *byte = i as u8 + 1;
                }
            }
        }
        for (i, region) in regions.iter().enumerate() {
            // SAFETY: the last byte of the region.
            let last = unsafe { *region.as_ptr().add(region.len() - 1) };
            assert_eq!(last, i as u8 + 1);
        }
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        assert!(WeightArena::new().alloc(usize::MAX - 3).is_err());
        assert!(WeightArena::new().alloc(usize::MAX / 2).is_err());
    }
}
