//! The graph: nodes over values, before memory is planned.

use kvant_device::{
    KvLayerDecl, Node, Op, Program, Rows, ValueDesc, ValueId, WeightDecl, WeightId,
};
use smallvec::SmallVec;

/// Nodes in a topological order, with the shapes of their values and the weights they read.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Nodes in order.
    pub nodes: Vec<Node>,
    /// Shape of each value.
    pub values: Vec<ValueDesc>,
    /// Each weight.
    pub weights: Vec<WeightDecl>,
    /// Keys and values of each layer.
    pub kv_layers: Vec<KvLayerDecl>,
    /// The logits, `[O, vocab_size]`.
    pub output: ValueId,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            values: Vec::new(),
            weights: Vec::new(),
            kv_layers: Vec::new(),
            output: ValueId(0),
        }
    }

    /// Adds a weight.
    pub fn weight(&mut self, decl: WeightDecl) -> WeightId {
        self.weights.push(decl);
        WeightId(self.weights.len() as u32 - 1)
    }

    /// Adds a node with one output of the given shape.
    pub fn push(&mut self, op: Op, inputs: &[ValueId], rows: Rows, width: usize) -> ValueId {
        let out = self.value(rows, width);
        self.nodes.push(Node {
            op,
            inputs: SmallVec::from_slice(inputs),
            outputs: SmallVec::from_slice(&[out]),
        });
        out
    }

    /// Adds a node without outputs.
    pub fn push_effect(&mut self, op: Op, inputs: &[ValueId]) {
        self.nodes.push(Node {
            op,
            inputs: SmallVec::from_slice(inputs),
            outputs: SmallVec::new(),
        });
    }

    /// Adds a value that no node writes yet.
    pub fn value(&mut self, rows: Rows, width: usize) -> ValueId {
        self.values.push(ValueDesc { rows, width });
        ValueId(self.values.len() as u32 - 1)
    }

    /// The shape of a value.
    pub fn desc(&self, id: ValueId) -> ValueDesc {
        self.values[id.0 as usize]
    }

    /// Index of the node that writes a value.
    pub fn producer(&self, id: ValueId) -> Option<usize> {
        self.nodes.iter().position(|n| n.outputs.contains(&id))
    }

    /// How many nodes read a value; the graph's output counts as one more reader.
    pub fn n_readers(&self, id: ValueId) -> usize {
        self.nodes.iter().filter(|n| n.inputs.contains(&id)).count()
            + usize::from(id == self.output)
    }

    /// Plans memory: the graph as a program.
    pub fn lower(self) -> Program {
        Program::new(
            self.nodes,
            self.values,
            self.weights,
            self.kv_layers,
            vec![self.output],
        )
    }
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}
