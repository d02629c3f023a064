//! Sequences, scheduler, sampler and the engine that drives a backend.
