//! Tokens to expressions.

use super::ast::{Argument, Binary, Comparison, Kind, Named, Node, Slice};
use super::fault::Fault;
use super::lexer::Token;
use super::parser::{DEEPEST, Parsed, Parser, too_deep};

/// A node one higher than the highest below it.
fn node(kind: Kind, line: usize, below: usize) -> Parsed<Node> {
    let height = below + 1;
    if height > DEEPEST {
        return Err(too_deep().at(line));
    }
    Ok(Node { kind, line, height })
}

fn highest<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> usize {
    nodes.into_iter().map(|n| n.height).max().unwrap_or(0)
}

fn highest_argument(arguments: &[Argument]) -> usize {
    highest(arguments.iter().map(|a| &a.value))
}

impl Parser<'_> {
    /// An expression, or several with commas between them.
    pub(super) fn tuple(&mut self) -> Parsed<Node> {
        let first = self.expression()?;
        self.rest_of_tuple(first)
    }

    pub(super) fn rest_of_tuple(&mut self, first: Node) -> Parsed<Node> {
        if !self.is(",") {
            return Ok(first);
        }
        let line = first.line;
        let mut items = vec![first];
        while self.skip(",")? {
            let ends = matches!(self.token, Token::BlockEnd | Token::PrintEnd);
            if ends || self.is(")") || self.is("=") {
                break;
            }
            items.push(self.expression()?);
        }
        let height = highest(&items);
        node(Kind::Tuple(items), line, height)
    }

    pub(super) fn expression(&mut self) -> Parsed<Node> {
        self.deeper(Self::conditional)
    }

    fn conditional(&mut self) -> Parsed<Node> {
        let mut value = self.or()?;
        while self.skip_word("if")? {
            let test = self.or()?;
            let otherwise = match self.skip_word("else")? {
                true => Some(self.expression()?),
                false => None,
            };
            let (line, height) = (value.line, highest([&test, &value]));
            let height = height.max(highest(&otherwise));
            value = node(
                Kind::IfElse(Box::new((test, value, otherwise))),
                line,
                height,
            )?;
        }
        Ok(value)
    }

    pub(super) fn or(&mut self) -> Parsed<Node> {
        let mut left = self.and()?;
        while self.skip_word("or")? {
            let right = self.and()?;
            let (line, height) = (left.line, highest([&left, &right]));
            left = node(Kind::Or(Box::new((left, right))), line, height)?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Node> {
        let mut left = self.not()?;
        while self.skip_word("and")? {
            let right = self.not()?;
            let (line, height) = (left.line, highest([&left, &right]));
            left = node(Kind::And(Box::new((left, right))), line, height)?;
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Node> {
        let line = self.line;
        if !self.skip_word("not")? {
            return self.comparison();
        }
        let value = self.deeper(Self::not)?;
        let height = value.height;
        node(Kind::Not(Box::new(value)), line, height)
    }

    fn comparison(&mut self) -> Parsed<Node> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let comparison = match self.token {
                Token::Operator("==") => Comparison::Equal,
                Token::Operator("!=") => Comparison::NotEqual,
                Token::Operator("<") => Comparison::Less,
                Token::Operator("<=") => Comparison::LessOrEqual,
                Token::Operator(">") => Comparison::Greater,
                Token::Operator(">=") => Comparison::GreaterOrEqual,
                Token::Name("in") => Comparison::In,
                Token::Name("not") => {
                    self.advance()?;
                    if !self.is_word("in") {
                        return self.unexpected("`in`");
                    }
                    Comparison::NotIn
                }
                _ => break,
            };
            self.advance()?;
            rest.push((comparison, self.sum()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        let height = first.height.max(highest(rest.iter().map(|(_, n)| n)));
        let line = first.line;
        let (_, middle) = rest.split_last().unwrap_or((&rest[0], &[]));
        if middle.iter().any(|(_, n)| n.height > 1) {
            let reason = "in a chain of comparisons only plain values may stand in the middle";
            return Err(Fault::new(reason).at(line));
        }
        node(Kind::Compare(Box::new(first), rest), line, height)
    }

    fn sum(&mut self) -> Parsed<Node> {
        self.chain(Self::concatenation, |token| match token {
            Token::Operator("+") => Some(Binary::Add),
            Token::Operator("-") => Some(Binary::Subtract),
            _ => None,
        })
    }

    fn concatenation(&mut self) -> Parsed<Node> {
        self.chain(Self::product, |token| match token {
            Token::Operator("~") => Some(Binary::Concatenate),
            _ => None,
        })
    }

    fn product(&mut self) -> Parsed<Node> {
        self.chain(Self::power, |token| match token {
            Token::Operator("*") => Some(Binary::Multiply),
            Token::Operator("/") => Some(Binary::Divide),
            Token::Operator("//") => Some(Binary::FloorDivide),
            Token::Operator("%") => Some(Binary::Remainder),
            _ => None,
        })
    }

    fn power(&mut self) -> Parsed<Node> {
        self.chain(Self::filtered, |token| match token {
            Token::Operator("**") => Some(Binary::Power),
            _ => None,
        })
    }

    /// Operands of one precedence, joined from the left.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Parsed<Node>,
        operator: fn(&Token<'_>) -> Option<Binary>,
    ) -> Parsed<Node> {
        let mut left = operand(self)?;
        while let Some(binary) = operator(&self.token) {
            self.advance()?;
            let right = operand(self)?;
            let (line, height) = (left.line, highest([&left, &right]));
            left = node(Kind::Binary(binary, Box::new((left, right))), line, height)?;
        }
        Ok(left)
    }

    /// A value with its filters and tests.
    fn filtered(&mut self) -> Parsed<Node> {
        let mut value = self.signed()?;
        loop {
            let line = value.line;
            if self.skip("|")? {
                let named = self.named()?;
                let height = value.height.max(highest_argument(&named.arguments));
                value = node(Kind::Filter(Box::new(value), named), line, height)?;
            } else if self.skip_word("is")? {
                let negated = self.skip_word("not")?;
                let mut named = self.named()?;
                if named.arguments.is_empty() && self.starts_test_argument() {
                    let value = self.signed()?;
                    named.arguments.push(Argument { name: None, value });
                }
                let height = value.height.max(highest_argument(&named.arguments));
                value = node(Kind::Test(Box::new(value), named), line, height)?;
                if negated {
                    value = node(Kind::Not(Box::new(value)), line, height + 1)?;
                }
            } else {
                return Ok(value);
            }
        }
    }

    /// True where a test's one argument follows without brackets.
    fn starts_test_argument(&self) -> bool {
        match self.token {
            Token::Name(name) => !["and", "or", "else", "is", "if", "not", "in"].contains(&name),
            Token::Str(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Operator(operator) => operator == "[" || operator == "{",
            _ => false,
        }
    }

    /// A filter's or a test's name, with its arguments if there are any.
    pub(super) fn named(&mut self) -> Parsed<Named> {
        let name = self.name()?;
        let arguments = match self.is("(") {
            true => self.arguments()?,
            false => Vec::new(),
        };
        Ok(Named {
            name: (&*name).into(),
            arguments,
        })
    }

    pub(super) fn filters(&mut self) -> Parsed<Vec<Named>> {
        let mut filters = vec![self.named()?];
        while self.skip("|")? {
            filters.push(self.named()?);
        }
        Ok(filters)
    }

    fn signed(&mut self) -> Parsed<Node> {
        let line = self.line;
        if self.skip("-")? {
            let value = self.deeper(Self::signed)?;
            let height = value.height;
            return node(Kind::Negative(Box::new(value)), line, height);
        }
        if self.skip("+")? {
            return self.deeper(Self::signed);
        }
        let value = self.primary()?;
        self.postfix(value)
    }

    fn postfix(&mut self, mut value: Node) -> Parsed<Node> {
        loop {
            let line = self.line;
            if self.skip(".")? {
                let below = value.height;
                value = match self.token {
                    Token::Int(index) => {
                        self.advance()?;
                        let index = node(Kind::Int(index), line, 0)?;
                        node(Kind::Item(Box::new((value, index))), line, below)?
                    }
                    _ => {
                        let name = self.name()?;
                        node(Kind::Attribute(Box::new(value), name), line, below)?
                    }
                };
            } else if self.is("[") {
                self.advance()?;
                value = self.subscript(value, line)?;
            } else if self.is("(") {
                if matches!(&value.kind, Kind::Attribute(_, name) if &**name == "changed") {
                    return Err(Fault::new("`loop.changed` is not built in").at(line));
                }
                let arguments = self.arguments()?;
                let height = value.height.max(highest_argument(&arguments));
                value = node(Kind::Call(Box::new(value), arguments), line, height)?;
            } else {
                return Ok(value);
            }
        }
    }

    /// What stands in square brackets after a value, past the first.
    fn subscript(&mut self, value: Node, line: usize) -> Parsed<Node> {
        let mut bounds = [None, None, None];
        let mut colons = 0;
        while !self.skip("]")? {
            if self.skip(":")? {
                colons += 1;
                if colons == bounds.len() {
                    return Err(Fault::new("a slice has at most three bounds").at(line));
                }
            } else if bounds[colons].is_none() {
                bounds[colons] = Some(self.expression()?);
            } else {
                return self.unexpected("`]`");
            }
        }
        let height = value.height.max(highest(bounds.iter().flatten()));
        if colons > 0 {
            return node(Kind::Slice(Box::new(Slice { value, bounds })), line, height);
        }
        let [Some(index), ..] = bounds else {
            return Err(Fault::new("an index is missing").at(line));
        };
        node(Kind::Item(Box::new((value, index))), line, height)
    }

    fn arguments(&mut self) -> Parsed<Vec<Argument>> {
        self.expect("(")?;
        let mut arguments: Vec<Argument> = Vec::new();
        while !self.skip(")")? {
            if !arguments.is_empty() {
                self.expect(",")?;
                if self.skip(")")? {
                    break;
                }
            }
            let line = self.line;
            if self.is("*") || self.is("**") {
                return Err(Fault::new("calls with `*` or `**` are not built in").at(line));
            }
            let value = self.expression()?;
            let name = match &value.kind {
                Kind::Variable(name) if self.is("=") => Some(name.clone()),
                _ => None,
            };
            let value = match name {
                Some(_) => {
                    self.advance()?;
                    self.expression()?
                }
                None if arguments.last().is_some_and(|a| a.name.is_some()) => {
                    let reason = "an argument without a name after one with a name";
                    return Err(Fault::new(reason).at(line));
                }
                None => value,
            };
            arguments.push(Argument { name, value });
        }
        Ok(arguments)
    }

    fn primary(&mut self) -> Parsed<Node> {
        let line = self.line;
        let kind = match self.token.clone() {
            Token::Name(name) => match name {
                "true" | "True" => Kind::Bool(true),
                "false" | "False" => Kind::Bool(false),
                "none" | "None" => Kind::None,
                "not" | "and" | "or" | "in" | "is" | "if" | "else" => {
                    return self.unexpected("a value");
                }
                name => Kind::Variable(name.into()),
            },
            Token::Str(text) => return self.string(text, line),
            Token::Int(number) => Kind::Int(number),
            Token::Float(number) => Kind::Float(number),
            Token::Operator("(") => {
                self.advance()?;
                return self.bracketed(line);
            }
            Token::Operator("[") => {
                self.advance()?;
                return self.list(line);
            }
            Token::Operator("{") => {
                self.advance()?;
                return self.dict(line);
            }
            _ => return self.unexpected("a value"),
        };
        self.advance()?;
        node(kind, line, 0)
    }

    /// Strings side by side are one.
    fn string(&mut self, mut text: String, line: usize) -> Parsed<Node> {
        self.advance()?;
        while let Token::Str(more) = &self.token {
            text.push_str(more);
            self.advance()?;
        }
        node(Kind::Str(text.into()), line, 0)
    }

    fn bracketed(&mut self, line: usize) -> Parsed<Node> {
        if self.skip(")")? {
            return node(Kind::Tuple(Vec::new()), line, 0);
        }
        let value = self.tuple()?;
        self.expect(")")?;
        Ok(value)
    }

    fn list(&mut self, line: usize) -> Parsed<Node> {
        let mut items = Vec::new();
        while !self.skip("]")? {
            if !items.is_empty() {
                self.expect(",")?;
                if self.skip("]")? {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        let height = highest(&items);
        node(Kind::List(items), line, height)
    }

    fn dict(&mut self, line: usize) -> Parsed<Node> {
        let mut items = Vec::new();
        while !self.skip("}")? {
            if !items.is_empty() {
                self.expect(",")?;
                if self.skip("}")? {
                    break;
                }
            }
            let key = self.expression()?;
            self.expect(":")?;
            items.push((key, self.expression()?));
        }
        let height = highest(items.iter().flat_map(|(k, v)| [k, v]));
        node(Kind::Dict(items), line, height)
    }
}
