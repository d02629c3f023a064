//! Kernels of rows: norms, rotation, activations, sums.

pub(crate) mod elementwise;
pub(crate) mod norm;
pub(crate) mod rope;
