//! Runs a case on a backend, and compares results.

use crate::case::{Case, CaseStep};
use kvant_device::{
    Backend, Bindings, BlockCopy, BufferReq, DeviceError, KvBinding, KvLayerBinding,
    PrepareOptions, SequenceStep, StepInput, WeightDesc,
};

/// Why a case did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The backend refused or failed.
    #[error("{case}: {source}")]
    Device {
        /// Name of the case.
        case: String,
        /// What it said.
        source: DeviceError,
    },
    /// A result is too far from the reference.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
}

/// A result too far from the reference.
#[derive(Debug, thiserror::Error)]
#[error(
    "{case}, output {output}: normalised square error {normalised_square:.3e}, largest error {max_error:.3e} of \
     the rms, at index {index}: {got} instead of {want}"
)]
pub struct Mismatch {
    /// Name of the case.
    pub case: String,
    /// Which output.
    pub output: usize,
    /// `sum (x - r)² / sum r²`.
    pub normalised_square: f64,
    /// `max |x - r|` over the root mean square of `r`.
    pub max_error: f64,
    /// Where the largest error is.
    pub index: usize,
    /// The value there.
    pub got: f32,
    /// The reference there.
    pub want: f32,
}

/// Runs every step and returns the outputs of the last.
pub fn run<B: Backend>(
    backend: &B,
    case: &Case,
    deterministic: bool,
) -> Result<Vec<Vec<f32>>, RunError> {
    run_device(backend, case, deterministic).map_err(|source| RunError::Device {
        case: case.name.clone(),
        source,
    })
}

fn run_device<B: Backend>(
    backend: &B,
    case: &Case,
    deterministic: bool,
) -> Result<Vec<Vec<f32>>, DeviceError> {
    let mut weights = Vec::new();
    for (decl, weight) in case.program.weights.iter().zip(&case.weights) {
        let desc = WeightDesc {
            name: decl.name.clone(),
            format: decl.format,
            n_rows: decl.n_rows,
            n_cols: decl.n_cols,
            usage: weight.usage,
        };
        let mut upload = backend.begin_weight(&desc)?;
        // Two pieces, so that a backend cannot rely on getting everything at once.
        let row_bytes = weight.bytes.len() / decl.n_rows.max(1);
        let (first, second) = weight.bytes.split_at(decl.n_rows.div_ceil(2) * row_bytes);
        for piece in [first, second].into_iter().filter(|p| !p.is_empty()) {
            backend.push_rows(&mut upload, piece)?;
        }
        weights.push(backend.finish_weight(upload)?);
    }
    let kv = bind_kv(backend, case)?;
    let options = PrepareOptions {
        max_tokens: case.steps.iter().map(|s| s.tokens.len()).max().unwrap_or(1),
        max_outputs: case
            .steps
            .iter()
            .map(|s| s.output_rows.len())
            .max()
            .unwrap_or(1),
        max_context: case
            .steps
            .iter()
            .flat_map(|s| &s.sequences)
            .map(|s| s.context_len)
            .max()
            .unwrap_or(1),
        deterministic,
    };
    let mut exec = backend.prepare(
        &case.program,
        Bindings {
            weights: &weights,
            kv,
        },
        &options,
    )?;
    for step in &case.steps {
        submit(backend, &mut exec, step)?;
    }
    let mut outputs = Vec::new();
    for index in 0..case.program.outputs.len() {
        let mut values = Vec::new();
        pollster::block_on(backend.read(&exec, index, &mut values))?;
        outputs.push(values);
    }
    Ok(outputs)
}

fn bind_kv<B: Backend>(backend: &B, case: &Case) -> Result<KvBinding<B::Buffer>, DeviceError> {
    let mut layers = Vec::new();
    let mut offset = 0usize;
    for layer in &case.program.kv_layers {
        let overflow = || DeviceError::Overflow {
            what: "keys and values".to_owned(),
        };
        let k_block_bytes = case
            .kv
            .k
            .block_bytes(layer.n_kv_heads, layer.head_dim)
            .ok_or_else(overflow)?;
        let v_block_bytes = case
            .kv
            .v
            .block_bytes(layer.n_kv_heads, layer.v_head_dim)
            .ok_or_else(overflow)?;
        let n_blocks = case.n_blocks[layer.group];
        let (k_offset, v_offset) = (offset, offset + n_blocks * k_block_bytes);
        offset = v_offset + n_blocks * v_block_bytes;
        layers.push(KvLayerBinding {
            k_format: case.kv.k,
            v_format: case.kv.v,
            k_offset,
            v_offset,
            k_block_bytes,
            v_block_bytes,
        });
    }
    let buffer = backend.alloc(&BufferReq {
        bytes: offset,
        what: "keys and values".to_owned(),
    })?;
    Ok(KvBinding {
        buffer,
        layers,
        n_blocks: case.n_blocks.clone(),
    })
}

fn submit<B: Backend>(backend: &B, exec: &mut B::Exec, step: &CaseStep) -> Result<(), DeviceError> {
    let tables: Vec<Vec<&[u32]>> = step
        .sequences
        .iter()
        .map(|s| s.block_tables.iter().map(Vec::as_slice).collect())
        .collect();
    let mut first_row = 0;
    let mut sequences = Vec::new();
    let mut positions = Vec::new();
    for (sequence, block_tables) in step.sequences.iter().zip(&tables) {
        let (n_rows, context_len) = (sequence.n_rows, sequence.context_len);
        sequences.push(SequenceStep {
            first_row,
            n_rows,
            context_len,
            total_len: sequence.total_len,
            block_tables,
        });
        positions.extend((context_len - n_rows..context_len).map(|p| p as u32));
        first_row += n_rows;
    }
    let copies: Vec<BlockCopy> = step
        .copies
        .iter()
        .map(|&(group, src, dst)| BlockCopy { group, src, dst })
        .collect();
    let input = StepInput {
        tokens: &step.tokens,
        positions: &positions,
        sequences: &sequences,
        output_rows: &step.output_rows,
        copies: &copies,
    };
    backend.submit(exec, &input)
}

/// Compares outputs with the reference's.
pub fn check(case: &Case, got: &[Vec<f32>], want: &[Vec<f32>]) -> Result<(), Mismatch> {
    for (output, (got, want)) in got.iter().zip(want).enumerate() {
        let square: f64 = want.iter().map(|&r| f64::from(r).powi(2)).sum();
        let rms = (square / want.len().max(1) as f64)
            .sqrt()
            .max(f64::MIN_POSITIVE);
        let errors = || {
            got.iter()
                .zip(want)
                .map(|(&x, &r)| (f64::from(x) - f64::from(r)).abs())
        };
        // A NaN compares as the largest error.
        let (index, worst) = errors()
            .enumerate()
            .fold((0, 0.0), |best: (usize, f64), (i, e)| {
                if best.1.is_nan() || e <= best.1 {
                    best
                } else {
                    (i, e)
                }
            });
        let mismatch = Mismatch {
            case: case.name.clone(),
            output,
            normalised_square: errors().map(|e| e * e).sum::<f64>() / square.max(f64::MIN_POSITIVE),
            max_error: worst / rms,
            index,
            got: got.get(index).copied().unwrap_or(f32::NAN),
            want: want.get(index).copied().unwrap_or(f32::NAN),
        };
        let within = mismatch.normalised_square <= case.tolerance.normalised_square
            && mismatch.max_error <= case.tolerance.max_error;
        if !within || got.len() != want.len() {
            return Err(mismatch);
        }
    }
    Ok(())
}
