//! The oracle: a plain interpreter of programs, never optimised.
