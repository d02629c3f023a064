//! One row's bytes inside a group.

/// A row's lane in the vectors of a group. Rows of a group own disjoint bytes, so several may be
/// written at once.
#[derive(Clone, Copy)]
pub(crate) struct RowCells {
    group: *mut u8,
    len: usize,
    row: usize,
}

impl RowCells {
    /// Row `row < 16` of a group of `len` bytes.
    ///
    /// # Safety
    /// `group` is valid for `len` bytes as long as the cells are used: for writing when `put_*` is
    /// called. Nobody else accesses the same row meanwhile.
    pub(crate) unsafe fn new(group: *mut u8, len: usize, row: usize) -> Self {
        debug_assert!(row < 16);
        Self { group, len, row }
    }

    fn cell<const N: usize>(&self, vector: usize) -> *mut u8 {
        assert!(vector + 16 * N <= self.len);
        // SAFETY: the vector of 16 cells of N bytes lies inside the group, and row < 16.
        unsafe { self.group.add(vector + self.row * N) }
    }

    /// Writes this row's cell of the vector of `[16][N]` bytes that begins at `vector`.
    #[inline]
    pub(crate) fn put<const N: usize>(&self, vector: usize, bytes: [u8; N]) {
        let cell = self.cell::<N>(vector);
        // SAFETY: `cell` gives N bytes inside the group that only this row uses.
        unsafe { cell.cast::<[u8; N]>().write(bytes) }
    }

    /// Reads this row's cell of the vector of `[16][N]` bytes that begins at `vector`.
    #[inline]
    pub(crate) fn get<const N: usize>(&self, vector: usize) -> [u8; N] {
        let cell = self.cell::<N>(vector);
        // SAFETY: `cell` gives N bytes inside the group; nobody writes them now.
        unsafe { cell.cast::<[u8; N]>().read() }
    }
}
