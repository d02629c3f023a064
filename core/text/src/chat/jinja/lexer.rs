//! Source to tokens, one tag at a time.

use super::fault::Fault;

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'s> {
    /// Text between tags.
    Text(&'s str),
    /// `{{`.
    PrintStart,
    /// `}}`.
    PrintEnd,
    /// `{%`.
    BlockStart,
    /// `%}`.
    BlockEnd,
    Name(&'s str),
    Str(String),
    Int(i64),
    Float(f64),
    Operator(&'static str),
    /// The end of the source.
    End,
}

impl Token<'_> {
    /// How errors name it.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Text(_) => "text".into(),
            Token::PrintStart => "`{{`".into(),
            Token::PrintEnd => "`}}`".into(),
            Token::BlockStart => "`{%`".into(),
            Token::BlockEnd => "`%}`".into(),
            Token::Name(name) => format!("`{}`", shorten(name)),
            Token::Str(_) => "a string".into(),
            Token::Int(_) | Token::Float(_) => "a number".into(),
            Token::Operator(operator) => format!("`{operator}`"),
            Token::End => "the end of the template".into(),
        }
    }
}

/// The start of a name that may be long.
pub(super) fn shorten(name: &str) -> String {
    const LONGEST: usize = 60;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into(),
    }
}

/// Operators, longest first.
const OPERATORS: [&str; 25] = [
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<", ">", "=", "|", ".", ",",
    ":", "(", ")", "[", "]", "{", "}",
];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Text,
    Print,
    Block,
}

/// Reads tokens. Blocks and comments take the newline after them and the blanks before them on
/// their line, as Hugging Face's `trim_blocks` and `lstrip_blocks` say.
pub(super) struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    mode: Mode,
    /// Open brackets in the tag.
    open: usize,
    /// The text that follows starts a line.
    starts_line: bool,
}

impl<'s> Lexer<'s> {
    /// Starts at the beginning of a source whose line ends are `\n`.
    pub(super) fn new(source: &'s str) -> Self {
        Self {
            source: source.strip_suffix('\n').unwrap_or(source),
            at: 0,
            line: 1,
            mode: Mode::Text,
            open: 0,
            starts_line: true,
        }
    }

    /// The next token, with its line.
    ///
    /// # Errors
    /// If there is no token, or a tag, comment or string does not end.
    pub(super) fn next(&mut self) -> Result<(Token<'s>, usize), Fault> {
        let token = if self.mode == Mode::Text {
            self.text()
        } else {
            self.skip_blanks();
            let line = self.line;
            return self
                .in_tag()
                .map(|token| (token, line))
                .map_err(|fault| fault.at(line));
        };
        let line = self.line;
        token.map_err(|fault| fault.at(line))
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) -> &'s str {
        let passed = &self.rest()[..bytes];
        self.line += passed.bytes().filter(|&b| b == b'\n').count();
        self.at += bytes;
        passed
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.advance(rest.len() - rest.trim_start().len());
    }

    /// Text up to the next tag, or that tag's start.
    fn text(&mut self) -> Result<(Token<'s>, usize), Fault> {
        loop {
            let rest = self.rest();
            let line = self.line;
            if rest.is_empty() {
                return Ok((Token::End, line));
            }
            let tag = rest
                .match_indices('{')
                .find(|(at, _)| rest[at + 1..].starts_with(['{', '%', '#']));
            let Some((start, _)) = tag else {
                self.advance(rest.len());
                return Ok((Token::Text(rest), line));
            };
            let text = self.before_tag(start);
            self.advance(start);
            if !text.is_empty() {
                return Ok((Token::Text(text), line));
            }
            let kind = rest.as_bytes()[start + 1];
            self.advance(2);
            match kind {
                b'#' => self.comment()?,
                b'{' => {
                    self.skip_sign();
                    self.mode = Mode::Print;
                    return Ok((Token::PrintStart, self.line));
                }
                _ => {
                    self.skip_sign();
                    if let Some(after) = self.is_block("raw") {
                        self.advance(after);
                        return self.raw();
                    }
                    self.mode = Mode::Block;
                    return Ok((Token::BlockStart, self.line));
                }
            }
        }
    }

    fn skip_sign(&mut self) {
        if self.rest().starts_with(['-', '+']) {
            self.at += 1;
        }
    }

    /// The text before the tag `start` bytes on, less the blanks that the tag takes.
    fn before_tag(&self, start: usize) -> &'s str {
        let (text, tag) = self.rest().split_at(start);
        match tag.as_bytes()[2..].first() {
            Some(b'-') => text.trim_end(),
            Some(b'+') => text,
            _ if tag.starts_with("{{") => text,
            _ => {
                let line = text.rfind('\n').map_or(0, |at| at + 1);
                let starts_line = line > 0 || self.starts_line;
                if starts_line && text[line..].chars().all(char::is_whitespace) {
                    &text[..line]
                } else {
                    text
                }
            }
        }
    }

    /// Passes the end of a tag: `%}`, `-%}` or `+%}`, with the blanks that it takes. `false` if
    /// there is none here.
    fn end_of_tag(&mut self, end: &str) -> bool {
        let rest = self.rest();
        let (sign, after) = match rest.as_bytes().first() {
            Some(sign @ (b'-' | b'+')) => (*sign, &rest[1..]),
            _ => (0, rest),
        };
        let Some(after) = after.strip_prefix(end) else {
            return false;
        };
        if sign == b'+' && end == "}}" {
            return false;
        }
        let taken = match sign {
            b'-' => after.len() - after.trim_start().len(),
            0 if end != "}}" => usize::from(after.starts_with('\n')),
            _ => 0,
        };
        let passed = self.advance(rest.len() - after.len() + taken);
        self.starts_line = passed.ends_with('\n');
        true
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let Some(end) = self.rest().find("#}") else {
            return Err(Fault::new("a comment does not end"));
        };
        let signed = end > 0 && matches!(self.rest().as_bytes()[end - 1], b'-' | b'+');
        self.advance(end - usize::from(signed));
        self.end_of_tag("#}");
        Ok(())
    }

    /// Bytes up to the end of the tag if it consists of this word.
    fn is_block(&self, word: &str) -> Option<usize> {
        let rest = self.rest();
        let after = rest.trim_start().strip_prefix(word)?.trim_start();
        let ends = after.trim_start_matches(['-', '+']).starts_with("%}");
        ends.then_some(rest.len() - after.len())
    }

    /// What stands between `raw` and `endraw`, whose tag is passed.
    fn raw(&mut self) -> Result<(Token<'s>, usize), Fault> {
        let trims = self.rest().starts_with('-');
        self.advance(2 + usize::from(self.rest().starts_with(['-', '+'])));
        if trims {
            self.skip_blanks();
        }
        let (body, line) = (self.rest(), self.line);
        for (at, _) in body.match_indices("{%") {
            let mut end = Self {
                at: self.at + at + 2,
                ..*self
            };
            end.skip_sign();
            if let Some(after) = end.is_block("endraw") {
                let text = self.before_tag(at);
                self.advance(end.at - self.at + after);
                self.end_of_tag("%}");
                return Ok((Token::Text(text), line));
            }
        }
        Err(Fault::new("a raw block does not end"))
    }

    fn in_tag(&mut self) -> Result<Token<'s>, Fault> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Err(Fault::new("a tag does not end"));
        };
        let (end, token) = match self.mode {
            Mode::Print => ("}}", Token::PrintEnd),
            _ => ("%}", Token::BlockEnd),
        };
        if self.open == 0 && self.end_of_tag(end) {
            self.mode = Mode::Text;
            return Ok(token);
        }
        if first == '_' || first.is_alphabetic() {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
            return Ok(Token::Name(self.advance(end.unwrap_or(rest.len()))));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' || first == '\'' {
            return self.string(first);
        }
        let operator = OPERATORS.iter().find(|o| rest.starts_with(**o));
        let Some(operator) = operator else {
            return Err(Fault::new(format!("unexpected character {first:?}")));
        };
        match *operator {
            "(" | "[" | "{" => self.open += 1,
            ")" | "]" | "}" => {
                let open = self.open.checked_sub(1);
                self.open = open.ok_or_else(|| Fault::new(format!("unexpected `{operator}`")))?;
            }
            _ => {}
        }
        self.advance(operator.len());
        Ok(Token::Operator(operator))
    }

    fn number(&mut self) -> Result<Token<'s>, Fault> {
        let bytes = self.rest().as_bytes();
        let after_dot = self.source[..self.at].ends_with('.');
        let digits = |from: usize| {
            let digit = |b: &&u8| b.is_ascii_digit() || **b == b'_';
            bytes[from..].iter().take_while(digit).count()
        };
        let mut len = digits(0);
        let mut is_float = false;
        if !after_dot && bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
            is_float = true;
            len += 1 + digits(len + 1);
        }
        if !after_dot && matches!(bytes.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
            let exponent = bytes
                .get(len + 1 + sign)
                .map_or(0, |_| digits(len + 1 + sign));
            if exponent > 0 {
                is_float = true;
                len += 1 + sign + exponent;
            }
        }
        let text = self.advance(len).replace('_', "");
        let bad = || Fault::new("a number is too large");
        if is_float {
            text.parse().map(Token::Float).map_err(|_| bad())
        } else {
            text.parse().map(Token::Int).map_err(|_| bad())
        }
    }

    fn string(&mut self, quote: char) -> Result<Token<'s>, Fault> {
        let rest = &self.rest()[1..];
        let mut escaped = false;
        let end = rest.find(|c: char| {
            let ends = !escaped && c == quote;
            escaped = !escaped && c == '\\';
            ends
        });
        let end = end.ok_or_else(|| Fault::new("a string does not end"))?;
        let text = unescape(&rest[..end]);
        self.advance(end + 2);
        Ok(Token::Str(text))
    }
}

/// Replaces Python's escapes. Unknown ones stay as they are.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else {
            break;
        };
        rest = &rest[c.len_utf8()..];
        match c {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'v' => out.push('\u{b}'),
            'a' => out.push('\u{7}'),
            '\\' | '\'' | '"' => out.push(c),
            '\n' => {}
            '0'..='7' => {
                let more = rest
                    .bytes()
                    .take(2)
                    .take_while(|b| (b'0'..=b'7').contains(b));
                let (digits, after) = rest.split_at(more.count());
                let code = u32::from_str_radix(&format!("{c}{digits}"), 8).ok();
                out.extend(code.and_then(char::from_u32));
                rest = after;
            }
            'x' | 'u' | 'U' => {
                let len = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                match code_point(rest, len) {
                    Some((found, used)) => {
                        out.push(found);
                        rest = &rest[used..];
                    }
                    None => {
                        out.push('\\');
                        out.push(c);
                    }
                }
            }
            other => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    out.push_str(rest);
    out
}

/// The character that `len` hexadecimal digits give, with a second escape where they are half of
/// a surrogate pair, and how many bytes that took.
fn code_point(text: &str, len: usize) -> Option<(char, usize)> {
    let hex = |from: usize| u32::from_str_radix(text.get(from..from + len)?, 16).ok();
    let first = hex(0)?;
    if let Some(c) = char::from_u32(first) {
        return Some((c, len));
    }
    let second = text.get(len..)?.strip_prefix("\\u").and(hex(len + 2))?;
    let pair = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
    let c = char::decode_utf16(pair).next()?.ok()?;
    Some((c, 2 * len + 2))
}
