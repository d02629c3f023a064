//! `cargo xtask TASK`: the project's tasks.
fn main() {}
