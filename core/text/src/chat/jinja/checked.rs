//! Operators that pay before they work, on values that are never lazy, deep or circular.

use std::cmp::Ordering;

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

use crate::chat::python::{charge, to_str};

/// How deep containers that a template builds may nest.
const DEEPEST: usize = 100;
/// What an item of a list takes, in bytes.
const SLOT_BYTES: usize = 48;

type Checked<T = Value> = Result<T, Error>;

/// Adds the functions that a rewritten template calls.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_function("_kv_add", add);
    environment.add_function("_kv_sub", |a: &Value, b: &Value| {
        arithmetic("-", a, b, i64::checked_sub, |a, b| a - b)
    });
    environment.add_function("_kv_mul", multiply);
    environment.add_function("_kv_div", |a: &Value, b: &Value| divide(a, b));
    environment.add_function("_kv_floordiv", |a: &Value, b: &Value| {
        arithmetic("//", a, b, floor_divide, |a, b| (a / b).floor())
    });
    environment.add_function("_kv_rem", |a: &Value, b: &Value| {
        arithmetic("%", a, b, remainder, |a, b| a - b * (a / b).floor())
    });
    environment.add_function("_kv_pow", |a: &Value, b: &Value| {
        arithmetic("**", a, b, power, f64::powf)
    });
    environment.add_function("_kv_concat", concatenate);
    environment.add_function("_kv_eq", |s: &State<'_, '_>, a: &Value, b: &Value| {
        equal(s, a, b)
    });
    environment.add_function("_kv_lt", |s: &State<'_, '_>, a: &Value, b: &Value| {
        order(s, a, b).map(|o| o == Some(Ordering::Less))
    });
    environment.add_function("_kv_le", |s: &State<'_, '_>, a: &Value, b: &Value| {
        order(s, a, b).map(|o| matches!(o, Some(Ordering::Less | Ordering::Equal)))
    });
    environment.add_function("_kv_gt", |s: &State<'_, '_>, a: &Value, b: &Value| {
        order(s, a, b).map(|o| o == Some(Ordering::Greater))
    });
    environment.add_function("_kv_ge", |s: &State<'_, '_>, a: &Value, b: &Value| {
        order(s, a, b).map(|o| matches!(o, Some(Ordering::Greater | Ordering::Equal)))
    });
    environment.add_function("_kv_in", |s: &State<'_, '_>, a: &Value, b: &Value| {
        contains(s, b, a)
    });
    environment.add_function("_kv_item", item);
    environment.add_function("_kv_slice", slice);
    environment.add_function("_kv_list", list);
    environment.add_function("_kv_dict", dict);
    environment.add_function("_kv_eager", |s: &State<'_, '_>, value: &Value| {
        eager(s, value)
    });
    environment.add_function("_kv_iter", |s: &State<'_, '_>, value: &Value| {
        match value.kind() {
            ValueKind::Seq => Ok(value.clone()),
            _ => items(s, value).map(Value::from),
        }
    });
    environment.add_function("_kv_field", |s: &State<'_, '_>, value: &Value| {
        storable(s, value).map(|()| value.clone())
    });
    environment.add_function("_kv_namespace", |s: &State<'_, '_>, value: &Value| {
        for key in value.try_iter()? {
            storable(s, &value.get_item(&key)?)?;
        }
        Ok::<_, Error>(value.clone())
    });
}

/// An error of an operation.
pub(in crate::chat) fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

fn defined(value: &Value) -> Checked<()> {
    match value.is_undefined() {
        true => Err(Error::from(ErrorKind::UndefinedError)),
        false => Ok(()),
    }
}

/// True for what holds no other values.
pub(in crate::chat) fn is_scalar(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined
            | ValueKind::None
            | ValueKind::Bool
            | ValueKind::Number
            | ValueKind::String
    )
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// Whether a value may become part of another: scalars, and containers of such that are shallow.
/// Namespaces could then hold themselves.
fn storable(state: &State<'_, '_>, value: &Value) -> Checked<()> {
    fn walk(state: &State<'_, '_>, value: &Value, depth: usize) -> Checked<()> {
        let Some(object) = value.as_object() else {
            return Ok(());
        };
        charge(state, 0)?;
        if depth > DEEPEST {
            return Err(invalid(format!(
                "a value nests deeper than {DEEPEST} levels"
            )));
        }
        let name = object.type_name();
        if name.ends_with("Namespace") || name.ends_with("Loop") {
            return Err(invalid(
                "a namespace or `loop` cannot be kept in another value",
            ));
        }
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()? {
                    walk(state, &item, depth + 1)?;
                }
            }
            ValueKind::Map => {
                for key in value.try_iter()? {
                    walk(state, &value.get_item(&key)?, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
    walk(state, value, 1)
}

fn list(state: &State<'_, '_>, items: Rest<Value>) -> Checked {
    charge(state, items.len() * SLOT_BYTES)?;
    for item in items.iter() {
        storable(state, item)?;
    }
    Ok(Value::from(items.0))
}

fn dict(state: &State<'_, '_>, items: Rest<Value>) -> Checked {
    charge(state, items.len() * 2 * SLOT_BYTES)?;
    for pair in items.chunks_exact(2) {
        key(&pair[0])?;
        storable(state, &pair[1])?;
    }
    let pairs = items.chunks_exact(2);
    Ok(Value::from_pairs(
        pairs.map(|p| (p[0].clone(), p[1].clone())),
    ))
}

/// Keys are scalars: hashing others could take any time.
fn key(value: &Value) -> Checked<()> {
    match is_scalar(value) {
        true => Ok(()),
        false => Err(invalid(format!("a {} cannot be a key", value.kind()))),
    }
}

/// The items of a list, string or map's keys, each paid for.
pub(in crate::chat) fn items(state: &State<'_, '_>, value: &Value) -> Checked<Vec<Value>> {
    let mut items = Vec::new();
    if let Some(text) = value.as_str() {
        charge(state, text.len())?;
        for c in text.chars() {
            charge(state, SLOT_BYTES)?;
            items.push(Value::from(c.to_string()));
        }
        return Ok(items);
    }
    if value.is_undefined() {
        return Ok(items);
    }
    for item in value.try_iter()? {
        charge(state, SLOT_BYTES)?;
        items.push(item);
    }
    Ok(items)
}

/// The same value with nothing lazy at its top.
pub(in crate::chat) fn eager(state: &State<'_, '_>, value: &Value) -> Checked {
    match value.kind() {
        ValueKind::Iterable => Ok(Value::from(items(state, value)?)),
        ValueKind::Map => storable(state, value).map(|()| value.clone()),
        _ => Ok(value.clone()),
    }
}

fn impossible(operator: &str, a: &Value, b: &Value) -> Error {
    let (a, b) = (a.kind(), b.kind());
    invalid(format!("`{operator}` does not work on {a} and {b}"))
}

fn arithmetic(
    operator: &str,
    a: &Value,
    b: &Value,
    integers: fn(i64, i64) -> Option<i64>,
    floats: fn(f64, f64) -> f64,
) -> Checked {
    defined(a)?;
    defined(b)?;
    let number = |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool);
    if !number(a) || !number(b) {
        return Err(impossible(operator, a, b));
    }
    if let (Ok(a), Ok(b)) = (i64::try_from(a.clone()), i64::try_from(b.clone()))
        && (operator != "**" || b >= 0)
    {
        let result = integers(a, b);
        let fails = || invalid(format!("cannot compute {a} {operator} {b}"));
        return result.map(Value::from).ok_or_else(fails);
    }
    if matches!(operator, "//" | "%") && float(b)? == 0.0 {
        return Err(invalid(format!("`{operator}` by zero")));
    }
    let result = floats(float(a)?, float(b)?);
    Ok(Value::from(result))
}

fn float(value: &Value) -> Checked<f64> {
    f64::try_from(value.clone())
}

fn floor_divide(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let inexact = a.checked_rem(b)? != 0;
    Some(quotient - i64::from(inexact && (a < 0) != (b < 0)))
}

fn remainder(a: i64, b: i64) -> Option<i64> {
    let rest = a.checked_rem(b)?;
    Some(
        rest + if rest != 0 && (rest < 0) != (b < 0) {
            b
        } else {
            0
        },
    )
}

fn power(a: i64, b: i64) -> Option<i64> {
    a.checked_pow(u32::try_from(b).ok()?)
}

fn divide(a: &Value, b: &Value) -> Checked {
    let (a_float, b_float) = (float(a)?, float(b)?);
    match b_float == 0.0 {
        true => Err(impossible("/", a, b)),
        false => Ok(Value::from(a_float / b_float)),
    }
}

fn add(state: &State<'_, '_>, a: &Value, b: &Value) -> Checked {
    defined(a)?;
    defined(b)?;
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        charge(state, a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    if is_list(a) && is_list(b) {
        let mut joined = items(state, a)?;
        joined.extend(items(state, b)?);
        return Ok(Value::from(joined));
    }
    arithmetic("+", a, b, i64::checked_add, |a, b| a + b)
}

fn multiply(state: &State<'_, '_>, a: &Value, b: &Value) -> Checked {
    defined(a)?;
    defined(b)?;
    let (repeated, count) = match a.kind() {
        ValueKind::Number | ValueKind::Bool => (b, a),
        _ => (a, b),
    };
    let times = |count: &Value| -> Checked<usize> {
        let count = i64::try_from(count.clone())?;
        Ok(usize::try_from(count.max(0)).unwrap_or(usize::MAX))
    };
    if let Some(text) = repeated.as_str() {
        let count = times(count)?;
        charge(state, text.len().saturating_mul(count))?;
        return Ok(Value::from(text.repeat(count)));
    }
    if is_list(repeated) {
        let count = times(count)?;
        let once = items(state, repeated)?;
        charge(
            state,
            once.len().saturating_mul(count).saturating_mul(SLOT_BYTES),
        )?;
        let all = once.iter().cycle().take(once.len() * count).cloned();
        return Ok(Value::from(all.collect::<Vec<_>>()));
    }
    arithmetic("*", a, b, i64::checked_mul, |a, b| a * b)
}

fn concatenate(state: &State<'_, '_>, a: &Value, b: &Value) -> Checked {
    let text = |value: &Value| match value.as_str() {
        Some(_) => Ok(None),
        None => to_str(state, value).map(Some),
    };
    let (a_text, b_text) = (text(a)?, text(b)?);
    let a = a_text.as_deref().or(a.as_str()).unwrap_or_default();
    let b = b_text.as_deref().or(b.as_str()).unwrap_or_default();
    charge(state, a.len() + b.len())?;
    Ok(Value::from([a, b].concat()))
}

/// Equality, paying for each value that is compared.
pub(in crate::chat) fn equal(state: &State<'_, '_>, a: &Value, b: &Value) -> Checked<bool> {
    charge(state, a.as_str().map_or(0, str::len))?;
    if is_scalar(a) || is_scalar(b) {
        return Ok(is_scalar(a) == is_scalar(b) && a == b);
    }
    if is_list(a) && is_list(b) {
        if a.len() != b.len() {
            return Ok(false);
        }
        for (a, b) in a.try_iter()?.zip(b.try_iter()?) {
            if !equal(state, &a, &b)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if a.kind() == ValueKind::Map && b.kind() == ValueKind::Map {
        if a.len() != b.len() {
            return Ok(false);
        }
        for key in a.try_iter()? {
            let other = b.get_item(&key)?;
            if other.is_undefined() || !equal(state, &a.get_item(&key)?, &other)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    Ok(false)
}

/// The order of two numbers or two strings.
pub(in crate::chat) fn order(
    state: &State<'_, '_>,
    a: &Value,
    b: &Value,
) -> Checked<Option<Ordering>> {
    defined(a)?;
    defined(b)?;
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        charge(state, a.len())?;
        return Ok(Some(a.cmp(b)));
    }
    let number = |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool);
    if !number(a) || !number(b) {
        return Err(impossible("<", a, b));
    }
    Ok(match (i64::try_from(a.clone()), i64::try_from(b.clone())) {
        (Ok(a), Ok(b)) => Some(a.cmp(&b)),
        _ => float(a)?.partial_cmp(&float(b)?),
    })
}

/// Whether a container holds a value.
pub(in crate::chat) fn contains(
    state: &State<'_, '_>,
    container: &Value,
    value: &Value,
) -> Checked<bool> {
    if container.is_undefined() {
        return Ok(false);
    }
    if let Some(text) = container.as_str() {
        charge(state, text.len())?;
        let part = value.as_str();
        let part = part.ok_or_else(|| impossible("in", value, container))?;
        return Ok(text.contains(part));
    }
    if container.kind() == ValueKind::Map {
        key(value)?;
        charge(state, 0)?;
        return Ok(!container.get_item(value)?.is_undefined());
    }
    if !is_list(container) {
        return Err(impossible("in", value, container));
    }
    for item in container.try_iter()? {
        if equal(state, &item, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn item(state: &State<'_, '_>, value: &Value, index: &Value) -> Checked {
    key(index)?;
    if let (Some(text), Ok(at)) = (value.as_str(), i64::try_from(index.clone())) {
        charge(state, text.len())?;
        let length = text.chars().count() as i64;
        let at = if at < 0 { at + length } else { at };
        let found = usize::try_from(at).ok().and_then(|at| text.chars().nth(at));
        return Ok(found.map_or(Value::UNDEFINED, |c| Value::from(c.to_string())));
    }
    charge(state, index.as_str().map_or(0, str::len))?;
    value.get_item(index)
}

fn slice(
    state: &State<'_, '_>,
    value: &Value,
    start: &Value,
    stop: &Value,
    step: &Value,
) -> Checked {
    let bound = |bound: &Value| -> Checked<Option<i64>> {
        match bound.is_none() || bound.is_undefined() {
            true => Ok(None),
            false => i64::try_from(bound.clone()).map(Some),
        }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(invalid("a slice's step is 0"));
    }
    if let Some(text) = value.as_str() {
        charge(state, 4 * text.len())?;
        let chars: Vec<char> = text.chars().collect();
        let kept: String = picked(chars.len(), start, stop, step)
            .map(|i| chars[i])
            .collect();
        return Ok(Value::from(kept));
    }
    if !is_list(value) && !value.is_undefined() && !value.is_none() {
        return Err(invalid(format!("a {} has no slices", value.kind())));
    }
    let all = match value.is_none() {
        true => Vec::new(),
        false => items(state, value)?,
    };
    let kept = picked(all.len(), start, stop, step).map(|i| all[i].clone());
    Ok(Value::from(kept.collect::<Vec<_>>()))
}

/// The indices that a slice of `len` items has, as in Python.
fn picked(
    len: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> impl Iterator<Item = usize> {
    let len = len as i64;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: i64| {
        let bound = if bound < 0 {
            bound.saturating_add(len)
        } else {
            bound
        };
        bound.clamp(low, high)
    };
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let start = start.map_or(first, clamp);
    let stop = stop.map_or(last, clamp);
    let mut at = Some(start);
    std::iter::from_fn(move || {
        let here = at.filter(|&at| if step > 0 { at < stop } else { at > stop })?;
        at = here.checked_add(step);
        usize::try_from(here).ok()
    })
}
