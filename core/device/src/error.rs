//! Errors of a device.

use crate::step::StepError;
use kvant_quant::WeightFormat;

/// What can go wrong on a device.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has not enough memory.
    #[error("cannot allocate {wanted} bytes for {what}")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: usize,
        /// What for.
        what: String,
    },
    /// A size computed from the model overflows.
    #[error("the size of {what} overflows")]
    Overflow {
        /// What was measured.
        what: String,
    },
    /// The backend cannot run an op.
    #[error("op {op} is not supported on this backend: {why}")]
    Unsupported {
        /// Name of the op.
        op: &'static str,
        /// The reason.
        why: String,
    },
    /// The backend cannot hold a weight.
    #[error("weight {name} ({format}): {why}")]
    Weight {
        /// Name of the weight.
        name: String,
        /// Its format.
        format: WeightFormat,
        /// The reason.
        why: String,
    },
    /// The step does not fit the program.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A kernel panicked; the step's outputs and the blocks it wrote are lost.
    #[error("op {op} failed: {message}")]
    Panic {
        /// Name of the op.
        op: &'static str,
        /// The panic's message.
        message: String,
    },
    /// The program was built wrongly.
    #[error("program is inconsistent at node {node} ({op}): {why}")]
    Program {
        /// Index of the node.
        node: usize,
        /// Name of its op.
        op: &'static str,
        /// The reason.
        why: &'static str,
    },
}
