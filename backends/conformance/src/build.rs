//! A small builder for the programs of cases, with reproducible random data.

use crate::case::{Case, CaseSequence, CaseStep, CaseWeight, Tolerance};
use kvant_device::{
    KvLayerDecl, Node, Op, Program, Rows, ValueDesc, ValueId, WeightDecl, WeightId, WeightUse,
};
use kvant_quant::{KvFormat, KvFormats, WeightFormat};
use smallvec::{SmallVec, smallvec};

/// Reproducible numbers (SplitMix64, Steele et al. 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between -1 and 1.
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Roughly normal, variance 1.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.uniform()).sum::<f32>() / 2f32.sqrt()
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Collects nodes, values and weights.
pub(crate) struct CaseBuilder {
    name: String,
    pub(crate) random: Random,
    nodes: Vec<Node>,
    values: Vec<ValueDesc>,
    decls: Vec<WeightDecl>,
    weights: Vec<CaseWeight>,
    pub(crate) kv_layers: Vec<KvLayerDecl>,
    pub(crate) n_blocks: Vec<usize>,
    pub(crate) kv: KvFormats,
}

impl CaseBuilder {
    /// An empty case; the name also seeds the data.
    pub(crate) fn new(name: String) -> Self {
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        Self {
            name,
            random: Random::new(seed),
            nodes: Vec::new(),
            values: Vec::new(),
            decls: Vec::new(),
            weights: Vec::new(),
            kv_layers: Vec::new(),
            n_blocks: Vec::new(),
            kv: KvFormat::F16.into(),
        }
    }

    /// A weight from bytes.
    pub(crate) fn weight(
        &mut self,
        format: WeightFormat,
        n_rows: usize,
        n_cols: usize,
        usage: WeightUse,
        bytes: Vec<u8>,
    ) -> WeightId {
        let name = format!("w{}", self.decls.len());
        self.decls.push(WeightDecl {
            name,
            format,
            n_rows,
            n_cols,
        });
        self.weights.push(CaseWeight { bytes, usage });
        WeightId(self.decls.len() as u32 - 1)
    }

    /// A matrix of random blocks.
    pub(crate) fn matrix(
        &mut self,
        format: WeightFormat,
        n_rows: usize,
        n_cols: usize,
    ) -> WeightId {
        let blocks = n_rows * n_cols / format.block().elements;
        let bytes = kvant_quant::testing::random_blocks(format, blocks, self.random.next());
        self.weight(format, n_rows, n_cols, WeightUse::Matrix, bytes)
    }

    /// A vector around `mean`.
    pub(crate) fn vector(&mut self, n: usize, mean: f32) -> WeightId {
        let bytes = (0..n)
            .flat_map(|_| (mean + 0.2 * self.random.normal()).to_le_bytes())
            .collect();
        self.weight(WeightFormat::F32, 1, n, WeightUse::Vector, bytes)
    }

    /// Random activations `[n_rows, width]`; token `t` is row `t`.
    pub(crate) fn activations(&mut self, n_rows: usize, width: usize) -> ValueId {
        let bytes = (0..n_rows * width)
            .flat_map(|_| self.random.normal().to_le_bytes())
            .collect();
        let table = self.weight(WeightFormat::F32, n_rows, width, WeightUse::Table, bytes);
        self.node(
            Op::Embed { table, scale: 1.0 },
            &[],
            &[(Rows::Tokens, width)],
        )[0]
    }

    /// Adds a node.
    pub(crate) fn node(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        outputs: &[(Rows, usize)],
    ) -> SmallVec<[ValueId; 2]> {
        let ids: SmallVec<[ValueId; 2]> = outputs
            .iter()
            .map(|&(rows, width)| {
                self.values.push(ValueDesc { rows, width });
                ValueId(self.values.len() as u32 - 1)
            })
            .collect();
        self.nodes.push(Node {
            op,
            inputs: SmallVec::from_slice(inputs),
            outputs: ids.clone(),
        });
        ids
    }

    /// One step with `n` tokens of one sequence without KV, all rows asked for.
    pub(crate) fn plain_step(&self, n: usize) -> CaseStep {
        let block_tables = self
            .n_blocks
            .iter()
            .map(|_| (0..n.div_ceil(32) as u32).collect())
            .collect();
        CaseStep {
            tokens: (0..n as u32).collect(),
            sequences: vec![CaseSequence {
                n_rows: n,
                context_len: n,
                total_len: n + 15,
                block_tables,
            }],
            output_rows: (0..n as u32).collect(),
            copies: Vec::new(),
        }
    }

    /// Closes the case.
    pub(crate) fn finish(
        self,
        outputs: &[ValueId],
        steps: Vec<CaseStep>,
        tolerance: Tolerance,
    ) -> Case {
        Case {
            name: self.name,
            program: Program::new(
                self.nodes,
                self.values,
                self.decls,
                self.kv_layers,
                outputs.to_vec(),
            ),
            weights: self.weights,
            kv: self.kv,
            n_blocks: self.n_blocks,
            steps,
            tolerance,
        }
    }

    /// A case of one step of `n` tokens.
    pub(crate) fn finish_plain(self, outputs: &[ValueId], n: usize, tolerance: Tolerance) -> Case {
        let step = self.plain_step(n);
        self.finish(outputs, vec![step], tolerance)
    }

    /// A single weight in the list of a matmul.
    pub(crate) fn one(weight: WeightId) -> SmallVec<[WeightId; 3]> {
        smallvec![weight]
    }
}
