//! Fusion: rewrites of the graph that leave its meaning as it is. Each rule is tested by running
//! the graph with and without it on the reference backend.

use crate::graph::Graph;
use kvant_device::{Epilogue, Node, Op, Rows, ValueId};
use smallvec::smallvec;

/// One rewrite; returns how often it applied.
pub type Rule = fn(&mut Graph) -> usize;

/// Every rule, in the order in which they are applied.
pub const RULES: &[(&str, Rule)] = &[
    ("hoist-gather", hoist_gather),
    ("gated-matmul", gated_matmul),
    ("residual-matmul", residual_matmul),
    ("add-norm", add_norm),
    ("rope-write-kv", rope_write_kv),
];

/// Applies every rule.
pub fn fuse(graph: &mut Graph) {
    for (_, rule) in RULES {
        rule(graph);
    }
}

/// Rows that nobody asks for are dropped before the last row-wise ops instead of after them: the
/// feed-forward part of the last layer runs on `O` rows, not on `T`.
fn hoist_gather(graph: &mut Graph) -> usize {
    let mut applied = 0;
    while let Some(at) = graph
        .nodes
        .iter()
        .position(|n| n.op == Op::GatherRows && can_hoist(graph, n.inputs[0]))
    {
        let gather = graph.nodes.remove(at);
        let producer = graph.producer(gather.inputs[0]).unwrap_or(0);
        let node = graph.nodes[producer].clone();
        let mut before = Vec::new();
        let mut inputs = node.inputs.clone();
        for i in 0..inputs.len() {
            if let Some(same) = node.inputs[..i].iter().position(|id| *id == node.inputs[i]) {
                inputs[i] = inputs[same];
                continue;
            }
            let width = graph.desc(inputs[i]).width;
            let gathered = graph.value(Rows::Outputs, width);
            before.push(Node {
                op: Op::GatherRows,
                inputs: smallvec![inputs[i]],
                outputs: smallvec![gathered],
            });
            inputs[i] = gathered;
        }
        graph.nodes[producer] = Node {
            op: node.op,
            inputs,
            outputs: gather.outputs,
        };
        graph.nodes.splice(producer..producer, before);
        merge_gathers(graph);
        applied += 1;
    }
    applied
}

/// Two gathers of one value become one.
fn merge_gathers(graph: &mut Graph) {
    let mut first: Vec<(ValueId, ValueId)> = Vec::new();
    let mut replace: Vec<(ValueId, ValueId)> = Vec::new();
    graph.nodes.retain(|node| {
        if node.op != Op::GatherRows {
            return true;
        }
        match first.iter().find(|(input, _)| *input == node.inputs[0]) {
            Some(&(_, kept)) => {
                replace.push((node.outputs[0], kept));
                false
            }
            None => {
                first.push((node.inputs[0], node.outputs[0]));
                true
            }
        }
    });
    for node in &mut graph.nodes {
        for input in &mut node.inputs {
            if let Some((_, kept)) = replace.iter().find(|(old, _)| old == input) {
                *input = *kept;
            }
        }
    }
}

/// Whether a gather of `id` can move above the op that makes it: the op treats rows apart and nobody
/// else reads the rows that would no longer be made. A residual stream read by the op and by the
/// gather alike is fine, since gathers of one value are merged.
fn can_hoist(graph: &Graph, id: ValueId) -> bool {
    let Some(producer) = graph.producer(id) else {
        return false;
    };
    let readers = graph.nodes.iter().filter(|n| n.inputs.contains(&id));
    let only_gathers = readers.clone().all(|n| n.op == Op::GatherRows) && readers.count() == 1;
    let row_wise = matches!(
        graph.nodes[producer].op,
        Op::Norm(_)
            | Op::Add { .. }
            | Op::MatMul { .. }
            | Op::GatedAct { .. }
            | Op::Scale { .. }
            | Op::Softcap { .. }
    );
    only_gathers && row_wise && graph.output != id
}

/// A matmul with two weights of one shape whose only reader is a gated activation takes it as its
/// epilogue.
fn gated_matmul(graph: &mut Graph) -> usize {
    fuse_pairs(graph, |graph, matmul, act| {
        let Op::GatedAct { activation } = graph.nodes[act].op else {
            return None;
        };
        let Op::MatMul {
            weights,
            biases,
            epilogue: Epilogue::Store,
        } = &graph.nodes[matmul].op
        else {
            return None;
        };
        let shape = |i: usize| {
            let w = &graph.weights[weights[i].0 as usize];
            (w.n_rows, w.n_cols, w.format)
        };
        if weights.len() != 2 || shape(0) != shape(1) {
            return None;
        }
        let op = Op::MatMul {
            weights: weights.clone(),
            biases: biases.clone(),
            epilogue: Epilogue::Gated(activation),
        };
        let node = Node {
            op,
            inputs: graph.nodes[matmul].inputs.clone(),
            outputs: graph.nodes[act].outputs.clone(),
        };
        Some(node)
    })
}

/// A matmul whose only reader adds it to something takes the addition as its epilogue.
fn residual_matmul(graph: &mut Graph) -> usize {
    fuse_pairs(graph, |graph, matmul, add| {
        let Op::Add { scale } = graph.nodes[add].op else {
            return None;
        };
        let Op::MatMul {
            weights,
            biases,
            epilogue: Epilogue::Store,
        } = &graph.nodes[matmul].op
        else {
            return None;
        };
        let (residual, product) = (graph.nodes[add].inputs[0], graph.nodes[add].inputs[1]);
        if graph.nodes[matmul].outputs[0] != product || residual == product {
            return None;
        }
        let op = Op::MatMul {
            weights: weights.clone(),
            biases: biases.clone(),
            epilogue: Epilogue::Residual { scale },
        };
        let inputs = smallvec![graph.nodes[matmul].inputs[0], residual];
        Some(Node {
            op,
            inputs,
            outputs: graph.nodes[add].outputs.clone(),
        })
    })
}

/// `s = x + scale * [norm](y); n = norm(s)` becomes one op.
fn add_norm(graph: &mut Graph) -> usize {
    let (mut applied, mut at) = (0, 0);
    while at < graph.nodes.len() {
        if add_norm_at(graph, at).is_some() {
            applied += 1;
        } else {
            at += 1;
        }
    }
    applied
}

fn add_norm_at(graph: &mut Graph, at: usize) -> Option<()> {
    let Op::Norm(pre) = graph.nodes[at].op else {
        return None;
    };
    let add = graph.producer(graph.nodes[at].inputs[0])?;
    let Op::Add { scale } = graph.nodes[add].op else {
        return None;
    };
    let (x, y) = (graph.nodes[add].inputs[0], graph.nodes[add].inputs[1]);
    let post = graph.producer(y).and_then(|p| match graph.nodes[p].op {
        Op::Norm(norm) if graph.n_readers(y) == 1 && x != y => Some((p, norm)),
        _ => None,
    });
    let y = post.map_or(y, |(p, _)| graph.nodes[p].inputs[0]);
    let outputs = smallvec![graph.nodes[add].outputs[0], graph.nodes[at].outputs[0]];
    let op = Op::AddNorm {
        post: post.map(|(_, norm)| norm),
        scale,
        pre,
    };
    graph.nodes[add] = Node {
        op,
        inputs: smallvec![x, y],
        outputs,
    };
    graph.nodes.remove(at);
    if let Some((p, _)) = post {
        graph.nodes.remove(p);
    }
    Some(())
}

/// Rotation and the write to the cache become one op, which leaves only the queries.
fn rope_write_kv(graph: &mut Graph) -> usize {
    let (mut applied, mut at) = (0, 0);
    while at < graph.nodes.len() {
        if rope_write_kv_at(graph, at).is_some() {
            applied += 1;
        } else {
            at += 1;
        }
    }
    applied
}

fn rope_write_kv_at(graph: &mut Graph, at: usize) -> Option<()> {
    let Op::WriteKv { layer, .. } = graph.nodes[at].op else {
        return None;
    };
    let qkv = graph.nodes[at].inputs[0];
    let rope_at = graph.producer(qkv)?;
    let Op::QkNormRope(rope) = graph.nodes[rope_at].op else {
        return None;
    };
    let queries_only = graph
        .nodes
        .iter()
        .filter(|n| n.inputs.contains(&qkv))
        .all(|n| matches!(n.op, Op::PagedAttention(_) | Op::WriteKv { .. }));
    if !queries_only || graph.output == qkv {
        return None;
    }
    graph.values[qkv.0 as usize].width = rope.heads.q_width();
    graph.nodes[rope_at].op = Op::RopeWriteKv { layer, rope };
    graph.nodes.remove(at);
    Some(())
}

/// Replaces a node and its only reader by the node that `make` gives, at the reader's place.
fn fuse_pairs(graph: &mut Graph, make: impl Fn(&Graph, usize, usize) -> Option<Node>) -> usize {
    let mut applied = 0;
    let mut reader = 0;
    while reader < graph.nodes.len() {
        let fused = graph.nodes[reader].inputs.iter().find_map(|&input| {
            let producer = graph.producer(input)?;
            if graph.n_readers(input) != 1 || graph.nodes[producer].outputs.len() != 1 {
                return None;
            }
            make(graph, producer, reader).map(|node| (producer, node))
        });
        if let Some((producer, node)) = fused {
            graph.nodes[reader] = node;
            graph.nodes.remove(producer);
            applied += 1;
        } else {
            reader += 1;
        }
    }
    applied
}
