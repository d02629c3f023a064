//! What changes from step to step: tokens, positions, block tables. The program stays as it is.

use crate::program::KvLayerDecl;

/// A block id that stands for no block: the tokens have left the window.
pub const NO_BLOCK: u32 = u32::MAX;

/// A copy of one block's contents to another, in every layer of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// KV group.
    pub group: usize,
    /// Block read.
    pub src: u32,
    /// Block written.
    pub dst: u32,
}

/// A sequence's part of a step: rows `first_row .. first_row + n_rows`, its last `n_rows` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceStep<'a> {
    /// First row of the sequence among the step's tokens.
    pub first_row: usize,
    /// Tokens of this step.
    pub n_rows: usize,
    /// Tokens in the sequence after this step.
    pub context_len: usize,
    /// Tokens that the sequence is known to have, those of later steps included; at least
    /// `context_len`. LongRoPE chooses its frequencies by it.
    pub total_len: usize,
    /// For each KV group the block ids of the whole sequence, `ceil(context_len / 32)` of them;
    /// [`NO_BLOCK`] where the window has passed.
    pub block_tables: &'a [&'a [u32]],
}

/// One step: prefill chunks and decode tokens of several sequences, packed.
#[derive(Debug, Clone, Copy)]
pub struct StepInput<'a> {
    /// Token ids, `[T]`.
    pub tokens: &'a [u32],
    /// Position of each token in its sequence, `[T]`.
    pub positions: &'a [u32],
    /// The sequences, in the order of their rows, covering all rows.
    pub sequences: &'a [SequenceStep<'a>],
    /// Rows whose logits are asked for, `[O]`.
    pub output_rows: &'a [u32],
    /// Copies carried out before anything else.
    pub copies: &'a [BlockCopy],
}

/// Why a step is not consistent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// Lengths or rows do not fit together.
    #[error("step is inconsistent: {0}")]
    Shape(&'static str),
    /// A token id is outside the vocabulary.
    #[error("token {token} at row {row} is outside the vocabulary of {vocab_size}")]
    Token {
        /// The row.
        row: usize,
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A block id is outside the pool or missing where the step needs it.
    #[error(
        "sequence {sequence}, group {group}, block {index}: id {id} is not in a pool of {n_blocks} blocks"
    )]
    Block {
        /// Index of the sequence in the step.
        sequence: usize,
        /// KV group.
        group: usize,
        /// Index in the block table.
        index: usize,
        /// The id found.
        id: u32,
        /// Blocks in the pool.
        n_blocks: usize,
    },
    /// More rows than the program was prepared for.
    #[error(
        "step of {n_tokens} tokens and {n_outputs} outputs exceeds the prepared {max_tokens} and {max_outputs}"
    )]
    TooLarge {
        /// Tokens in the step.
        n_tokens: usize,
        /// Output rows in the step.
        n_outputs: usize,
        /// Tokens prepared for.
        max_tokens: usize,
        /// Output rows prepared for.
        max_outputs: usize,
    },
}

impl StepInput<'_> {
    /// Checks every index that kernels will use without looking again.
    ///
    /// `windows[layer]` is the attention window of each KV layer: blocks that a layer still sees
    /// must be present.
    pub fn validate(
        &self,
        vocab_size: usize,
        layers: &[KvLayerDecl],
        windows: &[Option<usize>],
        n_blocks: &[usize],
    ) -> Result<(), StepError> {
        let n_tokens = self.tokens.len();
        if self.positions.len() != n_tokens {
            return Err(StepError::Shape("tokens and positions differ in length"));
        }
        if let Some((row, &token)) = self
            .tokens
            .iter()
            .enumerate()
            .find(|(_, t)| **t as usize >= vocab_size)
        {
            return Err(StepError::Token {
                row,
                token,
                vocab_size,
            });
        }
        if self.output_rows.iter().any(|&row| row as usize >= n_tokens) {
            return Err(StepError::Shape("an output row is beyond the tokens"));
        }
        let mut next_row = 0;
        for (index, sequence) in self.sequences.iter().enumerate() {
            if sequence.first_row != next_row || sequence.n_rows == 0 {
                return Err(StepError::Shape("sequences do not tile the rows"));
            }
            next_row += sequence.n_rows;
            if next_row > n_tokens
                || sequence.n_rows > sequence.context_len
                || sequence.total_len < sequence.context_len
            {
                return Err(StepError::Shape("a sequence has more rows than tokens"));
            }
            let first_position = sequence.context_len - sequence.n_rows;
            let rows = sequence.first_row..next_row;
            if self.positions[rows]
                .iter()
                .enumerate()
                .any(|(i, &p)| p as usize != first_position + i)
            {
                return Err(StepError::Shape(
                    "positions of a sequence are not its last ones",
                ));
            }
            self.validate_tables(index, sequence, first_position, layers, windows, n_blocks)?;
        }
        if next_row != n_tokens {
            return Err(StepError::Shape("sequences do not cover the rows"));
        }
        for copy in self.copies {
            let limit = n_blocks.get(copy.group).copied().unwrap_or(0);
            if copy.src as usize >= limit || copy.dst as usize >= limit {
                return Err(StepError::Shape("a block copy is outside the pool"));
            }
        }
        Ok(())
    }

    fn validate_tables(
        &self,
        index: usize,
        sequence: &SequenceStep<'_>,
        first_position: usize,
        layers: &[KvLayerDecl],
        windows: &[Option<usize>],
        n_blocks: &[usize],
    ) -> Result<(), StepError> {
        let block_tokens = kvant_quant::KV_BLOCK_TOKENS;
        let wanted = sequence.context_len.div_ceil(block_tokens);
        if sequence.block_tables.len() != n_blocks.len() {
            return Err(StepError::Shape("a sequence lacks a block table"));
        }
        for (group, table) in sequence.block_tables.iter().enumerate() {
            if table.len() != wanted {
                return Err(StepError::Shape(
                    "a block table does not cover its sequence",
                ));
            }
            // The earliest token that any layer of the group still sees from this step's first row.
            let first_seen = layers
                .iter()
                .zip(windows)
                .filter(|(layer, _)| layer.group == group)
                .map(|(_, window)| window.map_or(0, |w| (first_position + 1).saturating_sub(w)))
                .min();
            let Some(first_seen) = first_seen else {
                continue;
            };
            for (at, &id) in table.iter().enumerate().skip(first_seen / block_tokens) {
                if id as usize >= n_blocks[group] {
                    return Err(StepError::Block {
                        sequence: index,
                        group,
                        index: at,
                        id,
                        n_blocks: n_blocks[group],
                    });
                }
            }
        }
        Ok(())
    }
}
