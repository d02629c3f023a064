//! What the `kvant` program is made of: one module per subcommand, and what they share.

pub mod catalogue;
pub mod pull;
pub mod signals;
