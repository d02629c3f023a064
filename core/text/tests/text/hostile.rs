//! Chat templates that want more than they may have, one for each thing that the language offers.

use kvant_text::{ChatTemplate, Message, RenderOptions, TextError};

fn render(source: &str) -> Result<String, TextError> {
    let options = RenderOptions {
        bos_token: "<s>".into(),
        ..RenderOptions::default()
    };
    ChatTemplate::compile(source, "test.gguf")?.render(&[Message::new("user", "Hi")], &options)
}

/// A list of 4096 leaves that takes twelve short lists, as `n.x`; another that equals it, as `n.y`.
const SHARED: &str = "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(12) %}\
    {% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}\n";

/// Prints an expression on [`SHARED`] lists often enough to be refused if it pays for each leaf.
fn often(expression: &str) -> String {
    format!("{SHARED}{{% for i in range(1000) %}}{{{{ {expression} }}}}{{% endfor %}}")
}

/// A long string, as `s`.
const LONG: &str = "{% set s = 'ab' * 100000 %}\n";

fn is_refused_at_line(source: &str, line: usize) {
    match render(source) {
        Err(TextError::Template { line: found, .. }) => assert_eq!(found, line, "{source}"),
        other => panic!("{source}: {:?}", other.map(|text| text.len())),
    }
}

#[test]
fn operators_pay_before_they_work() {
    for expression in [
        "n.x ~ ''",
        "n.x == n.y",
        "n.x != n.y",
        "n.x in [n.y]",
        "n.x not in [n.y]",
        "n.x < n.y",
        "{n.x: 1}",
        "{'a': 1}[n.x]",
        "{'a': n.x}",
        "[n.x]",
        "(n.x, n.x)",
        "n.x",
    ] {
        is_refused_at_line(&often(expression), 2);
    }
    for expression in [
        "'x' * 1000000000",
        "1000000000 * 'x'",
        "[1] * 1000000000",
        "(1, 2) * 9223372036854775807",
        "[1] * 100000000 ~ ''",
        "2 in [1] * 100000000",
        "([1] * 100000000)[99999999:]",
        "[[]] * 100000000 == [[]] * 100000000",
        "9 ** 9 ** 9",
        "9223372036854775807 + 1",
        "-9223372036854775807 - 2",
        "1 // 0",
        "1 % 0",
        "1 / 0",
        "1.5 % 0",
        "'%s' % 1",
        "[[[['\\\\'] ~ ''] ~ ''] ~ ''] * 99999999",
        "(range(100000)|list + range(100000)|list)|list * 99",
    ] {
        is_refused_at_line(&format!("\n{{{{ {expression} }}}}"), 2);
    }
}

#[test]
fn filters_and_methods_pay_before_they_work() {
    for filter in [
        "tojson",
        "string",
        "pprint",
        "join",
        "join(',')",
        "unique",
        "sort",
        "min",
        "max",
        "replace('a', 'b')",
        "trim",
    ] {
        is_refused_at_line(&often(&format!("[n.x, n.y]|{filter}")), 2);
        is_refused_at_line(&often(&format!("n.x|{filter}")), 2);
    }
    for expression in [
        "s|replace('a', s)",
        "s.replace('', s)",
        "s|indent(1000000000)",
        "(s|replace('b', '\\n'))|indent(10000)",
        "s|list|map('replace', 'a', s)|list",
        "s|list|join(s)",
        "s.join(s|list)",
        "(s|list)|tojson(indent=64)",
        "([[[[s|list]]]])|tojson(separators=(s, s))",
        "s.strip(s)",
        "s.lstrip('ba' * 100000)",
        "s|trim(s)",
        "'%s%s%s%s%s%s%s%s%s%s'|format(s, s, s, s, s, s, s, s, s, s)",
        "'%1000000000d'|format(1)",
        "'{:1000000000}'.format('a')",
        "'{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}'.format(s)",
        "raise_exception(s * 100)",
    ] {
        is_refused_at_line(&format!("{LONG}{{{{ {expression} }}}}"), 2);
    }
    for test in ["eq n.y", "in [n.y]", "sameas n.y", "ne n.y"] {
        is_refused_at_line(&often(&format!("n.x is {test}")), 2);
    }
    is_refused_at_line(&often("[n.x]|selectattr(0, 'eq', n.y)|list"), 2);
}

#[test]
fn statements_cannot_pile_up_values() {
    for source in [
        "\n{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "\n{% set n = namespace(x='abcdefgh') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "\n{% set n = namespace(x='abcdefgh') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "\n{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "\n{% set n = namespace(x=[1]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}",
        "\n{% set n = namespace(x=[1]) %}{% for i in range(99999) %}{% set n.x = {'a': n.x} %}{% endfor %}",
        "\n{% set n = namespace(x=[1]) %}{% for i in range(99999) %}{% set n.x = n.x[:] + [i] %}{% endfor %}",
        "\n{% set n = namespace() %}{% set n.x = n %}",
        "\n{% set n = namespace() %}{% set m = namespace(n=n) %}",
        "\n{% set n = namespace() %}{% set n.x = [n] %}",
        "\n{% set n = namespace() %}{% set n.x = {'a': n} %}",
        "\n{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "\n{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}",
        "\n{% for i in range(99999) %}{% macro f() %}{{ i }}{% endmacro %}{% set x %}{{ bos_token * 99 }}{% endset %}{% endfor %}",
        "\n{% filter indent(1000000000) %}a{% endfilter %}",
        "\n{% set a, b = range(100000) %}",
        "\n{% for a in range(9999999999) %}{% endfor %}",
    ] {
        is_refused_at_line(source, 2);
    }
}

#[test]
fn sources_cannot_nest_deeply() {
    let deep = |open: &str, middle: &str, close: &str| {
        format!("\n{}{middle}{}", open.repeat(1500), close.repeat(1500))
    };
    let tag = |inner: String| format!("\n{{{{ {} }}}}", inner.trim_start());
    let sources = [
        tag(deep("(", "1", ")")),
        tag(deep("[", "1", "]")),
        tag(deep("{1:", "1", "}")),
        tag(deep("not ", "1", "")),
        tag(deep("-", "1", "")),
        tag(deep("+", "1", "")),
        tag(deep("", "1", "+1")),
        tag(deep("", "1", "~1")),
        tag(deep("", "1", "**1")),
        tag(deep("", "a", ".a")),
        tag(deep("", "a", "[0]")),
        tag(deep("", "a", "()")),
        tag(deep("", "a", "|e")),
        tag(deep("", "a", " is b")),
        tag(deep("", "1", " and 1")),
        tag(deep("1 if 1 else ", "1", "")),
        tag(deep("f(", "1", ")")),
        format!(
            "\n{{% set {}a{} = 1 %}}",
            "(".repeat(1500),
            ")".repeat(1500)
        ),
        deep("{% if 1 %}", "", "{% endif %}"),
        deep("{% for a in b %}", "", "{% endfor %}"),
        deep("{% with %}", "", "{% endwith %}"),
        format!("\n{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(1500)),
    ];
    for source in sources {
        let error = ChatTemplate::compile(&source, "test.gguf").expect_err("too deep");
        assert!(
            matches!(error, TextError::Template { line: 2, .. }),
            "{}: {error}",
            &source[..30]
        );
    }
    let long = "x".repeat(65 << 10);
    assert!(ChatTemplate::compile(&long, "test.gguf").is_err());
}

#[test]
fn what_is_not_built_in_is_refused_with_its_line() {
    for source in [
        "{% include 'a' %}",
        "{% import 'a' as a %}",
        "{% from 'a' import b %}",
        "{% extends 'a' %}",
        "{% block a %}{% endblock %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% for a in b recursive %}{% endfor %}",
        "{{ f(*a) }}",
        "{{ f(**a) }}",
        "{{ loop.changed(1) }}",
        "{{ debug() }}",
        "{{ 1|groupby('a') }}",
        "{{ [1].append(2) }}",
        "{{ 1 is escaped }}",
        "{{ 'a' }",
        "{# a",
        "{% raw %}",
        "{{ 'a }}",
        "{% if 1 %}",
        "{{ 99999999999999999999 }}",
    ] {
        is_refused_at_line(&format!("\n{source}"), 2);
    }
}
