//! Tokens to a tree.

use std::sync::Arc;

use super::ast::{For, Kind, Macro, Node, Statement, StatementKind, Target};
use super::fault::Fault;
use super::lexer::{Lexer, Token, shorten};

/// How deep expressions and statements may nest: what walks them may use a fixed stack.
pub(super) const DEEPEST: usize = 100;

pub(super) type Parsed<T> = Result<T, Fault>;

/// Parses a whole template whose line ends are `\n`.
///
/// # Errors
/// If it is not one, uses what is not built in, or nests too deeply.
pub(super) fn parse(source: &str) -> Parsed<Vec<Statement>> {
    let mut parser = Parser {
        lexer: Lexer::new(source),
        token: Token::End,
        line: 1,
        depth: 0,
        loops: 0,
    };
    parser.advance()?;
    let (statements, end) = parser.statements(&[])?;
    debug_assert!(end.is_empty());
    Ok(statements)
}

/// A parser one token ahead.
pub(super) struct Parser<'s> {
    lexer: Lexer<'s>,
    /// The token that comes next.
    pub(super) token: Token<'s>,
    /// Its line.
    pub(super) line: usize,
    /// How deep the call of the parser nests.
    depth: usize,
    /// Open loops, for `break` and `continue`.
    loops: usize,
}

/// The fault of what nests too deeply.
pub(super) fn too_deep() -> Fault {
    Fault::new(format!("it nests deeper than {DEEPEST} levels"))
}

impl<'s> Parser<'s> {
    pub(super) fn advance(&mut self) -> Parsed<Token<'s>> {
        let (next, line) = self.lexer.next()?;
        self.line = line;
        Ok(std::mem::replace(&mut self.token, next))
    }

    pub(super) fn unexpected<T>(&self, wanted: &str) -> Parsed<T> {
        let found = self.token.describe();
        Err(Fault::new(format!("expected {wanted}, found {found}")).at(self.line))
    }

    pub(super) fn is(&self, operator: &str) -> bool {
        matches!(self.token, Token::Operator(found) if found == operator)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.token == Token::Name(word)
    }

    pub(super) fn skip(&mut self, operator: &str) -> Parsed<bool> {
        let found = self.is(operator);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn skip_word(&mut self, word: &str) -> Parsed<bool> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, operator: &str) -> Parsed<()> {
        if self.skip(operator)? {
            return Ok(());
        }
        self.unexpected(&format!("`{operator}`"))
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.skip_word(word)? {
            return Ok(());
        }
        self.unexpected(&format!("`{word}`"))
    }

    fn expect_block_end(&mut self) -> Parsed<()> {
        if self.token != Token::BlockEnd {
            return self.unexpected("`%}`");
        }
        self.advance().map(|_| ())
    }

    pub(super) fn name(&mut self) -> Parsed<Arc<str>> {
        let Token::Name(name) = self.token else {
            return self.unexpected("a name");
        };
        self.advance()?;
        Ok(name.into())
    }

    /// Goes one level down.
    pub(super) fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEEPEST {
            return Err(too_deep().at(self.line));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Statements up to a block that starts with one of these words, which is passed, and the
    /// word; up to the end if there are none.
    fn statements(&mut self, ends: &[&'static str]) -> Parsed<(Vec<Statement>, &'static str)> {
        let start = self.line;
        let mut statements = Vec::new();
        loop {
            let line = self.line;
            let kind = match self.advance()? {
                Token::End if ends.is_empty() => return Ok((statements, "")),
                Token::End => {
                    let fault = Fault::new(format!("a block does not end: no `{}`", ends[0]));
                    return Err(fault.at(start));
                }
                Token::Text(text) => StatementKind::Text(text.into()),
                Token::PrintStart => {
                    let printed = self.tuple()?;
                    if self.token != Token::PrintEnd {
                        return self.unexpected("`}}`");
                    }
                    self.advance()?;
                    StatementKind::Print(printed)
                }
                Token::BlockStart => {
                    let Token::Name(word) = self.token else {
                        return self.unexpected("a statement");
                    };
                    if let Some(end) = ends.iter().find(|end| **end == word) {
                        self.advance()?;
                        return Ok((statements, end));
                    }
                    self.advance()?;
                    self.deeper(|parser| parser.statement(word))
                        .map_err(|fault| fault.at(line))?
                }
                other => {
                    let found = other.describe();
                    return Err(Fault::new(format!("unexpected {found}")).at(line));
                }
            };
            statements.push(Statement { kind, line });
        }
    }

    /// A body up to one of these words, whose block must end there.
    fn body(&mut self, end: &'static str) -> Parsed<Vec<Statement>> {
        self.expect_block_end()?;
        let (body, _) = self.statements(&[end])?;
        self.expect_block_end()?;
        Ok(body)
    }

    fn statement(&mut self, word: &str) -> Parsed<StatementKind> {
        match word {
            "if" => self.if_block(),
            "for" => self.for_block(),
            "set" => self.set(),
            "macro" => {
                let name = self.name()?;
                self.macro_block(name, "endmacro").map(StatementKind::Macro)
            }
            "call" => self.call_block(),
            "filter" => {
                let filters = self.filters()?;
                Ok(StatementKind::Filter(filters, self.body("endfilter")?))
            }
            "with" => self.with_block(),
            "generation" => Ok(StatementKind::Generation(self.body("endgeneration")?)),
            "do" => {
                let node = self.tuple()?;
                self.expect_block_end()?;
                Ok(StatementKind::Do(node))
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    return Err(Fault::new(format!("`{word}` outside a loop")));
                }
                self.expect_block_end()?;
                Ok(match word {
                    "break" => StatementKind::Break,
                    _ => StatementKind::Continue,
                })
            }
            other => {
                let other = shorten(other);
                Err(Fault::new(format!(
                    "the statement `{other}` is not known here"
                )))
            }
        }
    }

    fn if_block(&mut self) -> Parsed<StatementKind> {
        let mut branches = Vec::new();
        let mut condition = self.tuple()?;
        loop {
            self.expect_block_end()?;
            let (body, end) = self.statements(&["endif", "elif", "else"])?;
            branches.push((condition, body));
            if branches.len() > DEEPEST {
                return Err(Fault::new(format!(
                    "an `if` has more than {DEEPEST} branches"
                )));
            }
            match end {
                "elif" => condition = self.tuple()?,
                "else" => {
                    let otherwise = self.body("endif")?;
                    return Ok(StatementKind::If(branches, otherwise));
                }
                _ => {
                    self.expect_block_end()?;
                    return Ok(StatementKind::If(branches, Vec::new()));
                }
            }
        }
    }

    fn for_block(&mut self) -> Parsed<StatementKind> {
        let target = self.target(false)?;
        self.expect_word("in")?;
        // Without a conditional, whose `if` is the loop's.
        let first = self.or()?;
        let items = self.rest_of_tuple(first)?;
        let condition = match self.skip_word("if")? {
            true => Some(self.expression()?),
            false => None,
        };
        if self.is_word("recursive") {
            return Err(Fault::new("recursive loops are not built in").at(self.line));
        }
        self.expect_block_end()?;
        self.loops += 1;
        let parsed = self.statements(&["endfor", "else"]);
        self.loops -= 1;
        let (body, end) = parsed?;
        let otherwise = if end == "else" {
            self.body("endfor")?
        } else {
            self.expect_block_end()?;
            Vec::new()
        };
        Ok(StatementKind::For(Box::new(For {
            target,
            items,
            condition,
            body,
            otherwise,
        })))
    }

    fn set(&mut self) -> Parsed<StatementKind> {
        let target = self.target(true)?;
        if self.skip("=")? {
            let value = self.tuple()?;
            self.expect_block_end()?;
            return Ok(StatementKind::Set(target, value));
        }
        let filters = match self.skip("|")? {
            true => self.filters()?,
            false => Vec::new(),
        };
        Ok(StatementKind::SetBlock(
            target,
            filters,
            self.body("endset")?,
        ))
    }

    fn with_block(&mut self) -> Parsed<StatementKind> {
        let mut assignments = Vec::new();
        while self.token != Token::BlockEnd {
            if !assignments.is_empty() {
                self.expect(",")?;
            }
            let target = self.target_name(false)?;
            self.expect("=")?;
            assignments.push((target, self.expression()?));
        }
        Ok(StatementKind::With(assignments, self.body("endwith")?))
    }

    fn call_block(&mut self) -> Parsed<StatementKind> {
        // The parameters of `caller` come first, so they wait for their body.
        let parameters = match self.is("(") {
            true => self.parameters()?,
            false => Vec::new(),
        };
        let call = self.expression()?;
        if !matches!(call.kind, Kind::Call(..)) {
            return Err(Fault::new("a call block needs a call"));
        }
        let body = self.macro_body("endcall")?;
        let definition = Macro {
            name: "caller".into(),
            parameters,
            body,
        };
        Ok(StatementKind::Call(call, Arc::new(definition)))
    }

    fn macro_block(&mut self, name: Arc<str>, end: &'static str) -> Parsed<Arc<Macro>> {
        let parameters = self.parameters()?;
        let body = self.macro_body(end)?;
        Ok(Arc::new(Macro {
            name,
            parameters,
            body,
        }))
    }

    /// A body of its own: loops around it are not its own.
    fn macro_body(&mut self, end: &'static str) -> Parsed<Vec<Statement>> {
        let loops = std::mem::take(&mut self.loops);
        let body = self.body(end);
        self.loops = loops;
        body
    }

    fn parameters(&mut self) -> Parsed<Vec<(Arc<str>, Option<Node>)>> {
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.skip(")")? {
            if !parameters.is_empty() {
                self.expect(",")?;
                if self.skip(")")? {
                    break;
                }
            }
            let name = self.name()?;
            let default = match self.skip("=")? {
                true => Some(self.expression()?),
                false => None,
            };
            parameters.push((name, default));
        }
        Ok(parameters)
    }

    /// What is assigned to: a name or several; a field of a namespace where `fields` says so.
    fn target(&mut self, fields: bool) -> Parsed<Target> {
        let first = self.target_part(fields)?;
        if !self.is(",") {
            return Ok(first);
        }
        let mut targets = vec![first];
        while self.skip(",")? {
            if !matches!(self.token, Token::Name(name) if name != "in") && !self.is("(") {
                break;
            }
            targets.push(self.target_part(fields)?);
        }
        Ok(Target::Several(targets))
    }

    fn target_part(&mut self, fields: bool) -> Parsed<Target> {
        if !self.skip("(")? {
            return self.target_name(fields);
        }
        let target = self.deeper(|parser| parser.target(fields))?;
        self.expect(")")?;
        Ok(target)
    }

    fn target_name(&mut self, fields: bool) -> Parsed<Target> {
        let line = self.line;
        let name = self.name()?;
        if is_reserved(&name) || &*name == "loop" {
            return Err(Fault::new(format!("`{name}` cannot be assigned to")).at(line));
        }
        if fields && self.skip(".")? {
            return Ok(Target::Field(name, self.name()?));
        }
        Ok(Target::Name(name))
    }
}

fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "true"
            | "True"
            | "false"
            | "False"
            | "none"
            | "None"
            | "not"
            | "and"
            | "or"
            | "in"
            | "is"
            | "if"
            | "else"
    )
}
