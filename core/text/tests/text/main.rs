//! Tests of the public interface, partly with real models (see [`common`]).

mod chat;
mod common;
mod oracle;
mod properties;
mod references;
