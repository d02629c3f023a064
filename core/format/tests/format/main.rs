//! The file formats from outside: what is written is read again.

mod common;
mod gguf;
mod hf;
mod properties;
mod writer;
