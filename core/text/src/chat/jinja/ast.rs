//! What a template says, as a tree.

use std::sync::Arc;

/// An expression, with its line and how deep it nests.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) line: usize,
    /// 1 for a leaf.
    pub(super) height: usize,
}

/// The kinds of expressions.
#[derive(Debug)]
pub(super) enum Kind {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Arc<str>),
    Variable(Arc<str>),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    Dict(Vec<(Node, Node)>),
    Not(Box<Node>),
    Negative(Box<Node>),
    Binary(Binary, Box<(Node, Node)>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    /// `first < second < third` and the like.
    Compare(Box<Node>, Vec<(Comparison, Node)>),
    /// Test, value, and value otherwise.
    IfElse(Box<(Node, Node, Option<Node>)>),
    Attribute(Box<Node>, Arc<str>),
    Item(Box<(Node, Node)>),
    Slice(Box<Slice>),
    Call(Box<Node>, Vec<Argument>),
    Filter(Box<Node>, Named),
    Test(Box<Node>, Named),
}

/// Operators on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
    Concatenate,
}

/// Operators that compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

/// `value[start:stop:step]`.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) value: Node,
    pub(super) bounds: [Option<Node>; 3],
}

/// The name of a filter or a test, with its arguments.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Box<str>,
    pub(super) arguments: Vec<Argument>,
}

/// An argument of a call.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: Option<Arc<str>>,
    pub(super) value: Node,
}

/// What is assigned to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Arc<str>),
    /// A field of a namespace.
    Field(Arc<str>, Arc<str>),
    Several(Vec<Target>),
}

/// A statement, with its line.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) kind: StatementKind,
    pub(super) line: usize,
}

/// The kinds of statements.
#[derive(Debug)]
pub(super) enum StatementKind {
    Text(Box<str>),
    Print(Node),
    /// Conditions with their bodies, and what is done if none holds.
    If(Vec<(Node, Vec<Statement>)>, Vec<Statement>),
    For(Box<For>),
    Set(Target, Node),
    SetBlock(Target, Vec<Named>, Vec<Statement>),
    Macro(Arc<Macro>),
    /// Calls a macro with a `caller` to call.
    Call(Node, Arc<Macro>),
    Filter(Vec<Named>, Vec<Statement>),
    With(Vec<(Target, Node)>, Vec<Statement>),
    /// Marks its body for training; only prints it here.
    Generation(Vec<Statement>),
    Do(Node),
    Break,
    Continue,
}

/// A loop.
#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Node,
    pub(super) condition: Option<Node>,
    pub(super) body: Vec<Statement>,
    pub(super) otherwise: Vec<Statement>,
}

/// A macro: parameters with their defaults, and a body.
#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Arc<str>,
    pub(super) parameters: Vec<(Arc<str>, Option<Node>)>,
    pub(super) body: Vec<Statement>,
}
