//! Tests of the public interface, partly with real models (see [`common`]).

mod chat;
mod common;
mod hostile;
mod oracle;
mod properties;
mod references;
