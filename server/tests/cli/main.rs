//! Tests of the real program, one module a subject.

mod pull;
mod pull_sources;
mod server;
mod support;
