//! The engine: sequences in, tokens out, one mixed step at a time.

use crate::error::EngineError;
use crate::memory::{MemoryPlan, blocks, kv_geometry, prepare_options};
use crate::options::EngineOptions;
use crate::request::{Event, FinishReason, Request, SequenceId};
use crate::sampler::Sampler;
use crate::scheduler::{self, Pending, Share};
use kvant_device::{
    Backend, Bindings, BlockCopy, BufferReq, KvBinding, KvLayerBinding, Op, Program, RopeScaling,
    RopeSpec, SequenceStep, StepInput,
};
use kvant_kv::{IntegrityError, KvError, KvLayout, KvPools, KvSide, SequenceKv, check_integrity};
use kvant_model::{LoadProgress, Model};

/// A model on a device, its blocks, and the sequences that run on it.
pub struct Engine<B: Backend> {
    backend: B,
    exec: B::Exec,
    pools: KvPools,
    options: EngineOptions,
    memory: MemoryPlan,
    vocab_size: usize,
    /// Lengths beyond which the model's rotation changes, so that all keys must be computed again.
    rope_switches: Vec<usize>,
    /// In order of arrival.
    sequences: Vec<Sequence>,
    next_id: u64,
    /// Copies that the next step must make.
    copies: Vec<BlockCopy>,
    /// Logits of the last step, `[O, vocab_size]`.
    logits: Vec<f32>,
}

struct Sequence {
    id: SequenceId,
    tokens: Vec<u32>,
    n_prompt: usize,
    request: RequestState,
    kv: SequenceKv,
}

struct RequestState {
    sampler: Sampler,
    stop_tokens: Vec<u32>,
    max_tokens: usize,
}

/// Lengths beyond which a rope of the program takes other frequencies (LongRoPE).
fn rope_switches(program: &Program) -> Vec<usize> {
    let switch = |node: &kvant_device::Node| match &node.op {
        Op::RopeTable(RopeSpec {
            scaling: RopeScaling::Long {
                original_context, ..
            },
            ..
        }) => Some(*original_context),
        _ => None,
    };
    program.nodes.iter().filter_map(switch).collect()
}

/// One step's tokens, packed.
#[derive(Default)]
struct StepBatch {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    output_rows: Vec<u32>,
    /// `(index, first_row, n_rows, context_len)` of each sequence.
    parts: Vec<(usize, usize, usize, usize)>,
}

impl<B: Backend> Engine<B> {
    /// Loads the weights, allocates the KV arena and prepares the program.
    ///
    /// # Errors
    /// [`EngineError`] when an option makes no sense, or the model or device fails.
    pub async fn load(
        backend: B,
        model: &Model,
        options: EngineOptions,
        on_progress: impl FnMut(LoadProgress),
    ) -> Result<Self, EngineError> {
        let memory = MemoryPlan::new(&backend, model, &options)?;
        let geometry = kv_geometry(model.spec());
        let layout = KvLayout::new(&options.plan(geometry.layers.len()), &geometry)?;
        let n_blocks = blocks(&geometry, &options)?;
        let arena = layout.arena(&n_blocks)?;
        let weights = model.load(&backend, on_progress).await?;
        let buffer = backend.alloc(&BufferReq {
            bytes: arena.bytes(),
            what: "keys and values".to_owned(),
        })?;
        let layers = (0..arena.n_layers())
            .map(|layer| {
                let (k, v) = (
                    arena.region(layer, KvSide::K),
                    arena.region(layer, KvSide::V),
                );
                KvLayerBinding {
                    k_format: k.format,
                    v_format: v.format,
                    k_offset: k.offset,
                    v_offset: v.offset,
                    k_block_bytes: k.block_bytes,
                    v_block_bytes: v.block_bytes,
                }
            })
            .collect();
        let kv = KvBinding {
            buffer,
            layers,
            n_blocks: n_blocks.clone(),
        };
        let bindings = Bindings {
            weights: &weights,
            kv,
        };
        let exec = backend.prepare(model.program(), bindings, &prepare_options(&options))?;
        Ok(Self {
            backend,
            exec,
            pools: KvPools::new(&geometry.groups, &n_blocks)?,
            options,
            memory,
            vocab_size: model.spec().vocab_size,
            rope_switches: rope_switches(model.program()),
            sequences: Vec::new(),
            next_id: 0,
            copies: Vec::new(),
            logits: Vec::new(),
        })
    }

    /// The device.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// What was allocated.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// The sizes in use.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// The pools of blocks.
    pub fn pools(&self) -> &KvPools {
        &self.pools
    }

    /// Size of the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Whether no sequence is left.
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Admits a sequence. Its tokens come as events of the next steps.
    ///
    /// # Errors
    /// [`EngineError`] when the prompt is empty, too long or not of this vocabulary, an option is
    /// wrong, or the engine is full.
    pub fn add(&mut self, request: Request) -> Result<SequenceId, EngineError> {
        if self.sequences.len() == self.options.max_sequences {
            return Err(EngineError::Full {
                max_sequences: self.options.max_sequences,
            });
        }
        if request.max_tokens == 0 {
            return Err(EngineError::Option {
                field: "max_tokens",
                value: 0,
                wanted: "it must be at least 1",
            });
        }
        self.check_tokens(&request.prompt)?;
        let sampler = Sampler::new(request.sampler, self.vocab_size)?;
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        self.sequences.push(Sequence {
            id,
            n_prompt: request.prompt.len(),
            tokens: request.prompt,
            request: RequestState {
                sampler,
                stop_tokens: request.stop_tokens,
                max_tokens: request.max_tokens,
            },
            kv: SequenceKv::new(&self.pools),
        });
        Ok(id)
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<(), EngineError> {
        if tokens.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let (prompt_tokens, context_len) = (tokens.len(), self.options.context_len);
        if prompt_tokens >= context_len {
            return Err(EngineError::ContextLength {
                prompt_tokens,
                context_len,
            });
        }
        match tokens.iter().position(|&t| t as usize >= self.vocab_size) {
            Some(position) => Err(EngineError::Token {
                position,
                token: tokens[position],
                vocab_size: self.vocab_size,
            }),
            None => Ok(()),
        }
    }

    /// A second sequence that shares all blocks of `id` so far and goes on by its own draws.
    ///
    /// # Errors
    /// [`EngineError::UnknownSequence`], [`EngineError::Full`] or a wrong option.
    pub fn fork(&mut self, id: SequenceId, request: Request) -> Result<SequenceId, EngineError> {
        if self.sequences.len() == self.options.max_sequences {
            return Err(EngineError::Full {
                max_sequences: self.options.max_sequences,
            });
        }
        let index = self.index_of(id)?;
        let sampler = Sampler::new(request.sampler, self.vocab_size)?;
        let kv = self.sequences[index].kv.fork(&mut self.pools);
        let child = SequenceId(self.next_id);
        self.next_id += 1;
        let parent = &self.sequences[index];
        let (tokens, n_prompt) = (parent.tokens.clone(), parent.n_prompt);
        let state = RequestState {
            sampler,
            stop_tokens: request.stop_tokens,
            max_tokens: request.max_tokens,
        };
        self.sequences.push(Sequence {
            id: child,
            n_prompt,
            tokens,
            request: state,
            kv,
        });
        Ok(child)
    }

    /// Ends a sequence at once; its blocks are free when this returns.
    ///
    /// # Errors
    /// [`EngineError::UnknownSequence`].
    pub fn abort(&mut self, id: SequenceId) -> Result<(), EngineError> {
        let index = self.index_of(id)?;
        self.remove(index);
        Ok(())
    }

    /// Ends every sequence; calling it again does nothing.
    pub fn cleanup(&mut self) {
        while !self.sequences.is_empty() {
            self.remove(0);
        }
    }

    fn index_of(&self, id: SequenceId) -> Result<usize, EngineError> {
        self.sequences
            .iter()
            .position(|s| s.id == id)
            .ok_or(EngineError::UnknownSequence { id: id.0 })
    }

    fn remove(&mut self, index: usize) {
        let sequence = self.sequences.remove(index);
        sequence.kv.free(&mut self.pools);
    }

    /// Runs one step: decode tokens of all generating sequences and as much of the waiting prompts as
    /// fits. Does nothing when the engine is idle.
    ///
    /// # Errors
    /// [`EngineError::Device`]; the blocks are then as they were before the step.
    pub async fn step(&mut self) -> Result<Vec<Event>, EngineError> {
        let pending: Vec<Pending> = self
            .sequences
            .iter()
            .map(|s| Pending {
                n_tokens: s.tokens.len(),
                n_computed: s.kv.n_tokens(),
            })
            .collect();
        let shares = scheduler::plan(&pending, self.options.max_step_tokens);
        let shares = self.reserve(shares)?;
        if shares.is_empty() {
            return Ok(Vec::new());
        }
        let batch = self.pack(&shares);
        if let Err(error) = self.run(&batch) {
            self.take_back(&shares)?;
            return Err(error);
        }
        self.copies.clear();
        if batch.output_rows.is_empty() {
            return Ok(Vec::new());
        }
        if let Err(error) = self.backend.read(&self.exec, 0, &mut self.logits).await {
            // Without logits nothing would ask for these rows again.
            self.take_back(&shares)?;
            return Err(error.into());
        }
        let events = self.sample(&batch);
        debug_assert_eq!(self.check_integrity(), Ok(()));
        Ok(events)
    }

    /// Takes back what [`Engine::reserve`] gave, after a step that failed.
    fn take_back(&mut self, shares: &[Share]) -> Result<(), EngineError> {
        for share in shares {
            let sequence = &mut self.sequences[share.index];
            let n_before = sequence.kv.n_tokens() - share.n_rows;
            sequence.kv.truncate(&mut self.pools, n_before)?;
        }
        Ok(())
    }

    /// Blocks for each share. When they run out, the newest sequence gives its blocks back and is
    /// computed again later; the oldest always fits.
    fn reserve(&mut self, shares: Vec<Share>) -> Result<Vec<Share>, EngineError> {
        let mut granted: Vec<Share> = Vec::with_capacity(shares.len());
        for share in shares {
            loop {
                match self.sequences[share.index]
                    .kv
                    .append(&mut self.pools, share.n_rows)
                {
                    Ok(appended) => {
                        self.copies
                            .extend(appended.copies.iter().map(|copy| BlockCopy {
                                group: copy.group,
                                src: copy.src.0,
                                dst: copy.dst.0,
                            }));
                        granted.push(share);
                        break;
                    }
                    Err(error @ KvError::OutOfBlocks { .. }) => {
                        let Some(victim) = self.preempt(share.index, &granted) else {
                            if granted.is_empty() {
                                return Err(error.into());
                            }
                            break;
                        };
                        debug_assert_ne!(victim, share.index);
                    }
                    Err(error) => {
                        self.take_back(&granted)?;
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(granted)
    }

    /// Takes the blocks of the newest sequence that came after `index` and has no share yet.
    fn preempt(&mut self, index: usize, granted: &[Share]) -> Option<usize> {
        let victim = (index + 1..self.sequences.len()).rev().find(|i| {
            self.sequences[*i].kv.n_tokens() > 0 && granted.iter().all(|g| g.index != *i)
        })?;
        let fresh = SequenceKv::new(&self.pools);
        std::mem::replace(&mut self.sequences[victim].kv, fresh).free(&mut self.pools);
        Some(victim)
    }

    fn pack(&self, shares: &[Share]) -> StepBatch {
        let mut batch = StepBatch::default();
        for share in shares {
            let sequence = &self.sequences[share.index];
            let context_len = sequence.kv.n_tokens();
            let first = context_len - share.n_rows;
            let first_row = batch.tokens.len();
            batch
                .tokens
                .extend_from_slice(&sequence.tokens[first..context_len]);
            batch
                .positions
                .extend((first..context_len).map(|p| p as u32));
            if context_len == sequence.tokens.len() {
                batch.output_rows.push(batch.tokens.len() as u32 - 1);
            }
            batch
                .parts
                .push((share.index, first_row, share.n_rows, context_len));
        }
        batch
    }

    fn run(&mut self, batch: &StepBatch) -> Result<(), EngineError> {
        let tables: Vec<Vec<&[u32]>> = batch
            .parts
            .iter()
            .map(|part| {
                self.sequences[part.0]
                    .kv
                    .tables()
                    .iter()
                    .map(|t| t.ids())
                    .collect()
            })
            .collect();
        let sequences: Vec<SequenceStep<'_>> = batch
            .parts
            .iter()
            .zip(&tables)
            .map(
                |(&(index, first_row, n_rows, context_len), block_tables)| SequenceStep {
                    first_row,
                    n_rows,
                    context_len,
                    total_len: self.sequences[index].tokens.len(),
                    block_tables,
                },
            )
            .collect();
        let step = StepInput {
            tokens: &batch.tokens,
            positions: &batch.positions,
            sequences: &sequences,
            output_rows: &batch.output_rows,
            copies: &self.copies,
        };
        Ok(self.backend.submit(&mut self.exec, &step)?)
    }

    /// Chooses a token for each sequence whose last row was computed.
    fn sample(&mut self, batch: &StepBatch) -> Vec<Event> {
        let mut events = Vec::new();
        let mut ended = Vec::new();
        let mut row = 0;
        for &(index, _, _, context_len) in &batch.parts {
            let sequence = &mut self.sequences[index];
            if context_len != sequence.tokens.len() {
                continue;
            }
            let logits = &mut self.logits[row * self.vocab_size..][..self.vocab_size];
            row += 1;
            let id = sequence.id;
            let request = &mut sequence.request;
            let token = match request
                .sampler
                .sample(logits, &sequence.tokens, sequence.n_prompt)
            {
                Ok(token) => token,
                Err(error) => {
                    events.push(Event::Failed { id, error });
                    ended.push(index);
                    continue;
                }
            };
            let stops = request.stop_tokens.contains(&token.id);
            sequence.tokens.push(token.id);
            if self
                .rope_switches
                .iter()
                .any(|&len| sequence.tokens.len() == len + 1)
            {
                let fresh = SequenceKv::new(&self.pools);
                std::mem::replace(&mut sequence.kv, fresh).free(&mut self.pools);
            }
            events.push(Event::Token { id, token });
            let n_generated = sequence.tokens.len() - sequence.n_prompt;
            let reason = if stops {
                FinishReason::Stop
            } else if n_generated >= request.max_tokens {
                FinishReason::MaxTokens
            } else if sequence.tokens.len() >= self.options.context_len {
                FinishReason::ContextLength
            } else {
                continue;
            };
            events.push(Event::Finished { id, reason });
            ended.push(index);
        }
        ended.sort_unstable();
        for index in ended.into_iter().rev() {
            self.remove(index);
        }
        events
    }

    /// Feeds `tokens` to a sequence of their own and hands the logits `[vocab_size]` of each position
    /// from `first` on to `sink`: the logits at position `p` are of token `p + 1`.
    ///
    /// # Errors
    /// [`EngineError::Busy`] when sequences are running; else as [`Engine::add`] and [`Engine::step`].
    pub async fn score(
        &mut self,
        tokens: &[u32],
        first: usize,
        mut sink: impl FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        if !self.sequences.is_empty() {
            return Err(EngineError::Busy {
                running: self.sequences.len(),
            });
        }
        // Room for an answer is not needed, so one more token fits than a request could have.
        self.check_tokens(&tokens[..tokens.len().saturating_sub(1).max(1).min(tokens.len())])?;
        let mut kv = SequenceKv::new(&self.pools);
        let result = self.score_on(&mut kv, tokens, first, &mut sink).await;
        kv.free(&mut self.pools);
        result
    }

    async fn score_on(
        &mut self,
        kv: &mut SequenceKv,
        tokens: &[u32],
        first: usize,
        sink: &mut impl FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        while kv.n_tokens() < tokens.len() {
            let start = kv.n_tokens();
            let mut n_rows = (tokens.len() - start).min(self.options.max_step_tokens);
            // Rows before `first` need no logits; steps with logits are cut to what can be read.
            if start < first {
                n_rows = n_rows.min(first - start);
            } else {
                n_rows = n_rows.min(self.options.max_outputs);
            }
            kv.append(&mut self.pools, n_rows)?;
            let end = start + n_rows;
            let positions: Vec<u32> = (start..end).map(|p| p as u32).collect();
            let output_rows: Vec<u32> = if start < first {
                vec![]
            } else {
                (0..n_rows as u32).collect()
            };
            let tables: Vec<&[u32]> = kv.tables().iter().map(|t| t.ids()).collect();
            let sequence = SequenceStep {
                first_row: 0,
                n_rows,
                context_len: end,
                total_len: tokens.len(),
                block_tables: &tables,
            };
            let step = StepInput {
                tokens: &tokens[start..end],
                positions: &positions,
                sequences: &[sequence],
                output_rows: &output_rows,
                copies: &[],
            };
            self.backend.submit(&mut self.exec, &step)?;
            if output_rows.is_empty() {
                continue;
            }
            self.backend.read(&self.exec, 0, &mut self.logits).await?;
            for (row, logits) in self.logits.chunks_exact(self.vocab_size).enumerate() {
                sink(start + row, logits);
            }
        }
        Ok(())
    }

    /// Checks that every block belongs to the sequences that hold it and to nobody else.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        check_integrity(&self.pools, self.sequences.iter().map(|s| &s.kv))
    }
}
