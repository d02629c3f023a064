//! ModelSpec, weight roles and names, the one graph builder, fusion and lowering.
