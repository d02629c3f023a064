//! The `kvant` command.
fn main() {}
