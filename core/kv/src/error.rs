//! What can go wrong, with the numbers that say how far off it was.

/// Why a plan, a layout or a sequence operation was refused. Nothing has changed when it is
/// returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// A pool has fewer free blocks than the operation needs. Free a sequence, or wait for one.
    #[error("KV group {group}: {wanted} blocks wanted, {free} free")]
    OutOfBlocks {
        /// KV group.
        group: usize,
        /// Blocks that the operation must allocate.
        wanted: usize,
        /// Blocks that are free or become free by it.
        free: usize,
    },
    /// A sequence would pass the positions that a `u32` counts.
    #[error(
        "a sequence of {n_tokens} tokens cannot take {more} more: positions end at {}",
        u32::MAX
    )]
    TooLong {
        /// Tokens in the sequence.
        n_tokens: usize,
        /// Tokens to be added.
        more: usize,
    },
    /// A sequence was to be cut to more tokens than it has.
    #[error("a sequence of {n_tokens} tokens cannot be cut to {wanted}")]
    TruncateBeyondEnd {
        /// Tokens in the sequence.
        n_tokens: usize,
        /// Tokens asked for.
        wanted: usize,
    },
    /// A sequence was to be cut to a length whose window has lost blocks. Free it and compute it
    /// again.
    #[error(
        "KV group {group}: cutting to {wanted} tokens needs blocks that left the window; possible are 0 or at least {shortest}"
    )]
    WindowPassed {
        /// KV group.
        group: usize,
        /// Tokens asked for.
        wanted: usize,
        /// Fewest tokens that are possible, other than none.
        shortest: usize,
    },
    /// A pool asks for more blocks than slots can be numbered or memory can be had for.
    #[error("KV group {group}: {capacity} blocks are too many, at most {max} can be numbered")]
    PoolTooLarge {
        /// KV group.
        group: usize,
        /// Blocks asked for.
        capacity: usize,
        /// Most blocks a pool can number.
        max: usize,
    },
    /// Lists that belong together differ in length.
    #[error("{what}: {got} given, {wanted} wanted")]
    Count {
        /// Which list.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length that fits.
        wanted: usize,
    },
    /// A number of a layer's shape is zero or too large.
    #[error("layer {layer}: {field} is {value}")]
    Geometry {
        /// Layer.
        layer: usize,
        /// Which number.
        field: &'static str,
        /// Its value.
        value: usize,
    },
    /// A window of no tokens.
    #[error("KV group {group}: a window must hold at least one token")]
    EmptyWindow {
        /// KV group.
        group: usize,
    },
    /// Byte counts pass what this machine can address.
    #[error("KV blocks take more bytes than can be addressed here ({what})")]
    Overflow {
        /// What was being summed.
        what: &'static str,
    },
}
