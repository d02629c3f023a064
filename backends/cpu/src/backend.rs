//! The backend: a team, an instruction set, and what the engine asks of a device.

use crate::Level;
use crate::exec::{CpuExec, check_heads, check_rope, exec_bytes};
use crate::memory::CpuBuffer;
use crate::team::{Team, default_threads};
use crate::weights::{
    OutOfMemory, PackedWeight, ParallelFor, WeightArena, WeightBuilder, WeightError, sequential,
};
use kvant_device::{
    Backend, Bindings, BufferReq, Caps, DeviceError, Op, PrepareOptions, Program, StepInput,
    Support, WeightDesc, WeightUse,
};
use std::sync::Arc;

/// Runs programs on the CPU. Clones share threads and weight memory.
#[derive(Clone)]
pub struct CpuBackend {
    inner: Arc<Inner>,
}

struct Inner {
    team: Team,
    level: Level,
    weights: WeightArena,
    caps: Caps,
}

/// A weight on the CPU.
#[derive(Debug, Clone)]
pub enum CpuWeight {
    /// Packed rows, for products and look-ups.
    Matrix(PackedWeight),
    /// Norm factors or a bias.
    Vector(Arc<[f32]>),
}

/// A weight while its rows arrive.
#[derive(Debug)]
pub struct CpuUpload {
    desc: WeightDesc,
    rows: Rows,
    /// Bytes that have come.
    bytes: usize,
}

#[derive(Debug)]
enum Rows {
    Matrix(WeightBuilder),
    Vector(Vec<f32>),
}

impl CpuBackend {
    /// A backend of `n_threads` threads, the caller's included, on the best instruction set that this
    /// machine has. `None` takes every physical core the process may use.
    pub fn new(n_threads: Option<usize>) -> Self {
        Self::with_level(n_threads, Level::detect())
    }

    /// The same on a given instruction set, which [`Level::is_available`].
    ///
    /// # Panics
    /// When this machine lacks the level.
    pub fn with_level(n_threads: Option<usize>, level: Level) -> Self {
        assert!(level.is_available(), "this machine does not have {level}");
        let team = Team::new(n_threads.unwrap_or_else(default_threads));
        let caps = Caps {
            name: format!("cpu ({level})"),
            parallelism: team.n_threads(),
            memory_bytes: None,
        };
        Self {
            inner: Arc::new(Inner {
                team,
                level,
                weights: WeightArena::new(),
                caps,
            }),
        }
    }

    /// The instruction set.
    pub fn level(&self) -> Level {
        self.inner.level
    }

    /// Spreads jobs over the team. A job that panics on a worker panics here.
    fn parallel(&self, n: usize, job: &(dyn Fn(usize) + Sync)) {
        if let Err(panic) = self.inner.team.for_each(n, |index, _thread| job(index)) {
            panic!("{}", panic.message);
        }
    }
}

fn weight_error(desc: &WeightDesc, why: impl ToString) -> DeviceError {
    DeviceError::Weight {
        name: desc.name.clone(),
        format: desc.format,
        why: why.to_string(),
    }
}

fn packing_error(desc: &WeightDesc, error: WeightError) -> DeviceError {
    match error {
        WeightError::Memory(OutOfMemory { bytes }) => DeviceError::OutOfMemory {
            wanted: bytes,
            what: desc.name.clone(),
        },
        other => weight_error(desc, other),
    }
}

/// Elements of a vector; an error when it is none.
fn vector_len(desc: &WeightDesc) -> Result<usize, DeviceError> {
    if desc.n_rows != 1 {
        return Err(weight_error(desc, "a vector has one row"));
    }
    if desc.format.bytes_for(desc.n_cols).is_none() {
        return Err(weight_error(desc, "the vector is not whole blocks"));
    }
    Ok(desc.n_cols)
}

impl Backend for CpuBackend {
    type Buffer = CpuBuffer;
    type Weight = CpuWeight;
    type WeightUpload = CpuUpload;
    type Exec = CpuExec;

    fn caps(&self) -> &Caps {
        &self.inner.caps
    }

    fn supports(&self, op: &Op) -> Support {
        let checked = match op {
            Op::WriteKv { heads, .. } => check_heads(heads),
            Op::PagedAttention(attention) => check_heads(&attention.heads),
            Op::QkNormRope(rope) | Op::RopeWriteKv { rope, .. } => check_rope(rope),
            _ => Ok(()),
        };
        match checked {
            Ok(()) => Support::Native,
            Err(why) => Support::No(why.to_owned()),
        }
    }

    fn alloc(&self, req: &BufferReq) -> Result<CpuBuffer, DeviceError> {
        CpuBuffer::new(req.bytes).ok_or_else(|| DeviceError::OutOfMemory {
            wanted: req.bytes,
            what: req.what.clone(),
        })
    }

    fn weight_bytes(&self, desc: &WeightDesc) -> Result<usize, DeviceError> {
        match desc.usage {
            WeightUse::Vector => {
                let overflow = || DeviceError::Overflow {
                    what: desc.name.clone(),
                };
                vector_len(desc)?.checked_mul(4).ok_or_else(overflow)
            }
            _ => PackedWeight::predicted_bytes(desc.format, desc.n_rows, desc.n_cols)
                .map_err(|e| packing_error(desc, e)),
        }
    }

    fn begin_weight(&self, desc: &WeightDesc) -> Result<CpuUpload, DeviceError> {
        let rows = match desc.usage {
            WeightUse::Vector => {
                let len = vector_len(desc)?;
                let mut values = Vec::new();
                values
                    .try_reserve_exact(len)
                    .map_err(|_| DeviceError::OutOfMemory {
                        wanted: len.saturating_mul(4),
                        what: desc.name.clone(),
                    })?;
                Rows::Vector(values)
            }
            _ => {
                let arena = &self.inner.weights;
                let builder = PackedWeight::builder(arena, desc.format, desc.n_rows, desc.n_cols);
                Rows::Matrix(builder.map_err(|e| packing_error(desc, e))?)
            }
        };
        Ok(CpuUpload {
            desc: desc.clone(),
            rows,
            bytes: 0,
        })
    }

    fn push_rows(&self, upload: &mut CpuUpload, bytes: &[u8]) -> Result<(), DeviceError> {
        let desc = &upload.desc;
        let block_bytes = desc.format.block().bytes;
        kvant_quant::check_scales(desc.format, bytes).map_err(|e| {
            let before = upload.bytes / block_bytes;
            let why = match e {
                kvant_quant::QuantError::InvalidScale { format, block } => {
                    kvant_quant::QuantError::InvalidScale {
                        format,
                        block: before + block,
                    }
                }
                other => other,
            };
            weight_error(desc, why)
        })?;
        match &mut upload.rows {
            Rows::Matrix(builder) => {
                let parallel: ParallelFor<'_> = &|n, job| self.parallel(n, job);
                // Waking the team costs more than a few rows.
                let spread = if bytes.len() > 64 << 10 {
                    parallel
                } else {
                    &sequential
                };
                builder
                    .push(bytes, spread)
                    .map_err(|e| packing_error(desc, e))?;
            }
            Rows::Vector(values) => {
                let at = values.len();
                let n = bytes.len() / block_bytes * desc.format.block().elements;
                if at + n > desc.n_cols {
                    return Err(weight_error(desc, "more elements than declared"));
                }
                values.resize(at + n, 0.0);
                kvant_quant::decode(desc.format, bytes, &mut values[at..])
                    .map_err(|e| weight_error(desc, e))?;
            }
        }
        upload.bytes += bytes.len();
        Ok(())
    }

    fn finish_weight(&self, upload: CpuUpload) -> Result<CpuWeight, DeviceError> {
        let CpuUpload { desc, rows, .. } = upload;
        match rows {
            Rows::Matrix(builder) => builder
                .finish()
                .map(CpuWeight::Matrix)
                .map_err(|e| packing_error(&desc, e)),
            Rows::Vector(values) if values.len() == desc.n_cols => {
                Ok(CpuWeight::Vector(values.into()))
            }
            Rows::Vector(_) => Err(weight_error(&desc, "fewer elements than declared")),
        }
    }

    fn exec_bytes(
        &self,
        program: &Program,
        options: &PrepareOptions,
    ) -> Result<usize, DeviceError> {
        exec_bytes(
            program,
            options,
            self.inner.level,
            self.inner.team.n_threads(),
        )
    }

    fn prepare(
        &self,
        program: &Program,
        bindings: Bindings<'_, Self>,
        options: &PrepareOptions,
    ) -> Result<CpuExec, DeviceError> {
        CpuExec::new(
            program,
            bindings.weights,
            bindings.kv,
            options,
            self.inner.level,
            self.inner.team.n_threads(),
        )
    }

    fn submit(&self, exec: &mut CpuExec, step: &StepInput<'_>) -> Result<(), DeviceError> {
        exec.run(&self.inner.team, step)
    }

    async fn read(
        &self,
        exec: &CpuExec,
        index: usize,
        dst: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        dst.clear();
        dst.extend_from_slice(exec.output(index));
        Ok(())
    }
}
