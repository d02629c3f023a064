//! Matrix products with packed weights: `[rows, k] -> [rows, n]`.
//!
//! A [`MatMul`] is one product of one step, cut into chunks that a team of threads claims one by one:
//! first the [preparation](MatMul::prepare_chunk) of activations, then, when all of it is done, the
//! [product](MatMul::run_chunk).

mod activation;
mod acts;
mod blocks;
mod floats;
mod formats;
mod kernels;
mod plan;
mod run;
mod store;
#[cfg(test)]
mod tests;
mod tiles;

pub use plan::{
    MatMul, MatMulError, MatMulSpec, PREPARE_ROWS, act_bytes_bound, scratch_bytes_bound,
};
pub use run::MatMulIo;
