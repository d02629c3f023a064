//! A case: program, weights, steps, tolerance.

use kvant_device::{Program, WeightUse};
use kvant_quant::KvFormats;

/// One op, or a few that belong together, on one shape.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is, for test output: `MatMul Q4_1 n=33 k=96 rows=7`.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Bytes of each weight of the program, in its declared format.
    pub weights: Vec<CaseWeight>,
    /// Formats of keys and values in every KV layer.
    pub kv: KvFormats,
    /// Blocks of each KV group.
    pub n_blocks: Vec<usize>,
    /// Steps in order; outputs of the last are compared.
    pub steps: Vec<CaseStep>,
    /// How far a backend may be from the reference.
    pub tolerance: Tolerance,
}

/// A weight's bytes and its use.
#[derive(Debug, Clone)]
pub struct CaseWeight {
    /// Rows in the declared format.
    pub bytes: Vec<u8>,
    /// How the program uses it.
    pub usage: WeightUse,
}

/// One step, owned.
#[derive(Debug, Clone, Default)]
pub struct CaseStep {
    /// Token ids, `[T]`.
    pub tokens: Vec<u32>,
    /// The sequences.
    pub sequences: Vec<CaseSequence>,
    /// Rows gathered.
    pub output_rows: Vec<u32>,
    /// Block copies as `(group, source, destination)`.
    pub copies: Vec<(usize, u32, u32)>,
}

/// A sequence of a step, owned.
#[derive(Debug, Clone)]
pub struct CaseSequence {
    /// Rows of this step.
    pub n_rows: usize,
    /// Tokens after this step.
    pub context_len: usize,
    /// Tokens the sequence will have.
    pub total_len: usize,
    /// Block table of each group.
    pub block_tables: Vec<Vec<u32>>,
}

/// How far a result may be from the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Most `sum (x - r)² / sum r²` over an output.
    pub normalised_square: f64,
    /// Most `max |x - r|` as a multiple of the reference's root mean square.
    pub max_error: f64,
}

impl Tolerance {
    /// f32 arithmetic in another order.
    pub const F32: Self = Self {
        normalised_square: 1e-11,
        max_error: 1e-4,
    };
    /// Activations rounded to 8 bits a block of 32, or both sides to bf16. Rounding to `amax / 127`
    /// steps has a relative variance of `(amax / rms)² / (127² · 12)`, below 5e-5 for the data used.
    pub const ROUNDED_ACTIVATIONS: Self = Self {
        normalised_square: 1e-4,
        max_error: 0.06,
    };
    /// The same for products of two such sums: their errors add up, and a few large outputs, where
    /// both happen to be off, make most of them.
    pub const GATED_ROUNDED_ACTIVATIONS: Self = Self {
        normalised_square: 1e-3,
        max_error: 0.3,
    };
}
