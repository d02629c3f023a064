//! ModelSpec, weight roles and names, the one graph builder, fusion and lowering.
//!
//! [`Model::open`] reads a checkpoint's configuration into a [`ModelSpec`], builds the graph, fuses it
//! and lowers it to a program; [`Model::load`] sends the weights to a backend.
mod architectures;
mod build;
mod config;
mod error;
mod fusion;
mod graph;
mod load;
mod roles;
mod rope;
mod spec;

pub use architectures::known_architectures;
pub use build::{WeightLookup, build_graph};
pub use error::ModelError;
pub use fusion::{RULES, Rule, fuse};
pub use graph::Graph;
pub use load::{LoadProgress, Model, PlannedWeight};
pub use roles::{LayerRole, Transform, WeightRole, WeightSource};
pub use spec::{AttentionSpec, FfnSpec, LayerSpec, ModelSpec, NormPlacement, QkNormSpec};
