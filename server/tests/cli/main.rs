//! Tests of the real program, one module a subject.

mod bad_input;
mod commands;
mod pull;
mod pull_sources;
mod references;
mod server;
#[cfg(target_os = "linux")]
mod stopping;
mod support;
mod tiny;
