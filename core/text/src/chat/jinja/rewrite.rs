//! The tree as source again, with everything that could cost much as a call.

use super::ast::{
    Argument, Binary, Comparison, Kind, Macro, Named, Node, Statement, StatementKind, Target,
};

/// Filters whose results could be lazy.
const LAZY: [&str; 8] = [
    "items",
    "map",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "unique",
];

/// Writes a template, each tag at the line where it was or after it.
pub(super) fn rewrite(statements: &[Statement]) -> String {
    let mut writer = Writer {
        out: String::new(),
        line: 1,
    };
    writer.statements(statements);
    writer.out
}

struct Writer {
    out: String,
    line: usize,
}

impl Writer {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Starts a new line until this one is reached.
    fn reach(&mut self, line: usize) {
        while self.line < line {
            self.out.push('\n');
            self.line += 1;
        }
    }

    fn block(&mut self, line: usize, word: &str) {
        self.push("{%");
        self.reach(line);
        self.push(" ");
        self.push(word);
        self.push(" ");
    }

    fn end(&mut self, word: &str) {
        self.push("{% ");
        self.push(word);
        self.push(" %}");
    }

    fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        let line = statement.line;
        match &statement.kind {
            StatementKind::Text(text) if text.contains('{') => {
                self.push("{{ ");
                self.string(text);
                self.push(" }}");
            }
            StatementKind::Text(text) => {
                self.line += text.matches('\n').count();
                self.push(text);
            }
            StatementKind::Print(node) => {
                self.push("{{ ");
                self.reach(line);
                self.node(node);
                self.push(" }}");
            }
            StatementKind::If(branches, otherwise) => {
                for (index, (condition, body)) in branches.iter().enumerate() {
                    let word = if index == 0 { "if" } else { "elif" };
                    self.block(condition.line, word);
                    self.node(condition);
                    self.push(" %}");
                    self.statements(body);
                }
                if !otherwise.is_empty() {
                    self.end("else");
                    self.statements(otherwise);
                }
                self.end("endif");
            }
            StatementKind::For(for_loop) => {
                self.block(line, "for");
                self.target(&for_loop.target);
                self.push(" in ");
                self.call("_kv_iter", [&for_loop.items]);
                if let Some(condition) = &for_loop.condition {
                    self.push(" if ");
                    self.node(condition);
                }
                self.push(" %}");
                self.statements(&for_loop.body);
                if !for_loop.otherwise.is_empty() {
                    self.end("else");
                    self.statements(&for_loop.otherwise);
                }
                self.end("endfor");
            }
            StatementKind::Set(target, value) => {
                self.block(line, "set");
                self.target(target);
                self.push(" = ");
                match target {
                    Target::Field(..) => self.call("_kv_field", [value]),
                    _ => self.node(value),
                }
                self.push(" %}");
            }
            StatementKind::SetBlock(target, filters, body) => {
                self.block(line, "set");
                self.target(target);
                if !filters.is_empty() {
                    self.push(" | ");
                    self.filters(filters);
                }
                self.push(" %}");
                self.statements(body);
                self.end("endset");
            }
            StatementKind::Macro(definition) => {
                self.block(line, "macro");
                self.push(&definition.name);
                self.parameters(definition);
                self.push(" %}");
                self.statements(&definition.body);
                self.end("endmacro");
            }
            StatementKind::Call(call, definition) => {
                self.block(line, "call");
                if !definition.parameters.is_empty() {
                    self.parameters(definition);
                    self.push(" ");
                }
                self.node(call);
                self.push(" %}");
                self.statements(&definition.body);
                self.end("endcall");
            }
            StatementKind::Filter(filters, body) => {
                self.block(line, "filter");
                self.filters(filters);
                self.push(" %}");
                self.statements(body);
                self.end("endfilter");
            }
            StatementKind::With(assignments, body) => {
                self.block(line, "with");
                for (index, (target, value)) in assignments.iter().enumerate() {
                    self.separate(index);
                    self.target(target);
                    self.push(" = ");
                    self.node(value);
                }
                self.push(" %}");
                self.statements(body);
                self.end("endwith");
            }
            StatementKind::Generation(body) => self.statements(body),
            StatementKind::Do(node) => {
                self.block(line, "set _kv_done =");
                self.node(node);
                self.push(" %}");
            }
            StatementKind::Break => self.end("break"),
            StatementKind::Continue => self.end("continue"),
        }
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.push(", ");
        }
    }

    fn target(&mut self, target: &Target) {
        match target {
            Target::Name(name) => self.push(name),
            Target::Field(name, field) => {
                self.push(name);
                self.push(".");
                self.push(field);
            }
            Target::Several(targets) => {
                for (index, target) in targets.iter().enumerate() {
                    self.separate(index);
                    if let Target::Several(_) = target {
                        self.push("(");
                        self.target(target);
                        self.push(")");
                    } else {
                        self.target(target);
                    }
                }
                if targets.len() == 1 {
                    self.push(",");
                }
            }
        }
    }

    fn parameters(&mut self, definition: &Macro) {
        self.push("(");
        for (index, (name, default)) in definition.parameters.iter().enumerate() {
            self.separate(index);
            self.push(name);
            if let Some(default) = default {
                self.push("=");
                self.node(default);
            }
        }
        self.push(")");
    }

    fn filters(&mut self, filters: &[Named]) {
        for (index, named) in filters.iter().enumerate() {
            if index > 0 {
                self.push(" | ");
            }
            self.push(&named.name);
            self.arguments(&named.arguments);
        }
    }

    fn arguments(&mut self, arguments: &[Argument]) {
        self.push("(");
        for (index, argument) in arguments.iter().enumerate() {
            self.separate(index);
            if let Some(name) = &argument.name {
                self.push(name);
                self.push("=");
            }
            self.node(&argument.value);
        }
        self.push(")");
    }

    /// A call of a checked function.
    fn call<'n>(&mut self, function: &str, nodes: impl IntoIterator<Item = &'n Node>) {
        self.push(function);
        self.push("(");
        for (index, node) in nodes.into_iter().enumerate() {
            self.separate(index);
            self.node(node);
        }
        self.push(")");
    }

    fn node(&mut self, node: &Node) {
        self.reach(node.line);
        match &node.kind {
            Kind::None => self.push("none"),
            Kind::Bool(true) => self.push("true"),
            Kind::Bool(false) => self.push("false"),
            Kind::Int(number) => self.push(&number.to_string()),
            Kind::Float(number) => self.push(&format!("{number:?}")),
            Kind::Str(text) => self.string(text),
            Kind::Variable(name) => self.push(name),
            Kind::List(items) | Kind::Tuple(items) => self.call("_kv_list", items),
            Kind::Dict(items) => self.call("_kv_dict", items.iter().flat_map(|(k, v)| [k, v])),
            Kind::Not(value) => {
                self.push("(not ");
                self.node(value);
                self.push(")");
            }
            Kind::Negative(value) => {
                self.push("(-");
                self.node(value);
                self.push(")");
            }
            Kind::Binary(binary, sides) => {
                let function = match binary {
                    Binary::Add => "_kv_add",
                    Binary::Subtract => "_kv_sub",
                    Binary::Multiply => "_kv_mul",
                    Binary::Divide => "_kv_div",
                    Binary::FloorDivide => "_kv_floordiv",
                    Binary::Remainder => "_kv_rem",
                    Binary::Power => "_kv_pow",
                    Binary::Concatenate => "_kv_concat",
                };
                self.call(function, [&sides.0, &sides.1]);
            }
            Kind::And(sides) => self.infix(" and ", &sides.0, &sides.1),
            Kind::Or(sides) => self.infix(" or ", &sides.0, &sides.1),
            Kind::Compare(first, rest) => self.comparison(first, rest),
            Kind::IfElse(parts) => {
                let (test, value, otherwise) = &**parts;
                self.push("(");
                self.node(value);
                self.push(" if ");
                self.node(test);
                if let Some(otherwise) = otherwise {
                    self.push(" else ");
                    self.node(otherwise);
                }
                self.push(")");
            }
            Kind::Attribute(value, name) => {
                self.node(value);
                self.push(".");
                self.push(name);
            }
            Kind::Item(parts) => self.call("_kv_item", [&parts.0, &parts.1]),
            Kind::Slice(slice) => {
                self.push("_kv_slice(");
                self.node(&slice.value);
                for bound in &slice.bounds {
                    self.push(", ");
                    match bound {
                        Some(bound) => self.node(bound),
                        None => self.push("none"),
                    }
                }
                self.push(")");
            }
            Kind::Call(function, arguments) => {
                let name = match &function.kind {
                    Kind::Variable(name) => &**name,
                    _ => "",
                };
                let checks = matches!(name, "dict" | "range" | "namespace");
                if checks {
                    self.push(if name == "namespace" {
                        "_kv_namespace("
                    } else {
                        "_kv_eager("
                    });
                }
                self.node(function);
                self.arguments(arguments);
                if checks {
                    self.push(")");
                }
            }
            Kind::Filter(value, named) => {
                let lazy = LAZY.contains(&&*named.name);
                self.push(if lazy { "_kv_eager(" } else { "(" });
                self.node(value);
                self.push(" | ");
                self.push(&named.name);
                self.arguments(&named.arguments);
                self.push(")");
            }
            Kind::Test(value, named) => {
                self.push("(");
                self.node(value);
                self.push(" is ");
                self.push(&named.name);
                if !named.arguments.is_empty() {
                    self.arguments(&named.arguments);
                }
                self.push(")");
            }
        }
    }

    fn infix(&mut self, word: &str, left: &Node, right: &Node) {
        self.push("(");
        self.node(left);
        self.push(word);
        self.node(right);
        self.push(")");
    }

    /// `a < b < c` is `a < b and b < c`; the parser lets only plain operands stand in the middle.
    fn comparison(&mut self, first: &Node, rest: &[(Comparison, Node)]) {
        let chained = rest.len() > 1;
        if chained {
            self.push("(");
        }
        let mut left = first;
        for (index, (comparison, right)) in rest.iter().enumerate() {
            if index > 0 {
                self.push(" and ");
            }
            let (function, negated) = match comparison {
                Comparison::Equal => ("_kv_eq", false),
                Comparison::NotEqual => ("_kv_eq", true),
                Comparison::Less => ("_kv_lt", false),
                Comparison::LessOrEqual => ("_kv_le", false),
                Comparison::Greater => ("_kv_gt", false),
                Comparison::GreaterOrEqual => ("_kv_ge", false),
                Comparison::In => ("_kv_in", false),
                Comparison::NotIn => ("_kv_in", true),
            };
            if negated {
                self.push("(not ");
            }
            self.call(function, [left, right]);
            if negated {
                self.push(")");
            }
            left = right;
        }
        if chained {
            self.push(")");
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.push("\\\""),
                '\\' => self.push("\\\\"),
                '\n' => self.push("\\n"),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
