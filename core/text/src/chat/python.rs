//! Values as Python prints them. Templates are written for Jinja in Python, where `true` prints
//! as `True` and a list as `['a', 'b']`.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State};

use super::jinja::{eager, equal, invalid, is_scalar};

/// How deep values may nest.
const DEEPEST: usize = 128;

/// Prints a value where a template says `{{ value }}`.
pub(super) fn print(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    // A buffer that grows takes up to three times its text for a moment.
    if let Some(text) = value.as_str() {
        charge(state, 2 * text.len())?;
        return out.write_str(text).map_err(Error::from);
    }
    let text = to_str(state, value)?;
    charge(state, 2 * text.len())?;
    out.write_str(&text).map_err(Error::from)
}

/// The filter `string`: Python's `str()`.
pub(super) fn string_filter(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    to_str(state, value)
}

/// Python's `str()`.
pub(super) fn to_str(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => {
            charge(state, text.len())?;
            out.push_str(text);
        }
        None if value.is_undefined() => {}
        None => write_repr(state, &mut out, value, 0)?,
    }
    Ok(out)
}

/// Pays for `bytes` bytes of new text, and for one step.
pub(super) fn charge(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(1 + bytes as u64 / 64)
}

/// What a string may take when it is written with escapes to a buffer that grows.
fn written_bytes(text: &str) -> usize {
    let escaped = text
        .chars()
        .filter(|c| c.is_control() || !c.is_ascii())
        .count();
    2 * (text.len() + 12 * escaped.min(text.len()))
}

/// Python's `repr()`. Each value is paid for as it is written: a list may be short in memory
/// and endless in print.
fn write_repr(
    state: &State<'_, '_>,
    out: &mut String,
    value: &Value,
    depth: usize,
) -> Result<(), Error> {
    check_depth(depth)?;
    charge(state, value.as_str().map_or(32, written_bytes))?;
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(out, value),
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                separate(out, i);
                write_repr(state, out, &item, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                separate(out, i);
                write_repr(state, out, &key, depth + 1)?;
                out.push_str(": ");
                write_repr(state, out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// Methods of Python's strings, lists and dicts. What they make is paid for before it is made.
pub(super) fn methods(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), method) {
        (Some(separator), "join") => return join(state, separator, args).map(Value::from),
        (Some(text), "split") => return split(state, text, args),
        (Some(text), "replace") => {
            let (old, new, count): (&str, &str, Option<i64>) = minijinja::value::from_args(args)?;
            let count = count.and_then(|count| usize::try_from(count).ok());
            return replace(state, text, old, new, count).map(Value::from);
        }
        (Some(format), "format") => charge_format(state, format, '{', args)?,
        (Some(_), "startswith" | "endswith") => {
            for arg in args.iter().filter(|a| a.as_str().is_none()) {
                for _ in arg.try_iter()? {
                    charge(state, 0)?;
                }
            }
        }
        (Some(text), "strip" | "lstrip" | "rstrip") => {
            let chars = args.first().and_then(Value::as_str).map_or(1, str::len);
            charge(state, text.len().saturating_mul(chars.max(1)))?;
        }
        (Some(text), "splitlines") => {
            charge(
                state,
                text.len() + LIST_ITEM_BYTES * text.matches('\n').count(),
            )?;
        }
        (Some(text), _) => charge(state, text.len())?,
        (None, "count") => {
            let (wanted,): (&Value,) = minijinja::value::from_args(args)?;
            let mut count = 0;
            for item in value.try_iter()? {
                count += usize::from(equal(state, &item, wanted)?);
            }
            return Ok(Value::from(count));
        }
        (None, "get") if args.first().is_some_and(|key| !is_scalar(key)) => {
            return Err(invalid("only scalars are keys"));
        }
        (None, "items" | "keys" | "values") => {
            let bytes = value.len().unwrap_or(0).saturating_mul(3 * LIST_ITEM_BYTES);
            charge(state, bytes)?;
        }
        _ => charge(state, 0)?,
    }
    let made = minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)?;
    eager(state, &made)
}

/// What an item of a list and a short string in it take, in bytes.
const LIST_ITEM_BYTES: usize = 48;

fn join(state: &State<'_, '_>, separator: &str, args: &[Value]) -> Result<String, Error> {
    let (items,): (&Value,) = minijinja::value::from_args(args)?;
    let mut out = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        let text = item
            .as_str()
            .ok_or_else(|| invalid(format!("join: item {i} is no string but {}", item.kind())))?;
        charge(state, 2 * (separator.len() + text.len()))?;
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
    }
    Ok(out)
}

/// Python's `split`: at a separator, or at blanks if there is none, at most so often.
pub(super) fn split(state: &State<'_, '_>, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (Option<&str>, Option<i64>) = minijinja::value::from_args(args)?;
    let most = most.and_then(|most| usize::try_from(most).ok());
    let most = most.unwrap_or(usize::MAX);
    charge(state, text.len())?;
    let mut parts = Vec::new();
    let mut push = |part: &str| {
        charge(state, LIST_ITEM_BYTES + part.len())?;
        parts.push(Value::from(part));
        Ok::<_, Error>(())
    };
    match separator {
        Some("") => return Err(invalid("split: the separator is empty")),
        Some(separator) => {
            for part in text.splitn(most.saturating_add(1), separator) {
                push(part)?;
            }
        }
        None => {
            let mut rest = text.trim_start();
            let mut count = 0;
            while !rest.is_empty() {
                let end = rest.find(char::is_whitespace).filter(|_| count < most);
                let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
                push(if end.is_none() && count >= most {
                    part.trim_end()
                } else {
                    part
                })?;
                count += 1;
                rest = after.trim_start();
            }
        }
    }
    Ok(Value::from(parts))
}

/// Python's `replace`, at most so often.
pub(super) fn replace(
    state: &State<'_, '_>,
    text: &str,
    old: &str,
    new: &str,
    count: Option<usize>,
) -> Result<String, Error> {
    charge(state, text.len())?;
    let most = count.unwrap_or(usize::MAX);
    let found = text.matches(old).take(most).count();
    charge(state, 2 * text.len() + found.saturating_mul(2 * new.len()))?;
    Ok(text.replacen(old, new, most))
}

/// Pays for the longest text that a format with these arguments can give; `marker` starts a field.
pub(super) fn charge_format(
    state: &State<'_, '_>,
    format: &str,
    marker: char,
    args: &[Value],
) -> Result<(), Error> {
    let mut longest = 32;
    for arg in args {
        longest = longest.max(match arg.as_str() {
            Some(text) => text.len(),
            None => to_str(state, arg)?.len(),
        });
    }
    let numbers = format.split(|c: char| !c.is_ascii_digit());
    let width = numbers
        .filter(|n| !n.is_empty())
        .map(|n| n.parse().unwrap_or(usize::MAX));
    let fields = format.matches(marker).count();
    // Quoting and escaping make a character six at most.
    let field_bytes = longest
        .saturating_mul(6)
        .saturating_add(width.max().unwrap_or(0));
    charge(
        state,
        fields
            .saturating_mul(field_bytes)
            .saturating_add(2 * format.len()),
    )
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("a value nests deeper than {DEEPEST} levels"),
        ));
    }
    Ok(())
}

fn separate(out: &mut String, index: usize) {
    if index > 0 {
        out.push_str(", ");
    }
}

fn write_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Integers as they are; floats with the shortest digits that read back, as `repr` does.
fn write_number(out: &mut String, value: &Value) {
    if value.is_integer() {
        out.push_str(&value.to_string());
        return;
    }
    let Ok(number) = f64::try_from(value.clone()) else {
        out.push_str(&value.to_string());
        return;
    };
    let exponent = number.abs().log10().floor();
    if number != 0.0 && number.is_finite() && !(-4.0..16.0).contains(&exponent) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(positive) => ('-', positive),
            None => ('+', exponent),
        };
        out.push_str(&format!("{digits}e{sign}{exponent:0>2}"));
    } else if number.is_nan() {
        out.push_str("nan");
    } else {
        out.push_str(&format!("{number:?}"));
    }
}

/// How JSON is laid out, as Python's `json.dumps` is told.
#[derive(Clone, Debug)]
struct JsonStyle {
    ensure_ascii: bool,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter `tojson` as chat templates know it: `json.dumps` with its keyword arguments, and
/// no HTML escapes.
pub(super) fn tojson_filter(
    state: &State<'_, '_>,
    value: &Value,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        Some(indent) if !indent.is_none() => Some(usize::try_from(indent)?.min(64)),
        _ => None,
    };
    let separators = match kwargs.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => Some((
            to_str(state, &pair.get_item_by_index(0)?)?,
            to_str(state, &pair.get_item_by_index(1)?)?,
        )),
        _ => None,
    };
    let default_item = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) =
        separators.unwrap_or_else(|| (default_item.into(), ": ".into()));
    let style = JsonStyle {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut json = Json {
        out: String::new(),
        style,
        state,
    };
    json.value(value, 0)?;
    Ok(json.out)
}

struct Json<'a, 's, 'e> {
    out: String,
    style: JsonStyle,
    state: &'a State<'s, 'e>,
}

impl Json<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        charge(self.state, value.as_str().map_or(32, written_bytes))?;
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => write_number(&mut self.out, value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?;
                self.container('[', ']', depth, items, |json, item| {
                    json.value(&item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                self.state.consume_fuel(keys.len() as u64)?;
                if self.style.sort_keys {
                    keys.sort();
                }
                self.container('{', '}', depth, keys.into_iter(), |json, key| {
                    charge(json.state, key.as_str().map_or(32, written_bytes))?;
                    json.string(&key.to_string());
                    json.out.push_str(&json.style.key_separator.clone());
                    json.value(&value.get_item(&key)?, depth + 1)
                })?;
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("{kind} cannot be written as JSON"),
                ));
            }
        }
        Ok(())
    }

    fn container(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: impl Iterator<Item = Value>,
        mut item: impl FnMut(&mut Self, Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut empty = true;
        for value in items {
            let separators = self.style.item_separator.len() + self.style.key_separator.len();
            charge(self.state, 2 * separators)?;
            if !empty {
                self.out.push_str(&self.style.item_separator.clone());
            }
            empty = false;
            self.line(depth + 1)?;
            item(self, value)?;
        }
        if !empty {
            self.line(depth)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = self.style.indent {
            charge(self.state, indent * depth)?;
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.style.ensure_ascii && c as u32 >= 0x7f) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// The test `sequence`: a string is one in Python.
pub(super) fn is_sequence(value: &Value) -> bool {
    value.is_undefined()
        || matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map
        )
}

/// The test `iterable`.
pub(super) fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined
            | ValueKind::String
            | ValueKind::Seq
            | ValueKind::Iterable
            | ValueKind::Map
    )
}
