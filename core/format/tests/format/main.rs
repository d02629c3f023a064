//! The file formats from outside: what is written is read again, and nothing hostile gets through.

mod common;
mod gguf;
