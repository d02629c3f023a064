//! Why measurements, budgets, plans in words or foreign metadata were refused.

/// Why a [`Sensitivity`](super::Sensitivity) cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SensitivityError {
    /// Written by another version.
    #[error(
        "sensitivity of version {got}, this program reads version {}; measure again",
        super::SENSITIVITY_VERSION
    )]
    Version {
        /// Its version.
        got: u32,
    },
    /// There is nothing to choose for.
    #[error("a sensitivity with no layers")]
    NoLayers,
    /// A layer with nothing to choose from.
    #[error("layer {layer} has no candidates: measure keys and values, or pairs")]
    NoCandidates {
        /// Layer.
        layer: usize,
    },
    /// A list is longer than any model needs.
    #[error("{got} {what}, at most {max} are read")]
    TooMany {
        /// Which list.
        what: String,
        /// Its length.
        got: usize,
        /// The longest that is read.
        max: usize,
    },
    /// A number that cannot be a measurement.
    #[error("layer {layer}: {what} is {value}, it must be {wanted}")]
    Number {
        /// Layer.
        layer: usize,
        /// Which number.
        what: String,
        /// Its value.
        value: f64,
        /// What would do.
        wanted: String,
    },
    /// The same format is measured twice.
    #[error("layer {layer}: {what} is listed twice")]
    Twice {
        /// Layer.
        layer: usize,
        /// What.
        what: String,
    },
}

/// A format that this program does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("layer {layer}: {problem}")]
pub struct UnknownLayerFormat {
    /// Layer.
    pub layer: usize,
    /// Its name, and those known.
    pub problem: String,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// The measurements cannot be used.
    #[error(transparent)]
    Sensitivity(#[from] SensitivityError),
    /// The budget is not a number that means something.
    #[error("a budget of {given}: {wanted}")]
    Budget {
        /// The budget.
        given: String,
        /// What would do.
        wanted: &'static str,
    },
    /// Even the cheapest candidate of every layer is too much.
    #[error(
        "a budget of {given} is {limit_bytes} bytes {what}; the cheapest formats measured take {least_bytes}: at least {least}"
    )]
    Infeasible {
        /// The budget.
        given: String,
        /// The budget in bytes.
        limit_bytes: u64,
        /// What the bytes are of.
        what: String,
        /// The least bytes that are possible.
        least_bytes: u64,
        /// The same as a budget of the given kind.
        least: String,
    },
    /// Byte counts pass 64 bits.
    #[error("the bytes of a plan pass 64 bits")]
    Overflow,
    /// A chosen format is not one that this program has.
    #[error(transparent)]
    UnknownFormat(#[from] UnknownLayerFormat),
    /// A plan has no place for this.
    #[error("layer {layer} keeps {kept} of its tokens; a plan of formats cannot say so")]
    Retention {
        /// Layer.
        layer: usize,
        /// Part of the tokens.
        kept: f64,
    },
}

/// Why a plan in words was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanTextError {
    /// Nothing between two commas, or at all.
    #[error("{text:?} has an empty piece; write a format, as f16, or pieces, as 0-1:f16,2-29:int8")]
    Empty {
        /// The text.
        text: String,
    },
    /// A piece without layers among others.
    #[error("{piece:?} names no layers; write FIRST-LAST:FORMAT, or one format for all layers")]
    NoLayers {
        /// The piece.
        piece: String,
    },
    /// A range that is no range.
    #[error("{range:?} in {piece:?} is no range of layers; write 3 or 2-27")]
    BadRange {
        /// The range.
        range: String,
        /// The piece.
        piece: String,
    },
    /// A range that ends before it begins.
    #[error("{piece:?} descends; write {last}-{first}")]
    Descending {
        /// The piece.
        piece: String,
        /// Its first layer.
        first: usize,
        /// Its last layer.
        last: usize,
    },
    /// A format that is not known.
    #[error("{piece:?}: {problem}")]
    UnknownFormat {
        /// The piece.
        piece: String,
        /// Which name, and those known.
        problem: String,
    },
    /// A layer in two pieces.
    #[error("{piece:?} overlaps {other:?}: layer {layer} would have two formats")]
    Overlap {
        /// The later piece.
        piece: String,
        /// The earlier one.
        other: String,
        /// The first layer in both.
        layer: usize,
    },
    /// Pieces in another order than the layers.
    #[error("{piece:?} comes after {other:?}; write the pieces in the order of the layers")]
    OutOfOrder {
        /// The later piece.
        piece: String,
        /// The earlier one, of later layers.
        other: String,
    },
    /// A layer that the model does not have.
    #[error("{piece:?} is out of range: the model has {n_layers} layers, {}", layers(*n_layers))]
    OutOfRange {
        /// The piece.
        piece: String,
        /// Layers of the model.
        n_layers: usize,
    },
    /// A layer in no piece.
    #[error("layers {first}-{last} are missing; add {first}-{last}:FORMAT")]
    Missing {
        /// First layer without a format.
        first: usize,
        /// Last of the run.
        last: usize,
    },
}

fn layers(n_layers: usize) -> String {
    match n_layers {
        0 => "none".to_owned(),
        1 => "0".to_owned(),
        n => format!("0-{}", n - 1),
    }
}

/// Why ModelOpt's metadata of KV caches does not map onto a plan, or a plan onto it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelOptError {
    /// A schema of another version.
    #[error("kv_cache_schema_version {got}, known is 1")]
    SchemaVersion {
        /// Its version.
        got: u64,
    },
    /// Mixed precision without the list of layers.
    #[error(
        "kv_cache_quant_algo is MIXED_PRECISION, but there is no kv_cache_quantized_layers to say which layer has which"
    )]
    NoLayers,
    /// An algorithm that has no counterpart.
    #[error(
        "{place}: the KV algorithm {name:?} has no counterpart here; known are {}",
        super::modelopt::known_algorithms()
    )]
    UnknownAlgorithm {
        /// Where it stands.
        place: String,
        /// Its name.
        name: String,
    },
    /// A scheme of compressed-tensors form that has no counterpart.
    #[error(
        "kv_cache_scheme of {num_bits} bits and type {kind:?} has no counterpart here; known are 8 bits float (FP8) and 8 bits int (INT8)"
    )]
    UnknownScheme {
        /// Bits.
        num_bits: u64,
        /// Type.
        kind: String,
    },
    /// The whole and a layer disagree.
    #[error("{module}: {layer} contradicts kv_cache_quant_algo {whole}")]
    Contradiction {
        /// The layer's module.
        module: String,
        /// Its algorithm.
        layer: String,
        /// The algorithm given for all.
        whole: String,
    },
    /// A group size that the algorithm does not have.
    #[error("{module}: {algorithm} with groups of {group_size}, known are groups of {wanted}")]
    GroupSize {
        /// The layer's module.
        module: String,
        /// Its algorithm.
        algorithm: String,
        /// Its group size.
        group_size: u64,
        /// The group size that is known.
        wanted: u64,
    },
    /// A module whose layer is not in its name.
    #[error(
        "{module:?} does not say which layer it is; expected are names as model.layers.3.self_attn"
    )]
    NoLayerNumber {
        /// The module.
        module: String,
    },
    /// A layer that the model does not have.
    #[error("{module:?} is layer {layer}, the model has {n_layers} layers")]
    OutOfRange {
        /// The module.
        module: String,
        /// Its layer.
        layer: usize,
        /// Layers of the model.
        n_layers: usize,
    },
    /// Two modules of one layer.
    #[error("{module:?} and {other:?} are both layer {layer}")]
    Twice {
        /// A module.
        module: String,
        /// Another.
        other: String,
        /// Their layer.
        layer: usize,
    },
    /// Formats of ours that ModelOpt has no name for.
    #[error(
        "layer {layer}: ModelOpt has no name for keys in {k} with values in {v}; it has {}",
        super::modelopt::known_pairs()
    )]
    NoName {
        /// Layer.
        layer: usize,
        /// Format of keys.
        k: String,
        /// Format of values.
        v: String,
    },
    /// A format that this program does not have.
    #[error(transparent)]
    UnknownFormat(#[from] UnknownLayerFormat),
}
