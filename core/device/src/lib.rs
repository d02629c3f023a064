//! What a backend must provide: the op list, programs, the arena planner and the `Backend` trait.
//!
//! Nothing here knows a model or a file. A [`Program`] is a flat list of transformer-sized [`Op`]s
//! over activations that are always `f32 [rows, width]`; a [`Backend`] prepares it once and then
//! submits it for every step.
mod arena;
mod backend;
mod error;
mod op;
mod program;
mod step;

pub use arena::{ArenaPlan, SlotId};
pub use backend::{
    Backend, Bindings, BufferReq, Caps, KvBinding, KvLayerBinding, PrepareOptions, Support,
    WeightDesc, WeightUse,
};
pub use error::DeviceError;
pub use op::{
    Activation, Attention, Epilogue, HeadShape, Norm, NormKind, Op, QkNorm, QkRope, RopeScaling,
    RopeSpec, RopeStyle,
};
pub use program::{KvLayerDecl, Node, Program, Rows, ValueDesc, ValueId, WeightDecl, WeightId};
pub use step::{BlockCopy, NO_BLOCK, SequenceStep, StepError, StepInput};
