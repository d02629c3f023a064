//! A weight `[n, k]` in the packed layout, and how it is filled.

use super::geometry::{GROUP_ROWS, group_bytes};
use super::memory::{OutOfMemory, Region, WeightArena};
use super::rows;
use kvant_quant::WeightFormat;
use std::sync::Arc;

/// Why a weight cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// Rows are not whole blocks, or the size overflows.
    #[error("{n} rows of {k} columns are no {format} matrix (its blocks have {} columns)", format.block().elements)]
    Shape {
        /// Format of the rows.
        format: WeightFormat,
        /// Rows.
        n: usize,
        /// Columns.
        k: usize,
    },
    /// Bytes that are not whole rows, or more rows than the weight has.
    #[error(
        "{bytes} bytes are not whole rows of {row_bytes} bytes, or more than the {missing_rows} still missing"
    )]
    Rows {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a row.
        row_bytes: usize,
        /// Rows not yet given.
        missing_rows: usize,
    },
    /// The weight ended before its last row.
    #[error("{missing_rows} of {n} rows are missing")]
    Incomplete {
        /// Rows.
        n: usize,
        /// Rows not given.
        missing_rows: usize,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// A weight `[n, k]` in the packed layout. Clones share the bytes.
#[derive(Debug, Clone)]
pub struct PackedWeight {
    format: WeightFormat,
    n: usize,
    k: usize,
    group_bytes: usize,
    row_bytes: usize,
    region: Arc<Region>,
}

/// A weight while its rows arrive, in order.
#[derive(Debug)]
pub struct WeightBuilder {
    format: WeightFormat,
    n: usize,
    k: usize,
    group_bytes: usize,
    row_bytes: usize,
    region: Region,
    rows: usize,
}

struct Sizes {
    group_bytes: usize,
    row_bytes: usize,
    total: usize,
}

fn sizes(format: WeightFormat, n: usize, k: usize) -> Result<Sizes, WeightError> {
    let found = || {
        let row_bytes = format.bytes_for(k)?;
        let group_bytes = group_bytes(format, k)?;
        let total = n.div_ceil(GROUP_ROWS).checked_mul(group_bytes)?;
        (total <= isize::MAX as usize).then_some(Sizes {
            group_bytes,
            row_bytes,
            total,
        })
    };
    found().ok_or(WeightError::Shape { format, n, k })
}

impl PackedWeight {
    /// Bytes that a weight of this shape takes.
    ///
    /// # Errors
    /// [`WeightError::Shape`].
    pub fn predicted_bytes(format: WeightFormat, n: usize, k: usize) -> Result<usize, WeightError> {
        Ok(sizes(format, n, k)?.total)
    }

    /// Memory for a weight whose rows will come through [`WeightBuilder::push`].
    ///
    /// # Errors
    /// [`WeightError::Shape`], [`WeightError::Memory`].
    pub fn builder(
        arena: &WeightArena,
        format: WeightFormat,
        n: usize,
        k: usize,
    ) -> Result<WeightBuilder, WeightError> {
        let sizes = sizes(format, n, k)?;
        Ok(WeightBuilder {
            format,
            n,
            k,
            group_bytes: sizes.group_bytes,
            row_bytes: sizes.row_bytes,
            region: arena.alloc(sizes.total)?,
            rows: 0,
        })
    }

    /// Element format.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Rows, the width of the output.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns, the width of the input.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// Groups of 16 rows, the last one padded with zeros.
    pub fn n_groups(&self) -> usize {
        self.n.div_ceil(GROUP_ROWS)
    }

    /// Bytes of a group.
    pub(crate) fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// Bytes of a row in the file.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// First byte of a group.
    pub(crate) fn group(&self, group: usize) -> *const u8 {
        assert!(group < self.n_groups());
        // SAFETY: the region holds `n_groups` groups.
        unsafe { self.region.as_ptr().add(group * self.group_bytes) }
    }

    /// Decodes row `row` into `out`, `[k]`: the same bits as [`kvant_quant::decode`] of the file's
    /// row. `scratch` is resized as needed.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not `k` long.
    pub fn decode_row(&self, row: usize, out: &mut [f32], scratch: &mut Vec<u8>) {
        assert!(row < self.n && out.len() == self.k);
        self.file_row(row, scratch);
        kvant_quant::decode(self.format, scratch, out).expect("a row is whole blocks");
    }

    /// The bytes of a row as in the file.
    fn file_row(&self, row: usize, bytes: &mut Vec<u8>) {
        bytes.resize(self.row_bytes, 0);
        let (group, lane) = (row / GROUP_ROWS, row % GROUP_ROWS);
        // SAFETY: the group lies in the region and holds rows of this format and length; nobody
        // writes to a finished weight.
        unsafe {
            rows::unpack_row(
                self.format,
                self.group(group),
                self.group_bytes,
                lane,
                bytes,
            );
        }
    }
}

/// Runs `n` independent jobs, each once, possibly at the same time.
pub type ParallelFor<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// Runs jobs one after another.
pub fn sequential(n: usize, job: &(dyn Fn(usize) + Sync)) {
    (0..n).for_each(job);
}

struct SharedGroups(*mut u8);
// SAFETY: the jobs of a push write to disjoint rows.
unsafe impl Sync for SharedGroups {}

impl WeightBuilder {
    /// Rows that have not come yet.
    pub fn missing_rows(&self) -> usize {
        self.n - self.rows
    }

    /// Takes the next whole rows, little-endian, as they lie in the file. `parallel_for` spreads the
    /// work; [`sequential`] does not.
    ///
    /// # Errors
    /// [`WeightError::Rows`]; nothing is taken then.
    pub fn push(&mut self, bytes: &[u8], parallel_for: ParallelFor<'_>) -> Result<(), WeightError> {
        let error = WeightError::Rows {
            bytes: bytes.len(),
            row_bytes: self.row_bytes,
            missing_rows: self.missing_rows(),
        };
        if self.row_bytes == 0 {
            return if bytes.is_empty() { Ok(()) } else { Err(error) };
        }
        if !bytes.len().is_multiple_of(self.row_bytes) {
            return Err(error);
        }
        let count = bytes.len() / self.row_bytes;
        if count > self.missing_rows() {
            return Err(error);
        }
        let (first, row_bytes, group_bytes) = (self.rows, self.row_bytes, self.group_bytes);
        let format = self.format;
        let groups = SharedGroups(self.region.as_mut_ptr());
        let groups = &groups;
        let job = |i: usize| {
            // Job i takes the rows of one group.
            let group = first / GROUP_ROWS + i;
            let start = (group * GROUP_ROWS).max(first);
            let end = ((group + 1) * GROUP_ROWS).min(first + count);
            for row in start..end {
                let from = &bytes[(row - first) * row_bytes..][..row_bytes];
                // SAFETY: the region holds `n` rows, row < n, and no other job has this row.
                unsafe {
                    let at = groups.0.add(group * group_bytes);
                    rows::pack_row(format, from, at, group_bytes, row % GROUP_ROWS);
                }
            }
        };
        let n_jobs = (first + count).div_ceil(GROUP_ROWS) - first / GROUP_ROWS;
        parallel_for(n_jobs, &job);
        self.rows += count;
        Ok(())
    }

    /// Ends the weight.
    ///
    /// # Errors
    /// [`WeightError::Incomplete`] when rows are missing.
    pub fn finish(self) -> Result<PackedWeight, WeightError> {
        if self.rows < self.n && self.row_bytes > 0 {
            return Err(WeightError::Incomplete {
                n: self.n,
                missing_rows: self.missing_rows(),
            });
        }
        Ok(PackedWeight {
            format: self.format,
            n: self.n,
            k: self.k,
            group_bytes: self.group_bytes,
            row_bytes: self.row_bytes,
            region: Arc::new(self.region),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvant_quant::testing::random_blocks;

    /// Every format in odd shapes, pushed in pieces that split groups.
    #[test]
    fn rows_come_back_to_the_bit() {
        let arena = WeightArena::new();
        for &format in WeightFormat::ALL {
            let block = format.block();
            for (n, blocks) in [(1, 1), (16, 2), (37, 3)] {
                let k = blocks * block.elements;
                let bytes = random_blocks(format, n * blocks, n as u64);
                let row_bytes = blocks * block.bytes;
                let mut builder = PackedWeight::builder(&arena, format, n, k).expect("shape");
                for piece in bytes.chunks(5 * row_bytes) {
                    builder.push(piece, &sequential).expect("rows");
                }
                let weight = builder.finish().expect("all rows");
                let predicted = PackedWeight::predicted_bytes(format, n, k).expect("shape");
                assert_eq!(weight.bytes(), predicted);
                let (mut out, mut want) = (vec![0.0; k], vec![0.0; k]);
                let mut scratch = Vec::new();
                for row in 0..n {
                    let file = &bytes[row * row_bytes..][..row_bytes];
                    weight.file_row(row, &mut scratch);
                    assert_eq!(scratch, file, "{format} row {row}");
                    weight.decode_row(row, &mut out, &mut scratch);
                    kvant_quant::decode(format, file, &mut want).expect("whole blocks");
                    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&out), bits(&want), "{format} row {row}");
                }
            }
        }
    }

    #[test]
    fn every_scale_byte_of_mxfp4_survives() {
        let arena = WeightArena::new();
        let bytes: Vec<u8> = (0..=255u8)
            .flat_map(|e| [&[e][..], &[e; 16]].concat())
            .collect();
        let mut builder =
            PackedWeight::builder(&arena, WeightFormat::MXFP4, 256, 32).expect("shape");
        builder.push(&bytes, &sequential).expect("rows");
        let weight = builder.finish().expect("all rows");
        let mut scratch = Vec::new();
        for row in 0..256 {
            weight.file_row(row, &mut scratch);
            assert_eq!(scratch, bytes[row * 17..][..17]);
        }
    }

    #[test]
    fn packed_is_about_as_large_as_the_file() {
        for &format in WeightFormat::ALL {
            let (n, k) = (512, 1536);
            let file = format.bytes_for(n * k).expect("whole blocks");
            let packed = PackedWeight::predicted_bytes(format, n, k).expect("shape");
            assert!(packed >= file, "{format}");
            let most = if format == WeightFormat::MXFP4 {
                1.06
            } else {
                1.04
            };
            assert!(
                packed as f64 <= most * file as f64,
                "{format}: {packed} {file}"
            );
        }
    }

    #[test]
    fn wrong_rows_are_errors() {
        let arena = WeightArena::new();
        let format = WeightFormat::Q4_0;
        assert!(matches!(
            PackedWeight::builder(&arena, format, 2, 33),
            Err(WeightError::Shape { .. })
        ));
        assert!(PackedWeight::predicted_bytes(format, usize::MAX, 32).is_err());
        let mut builder = PackedWeight::builder(&arena, format, 2, 32).expect("shape");
        assert!(builder.push(&[0; 17], &sequential).is_err());
        assert!(builder.push(&[0; 54], &sequential).is_err());
        builder.push(&[0; 18], &sequential).expect("one row");
        assert_eq!(builder.missing_rows(), 1);
        assert!(matches!(
            builder.finish(),
            Err(WeightError::Incomplete {
                missing_rows: 1,
                ..
            })
        ));
    }
}
