//! The filters and tests that templates may use. Each reads no more than it has paid for, and
//! what it makes is paid for before it is made.

use minijinja::formatting::{self, FormatStyle};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, State, filters, functions, tests};

use super::checked::{self, contains, equal, invalid, is_scalar, items, order};
use crate::chat::python::{self, charge, to_str};

/// Adds everything that a rewritten template may use to an empty environment.
pub(in crate::chat) fn install(environment: &mut Environment<'static>) {
    checked::install(environment);
    environment.add_function("range", functions::range);
    environment.add_function("dict", functions::dict);
    environment.add_function("namespace", functions::namespace);

    // Scalars in, scalars out.
    environment.add_filter("abs", filters::abs);
    environment.add_filter("bool", filters::bool);
    environment.add_filter("float", filters::float);
    environment.add_filter("int", filters::int);
    environment.add_filter("round", filters::round);
    // At most three times the string, which the engine charges for before and after.
    environment.add_filter("capitalize", filters::capitalize);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("title", filters::title);
    environment.add_filter("upper", filters::upper);
    // A part of what is there, or nothing new.
    environment.add_filter("count", filters::length);
    environment.add_filter("d", filters::default);
    environment.add_filter("default", filters::default);
    environment.add_filter("first", filters::first);
    environment.add_filter("last", filters::last);
    environment.add_filter("length", filters::length);
    environment.add_filter("safe", |value: &Value| value.clone());
    // Lazy, charged for each item, and made eager where they are written.
    environment.add_filter("items", filters::items);
    environment.add_filter("map", filters::map);
    environment.add_filter("reject", filters::reject);
    environment.add_filter("rejectattr", filters::rejectattr);
    environment.add_filter("select", filters::select);
    environment.add_filter("selectattr", filters::selectattr);

    environment.add_filter("dictsort", dictsort);
    environment.add_filter("format", format);
    environment.add_filter("indent", indent);
    environment.add_filter("join", join);
    environment.add_filter("list", list);
    environment.add_filter("max", |state: &State<'_, '_>, value: &Value| {
        Ok::<_, Error>(sorted(state, value)?.pop().unwrap_or(Value::UNDEFINED))
    });
    environment.add_filter("min", |state: &State<'_, '_>, value: &Value| {
        let sorted = sorted(state, value)?;
        Ok::<_, Error>(sorted.into_iter().next().unwrap_or(Value::UNDEFINED))
    });
    environment.add_filter("pprint", python::string_filter);
    environment.add_filter("replace", replace);
    environment.add_filter("reverse", reverse);
    environment.add_filter("sort", sort);
    environment.add_filter(
        "split",
        |state: &State<'_, '_>, value: &Value, by: Option<&str>| {
            let by: Vec<Value> = by.into_iter().map(Value::from).collect();
            python::split(state, text(value)?, &by)
        },
    );
    environment.add_filter("string", python::string_filter);
    environment.add_filter("trim", trim);
    environment.add_filter("tojson", python::tojson_filter);
    environment.add_filter("unique", unique);

    add_tests(environment);
}

fn add_tests(environment: &mut Environment<'static>) {
    environment.add_test("defined", tests::is_defined);
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("none", tests::is_none);
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("true", tests::is_true);
    environment.add_test("false", tests::is_false);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("even", tests::is_even);
    environment.add_test("divisibleby", |a: i64, b: i64| a.checked_rem(b) == Some(0));
    environment.add_test("number", tests::is_number);
    environment.add_test("integer", tests::is_integer);
    environment.add_test("float", tests::is_float);
    environment.add_test("string", tests::is_string);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("sequence", python::is_sequence);
    environment.add_test("iterable", python::is_iterable);
    environment.add_test(
        "startingwith",
        |s: &State<'_, '_>, value: &str, start: &str| {
            charge(s, start.len()).map(|()| value.starts_with(start))
        },
    );
    environment.add_test("endingwith", |s: &State<'_, '_>, value: &str, end: &str| {
        charge(s, end.len()).map(|()| value.ends_with(end))
    });
    environment.add_test("lower", |s: &State<'_, '_>, value: &str| {
        charge(s, value.len()).map(|()| !value.chars().any(char::is_uppercase))
    });
    environment.add_test("upper", |s: &State<'_, '_>, value: &str| {
        charge(s, value.len()).map(|()| !value.chars().any(char::is_lowercase))
    });
    environment.add_test(
        "in",
        |s: &State<'_, '_>, value: &Value, container: &Value| contains(s, container, value),
    );
    for name in ["eq", "equalto", "sameas"] {
        environment.add_test(name, |s: &State<'_, '_>, a: &Value, b: &Value| {
            equal(s, a, b).map(|same| same && a.kind() == b.kind())
        });
    }
    environment.add_test("ne", |s: &State<'_, '_>, a: &Value, b: &Value| {
        equal(s, a, b).map(|same| !same)
    });
    for name in ["lt", "lessthan"] {
        environment.add_test(name, |s: &State<'_, '_>, a: &Value, b: &Value| {
            order(s, a, b).map(|o| o.is_some_and(|o| o.is_lt()))
        });
    }
    for name in ["gt", "greaterthan"] {
        environment.add_test(name, |s: &State<'_, '_>, a: &Value, b: &Value| {
            order(s, a, b).map(|o| o.is_some_and(|o| o.is_gt()))
        });
    }
    environment.add_test("le", |s: &State<'_, '_>, a: &Value, b: &Value| {
        order(s, a, b).map(|o| o.is_some_and(|o| o.is_le()))
    });
    environment.add_test("ge", |s: &State<'_, '_>, a: &Value, b: &Value| {
        order(s, a, b).map(|o| o.is_some_and(|o| o.is_ge()))
    });
}

fn text(value: &Value) -> Result<&str, Error> {
    let wrong = || invalid(format!("expected a string, found {}", value.kind()));
    value.as_str().ok_or_else(wrong)
}

fn list(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    items(state, value).map(Value::from)
}

fn reverse(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        charge(state, text.len())?;
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    let mut items = items(state, value)?;
    items.reverse();
    Ok(Value::from(items))
}

/// Numbers or strings in order. Other values have none.
fn sorted(state: &State<'_, '_>, value: &Value) -> Result<Vec<Value>, Error> {
    let mut items = items(state, value)?;
    if let Some(other) = items.iter().find(|v| !is_scalar(v)) {
        return Err(invalid(format!("a {} has no order", other.kind())));
    }
    let longest = items.iter().filter_map(|v| v.as_str()).map(str::len).max();
    pay_for_sorting(state, items.len(), longest.unwrap_or(0))?;
    items.sort();
    Ok(items)
}

fn pay_for_sorting(state: &State<'_, '_>, count: usize, longest: usize) -> Result<(), Error> {
    let comparisons = count.saturating_mul(1 + count.max(1).ilog2() as usize);
    charge(state, comparisons.saturating_mul(16 + longest))
}

fn sort(state: &State<'_, '_>, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let reverse: Option<bool> = kwargs.get("reverse")?;
    kwargs.assert_all_used()?;
    let mut items = sorted(state, value)?;
    if reverse == Some(true) {
        items.reverse();
    }
    Ok(Value::from(items))
}

fn dictsort(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Map {
        return Err(invalid(format!("a {} has no keys to sort", value.kind())));
    }
    let mut keys = Vec::new();
    for key in items(state, value)? {
        charge(state, 24 + key.as_str().map_or(0, str::len))?;
        keys.push((key.as_str().map(str::to_lowercase), key));
    }
    let longest = keys.iter().filter_map(|(k, _)| k.as_ref()).map(String::len);
    pay_for_sorting(state, keys.len(), longest.max().unwrap_or(0))?;
    keys.sort_by(|(a, _), (b, _)| a.cmp(b));
    let pairs = keys.into_iter().map(|(_, key)| {
        charge(state, 96)?;
        let item = value.get_item(&key)?;
        Ok(Value::from(vec![key, item]))
    });
    pairs.collect::<Result<Vec<_>, _>>().map(Value::from)
}

fn unique(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let mut kept: Vec<Value> = Vec::new();
    for item in items(state, value)? {
        let mut found = false;
        for other in &kept {
            found = found || equal(state, other, &item)?;
        }
        if !found {
            kept.push(item);
        }
    }
    Ok(Value::from(kept))
}

fn join(
    state: &State<'_, '_>,
    value: &Value,
    separator: Option<&str>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let separator = separator.unwrap_or("");
    let attribute: Option<&str> = kwargs.get("attribute")?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    for (index, item) in items(state, value)?.iter().enumerate() {
        let item = match attribute {
            Some(name) => item.get_attr(name)?,
            None => item.clone(),
        };
        let item = to_str(state, &item)?;
        charge(state, separator.len() + item.len())?;
        if index > 0 {
            out.push_str(separator);
        }
        out.push_str(&item);
    }
    Ok(out)
}

fn replace(
    state: &State<'_, '_>,
    value: &Value,
    old: &str,
    new: &str,
    count: Option<usize>,
) -> Result<String, Error> {
    python::replace(state, &to_str(state, value)?, old, new, count)
}

fn indent(
    state: &State<'_, '_>,
    value: &Value,
    args: Rest<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width: Option<usize> = match args.first() {
        Some(width) => Some(usize::try_from(width.clone())?),
        None => kwargs.get("width")?,
    };
    let flag = |index: usize, name| match args.get(index) {
        Some(flag) => Ok(flag.is_true()),
        None => kwargs
            .get::<Option<bool>>(name)
            .map(|flag| flag == Some(true)),
    };
    let (width, first, blank) = (width.unwrap_or(4), flag(1, "first")?, flag(2, "blank")?);
    kwargs.assert_all_used()?;
    let text = text(value)?;
    let lines = text.matches('\n').count() + 1;
    charge(
        state,
        text.len().saturating_add(width.saturating_mul(lines)),
    )?;
    let mut out = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let is_indented = if index == 0 {
            first
        } else {
            blank || !line.is_empty()
        };
        if is_indented {
            out.extend(std::iter::repeat_n(' ', width));
        }
        out.push_str(line);
    }
    Ok(out)
}

fn format(state: &State<'_, '_>, value: &Value, args: Rest<Value>) -> Result<String, Error> {
    let format = text(value)?;
    python::charge_format(state, format, '%', &args)?;
    formatting::format(FormatStyle::Printf, format, &args)
}

fn trim(state: &State<'_, '_>, value: &Value, chars: Option<&str>) -> Result<String, Error> {
    let text = to_str(state, value)?;
    charge(state, text.len().saturating_mul(chars.map_or(1, str::len)))?;
    Ok(match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).into(),
        None => text.trim().into(),
    })
}
