//! What the `kvant` program is made of: one module per subcommand, and what they share.

pub mod bench;
pub mod catalogue;
pub mod chat;
pub mod error;
pub mod eval;
pub mod generate;
pub mod inspect;
pub mod pull;
pub mod run;
pub mod sampling;
pub mod session;
pub mod signals;
pub mod terminal;
pub mod tokenize;
