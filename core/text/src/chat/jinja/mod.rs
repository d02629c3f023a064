//! What stands between a chat template, which comes with a model file and is not trusted, and
//! the engine that runs it.
//!
//! `lexer`, `parser` and `expressions` read the source and bound how deep it nests, before anything walks it
//! recursively. `rewrite` writes it again with each operator, literal container, index and lazy
//! filter as a call of `checked`, whose functions pay with fuel for what they visit and make
//! before they make it, keep containers shallow and free of cycles, and leave nothing lazy.
//! `library` has the filters and tests that templates may use; what is not there is refused.

mod ast;
mod checked;
mod expressions;
mod fault;
mod lexer;
mod library;
mod parser;
mod rewrite;

pub(super) use checked::{eager, equal, invalid, is_scalar};
pub(super) use fault::Fault;
pub(super) use library::install;

/// The template in terms of [`install`]ed functions, for an environment that keeps every blank.
///
/// # Errors
/// If it does not parse, nests too deeply, or uses what is not built in.
pub(super) fn rewrite(source: &str) -> Result<String, Fault> {
    let source = source.replace("\r\n", "\n");
    Ok(rewrite::rewrite(&parser::parse(&source)?))
}
