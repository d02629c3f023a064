//! The seam between the engine and a device.

use crate::error::DeviceError;
use crate::op::Op;
use crate::program::Program;
use crate::step::StepInput;
use kvant_quant::{KvFormat, WeightFormat};

/// A device that runs programs. Dispatch is static, handles are cheap to clone.
///
/// Contract: `submit` never waits for the outside world; what it writes is seen by the next `read`
/// of the same exec. A failed call leaves weights and KV blocks as they were.
pub trait Backend: 'static {
    /// Plain memory on the device (the KV arena).
    type Buffer: Clone;
    /// A weight in the backend's own layout.
    type Weight: Clone;
    /// A weight while its rows arrive.
    type WeightUpload;
    /// A prepared program.
    type Exec;

    /// What the device is and can do.
    fn caps(&self) -> &Caps;

    /// Whether the op runs, asked when a plan is made; never a silent fallback.
    fn supports(&self, op: &Op) -> Support;

    /// Allocates zeroed memory.
    fn alloc(&self, req: &BufferReq) -> Result<Self::Buffer, DeviceError>;

    /// Bytes that a weight will take on the device.
    fn weight_bytes(&self, desc: &WeightDesc) -> Result<usize, DeviceError>;

    /// Begins a weight; rows follow in order through [`Backend::push_rows`].
    fn begin_weight(&self, desc: &WeightDesc) -> Result<Self::WeightUpload, DeviceError>;

    /// Takes the next whole rows, in the file's layout, little-endian.
    fn push_rows(&self, upload: &mut Self::WeightUpload, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Ends a weight; an error when rows are missing.
    fn finish_weight(&self, upload: Self::WeightUpload) -> Result<Self::Weight, DeviceError>;

    /// Bytes that [`Backend::prepare`] will take for activations and scratch.
    fn exec_bytes(&self, program: &Program, options: &PrepareOptions)
    -> Result<usize, DeviceError>;

    /// Makes a program ready to run: kernels chosen, memory allocated.
    fn prepare(
        &self,
        program: &Program,
        bindings: Bindings<'_, Self>,
        options: &PrepareOptions,
    ) -> Result<Self::Exec, DeviceError>;

    /// Runs one step.
    fn submit(&self, exec: &mut Self::Exec, step: &StepInput<'_>) -> Result<(), DeviceError>;

    /// Reads output `index` of the program after the last step into `dst`, `[rows, width]`; `dst`
    /// is resized. The only place that may wait.
    fn read(
        &self,
        exec: &Self::Exec,
        index: usize,
        dst: &mut Vec<f32>,
    ) -> impl Future<Output = Result<(), DeviceError>>;
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// Backend and instruction set or adapter, for people.
    pub name: String,
    /// Threads, compute units or 1.
    pub parallelism: usize,
    /// Bytes the device may use; `None` when it cannot tell.
    pub memory_bytes: Option<u64>,
}

/// Whether an op runs on a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// By its own kernel.
    Native,
    /// By a slower general path, and why.
    Emulated(String),
    /// Not at all, and why.
    No(String),
}

/// Memory asked of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferReq {
    /// Bytes.
    pub bytes: usize,
    /// What for, in errors.
    pub what: String,
}

/// How a program uses a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightUse {
    /// Multiplied, `[n_rows, n_cols]`.
    Matrix,
    /// Rows looked up.
    Table,
    /// Both: tied embeddings.
    MatrixAndTable,
    /// Norm factors or a bias: `n_rows == 1`; the backend keeps f32.
    Vector,
}

/// A weight to be loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightDesc {
    /// Name for errors.
    pub name: String,
    /// Element format of the rows that arrive.
    pub format: WeightFormat,
    /// Output rows.
    pub n_rows: usize,
    /// Input columns.
    pub n_cols: usize,
    /// How it is used.
    pub usage: WeightUse,
}

/// Sizes a program is prepared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrepareOptions {
    /// Most tokens a step.
    pub max_tokens: usize,
    /// Most output rows a step.
    pub max_outputs: usize,
    /// Most tokens a sequence.
    pub max_context: usize,
    /// Same bits for a row whatever shares its step: one kernel family for every batch and chunk size.
    pub deterministic: bool,
}

/// Where a layer's keys and values lie in the KV buffer. Block `b` of the keys begins at
/// `k_offset + b * k_block_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayerBinding {
    /// Format of keys.
    pub k_format: KvFormat,
    /// Format of values.
    pub v_format: KvFormat,
    /// First byte of the keys' region.
    pub k_offset: usize,
    /// First byte of the values' region.
    pub v_offset: usize,
    /// Bytes a block of keys.
    pub k_block_bytes: usize,
    /// Bytes a block of values.
    pub v_block_bytes: usize,
}

/// The KV arena and where each layer lies in it.
#[derive(Debug, Clone)]
pub struct KvBinding<Buffer> {
    /// The arena.
    pub buffer: Buffer,
    /// Each KV layer of the program.
    pub layers: Vec<KvLayerBinding>,
    /// Blocks of each KV group.
    pub n_blocks: Vec<usize>,
}

/// What a program is bound to.
pub struct Bindings<'a, B: Backend + ?Sized> {
    /// Each weight of the program, by id.
    pub weights: &'a [B::Weight],
    /// Keys and values.
    pub kv: KvBinding<B::Buffer>,
}
