//! Chat templates.

use kvant_text::{
    ChatTemplate, Content, ContentPart, LocalTime, Message, RenderOptions, TextError,
    default_template, named_template, named_templates,
};
use serde_json::json;

use crate::common;

fn conversation() -> Vec<Message> {
    vec![
        Message::new("system", "S"),
        Message::new("user", "U"),
        Message::new("assistant", "A"),
        Message::new("user", "V"),
    ]
}

fn options() -> RenderOptions {
    RenderOptions {
        add_generation_prompt: true,
        bos_token: "<s>".into(),
        eos_token: "</s>".into(),
        ..RenderOptions::default()
    }
}

/// Renders with one user message.
fn render(source: &str) -> Result<String, TextError> {
    let template = ChatTemplate::compile(source, "test.gguf")?;
    template.render(&[Message::new("user", "Hi")], &options())
}

#[test]
fn each_family_has_its_shape() {
    let cases = [
        (
            "chatml",
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA\
             <|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "llama3",
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user\
             <|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant\
             <|end_header_id|>\n\n",
        ),
        (
            "gemma",
            "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n\
             <start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
        ),
        ("mistral", "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]"),
        (
            "llama2",
            "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]",
        ),
        (
            "phi3",
            "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n\
             <|assistant|>\n",
        ),
        (
            "phi4",
            "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|><|im_start|>\
             assistant<|im_sep|>A<|im_end|><|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant\
             <|im_sep|>",
        ),
        (
            "granite",
            "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>U\
             <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n<|start_of_role|>\
             user<|end_of_role|>V<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
        ),
        (
            "olmo2",
            "<s><|system|>\nS\n<|user|>\nU\n<|assistant|>\nA</s>\n<|user|>\nV\n<|assistant|>\n",
        ),
        (
            "zephyr",
            "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n",
        ),
    ];
    assert_eq!(cases.len(), named_templates().len());
    for (name, want) in cases {
        let template = ChatTemplate::named(named_template(name).expect("a known name"));
        let prompt = template
            .expect("it compiles")
            .render(&conversation(), &options());
        assert_eq!(prompt.as_deref(), Ok(want), "{name}");
    }
}

#[test]
fn a_family_is_told_by_its_vocabulary_or_not_at_all() {
    let name = |architecture, tokenizer| default_template(architecture, tokenizer).map(|t| t.name);
    assert_eq!(name("llama", common::smollm2()), Ok("chatml"));
    assert_eq!(name("gemma3", common::gemma3()), Ok("gemma"));
    let base = name("llama", common::gemma3()).expect_err("no family");
    let text = base.to_string();
    assert!(
        text.contains("kvant run") && text.contains("--chat-template"),
        "{text}"
    );
    assert!(text.contains("chatml, "), "{text}");
    let unknown = named_template("alpaca").expect_err("no such template");
    assert!(unknown.to_string().contains("zephyr"), "{unknown}");
}

#[test]
fn errors_name_origin_line_and_reason() {
    let syntax = render("one\ntwo\n{% if %}").expect_err("a syntax error");
    assert!(
        syntax
            .to_string()
            .starts_with("chat template of test.gguf, line 3: "),
        "{syntax}"
    );
    let failure = render("\n{{ nothing.at.all }}").expect_err("an undefined value");
    assert!(
        failure
            .to_string()
            .starts_with("chat template of test.gguf, line 2: "),
        "{failure}"
    );
    let unknown = render("{{ 1|no_such_filter }}").expect_err("an unknown filter");
    assert!(unknown.to_string().contains("no_such_filter"), "{unknown}");
    let refused = render("{{ raise_exception('Roles must alternate') }}");
    let want = TextError::TemplateRefused {
        origin: "test.gguf".into(),
        reason: "Roles must alternate".into(),
    };
    assert_eq!(refused, Err(want));
}

#[test]
fn work_and_output_are_bounded() {
    let sources = [
        "{{ 'x' * 1000000000 }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set n = namespace(x='abcdefgh') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ [[]] * 100000000 }}",
        "{{ ([''] * 100000000)|join }}{{ ''.join([''] * 100000000) }}",
        "{{ '{:1000000000}'.format('a') }}",
        "{{ '{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}'.format('x' * 3000000) }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ messages|tojson(indent=1000000000) * 99999999 }}",
    ];
    for source in sources {
        assert!(
            matches!(render(source), Err(TextError::Template { .. })),
            "{source}"
        );
    }
    let long = "x".repeat(2 << 20);
    assert!(ChatTemplate::compile(&long, "test.gguf").is_err());
}

#[test]
fn work_may_grow_with_the_messages() {
    let text = "word ".repeat(400_000);
    let many: Vec<Message> = (0..5_000)
        .map(|i| Message::new("user", i.to_string()))
        .collect();
    let source = "{% for m in messages %}{% set c = m.content.split('</think>')[-1].lstrip('\\n') %}\
                  {{ '<' + m.role + '>' + c|trim + '\\n' }}{% endfor %}";
    let template = ChatTemplate::compile(source, "test.gguf").expect("it compiles");
    let long = template.render(&[Message::new("user", &text)], &options());
    assert_eq!(long, Ok(format!("<user>{}\n", text.trim())));
    let prompt = template.render(&many, &options()).expect("it renders");
    assert_eq!(prompt.lines().count(), many.len());
}

#[test]
fn values_are_those_of_python() {
    let cases = [
        (
            "{{ True }} {{ none }} {{ 1.0 }} {{ 1e20 }} {{ 0.1 }}",
            "True None 1.0 1e+20 0.1",
        ),
        (
            r#"{{ ['a', "it's", 2, false] }}"#,
            r#"['a', "it's", 2, False]"#,
        ),
        ("{{ {'a': [1, none]} }}", "{'a': [1, None]}"),
        ("{{ true|string + '!' }}", "True!"),
        (
            r#"{{ {'b': "é<'\"&\n", 'a': [1, true, none]}|tojson }}"#,
            r#"{"b": "é<'\"&\n", "a": [1, true, null]}"#,
        ),
        (
            "{{ {'a': 'é'}|tojson(ensure_ascii=true) }}",
            r#"{"a": "\u00e9"}"#,
        ),
        (
            "{{ [1, {'a': []}]|tojson(indent=2) }}",
            "[\n  1,\n  {\n    \"a\": []\n  }\n]",
        ),
        (
            "{{ {'b': 1, 'a': 2}|tojson(separators=(',', ':'), sort_keys=true) }}",
            r#"{"a":2,"b":1}"#,
        ),
        (
            "{{ 'abc' is sequence }} {{ 'abc' is iterable }} {{ {} is mapping }}",
            "True True True",
        ),
        (
            "{{ messages[::-1][0].content }} {{ messages[0]['role'].upper() }}",
            "Hi USER",
        ),
        (
            "{{ 'a,b'.split(',')[-1] }} {{ ' x '.strip() }} {{ 'x'.startswith(('y', 'x')) }}",
            "b x True",
        ),
        (
            "{{ {'a': 1}.items()|list }} {{ {'a': 1}.get('b', 'c') }}",
            "[['a', 1]] c",
        ),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        ("{%- generation -%} a {%- endgeneration %}", "a"),
        ("  {% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),
        ("{{ tools is none }} {{ bos_token }}", "True <s>"),
    ];
    for (source, want) in cases {
        assert_eq!(render(source).as_deref(), Ok(want), "{source}");
    }
}

#[test]
fn tools_and_extra_fields_keep_their_order() {
    let message: Message = serde_json::from_value(json!({
        "role": "assistant",
        "content": null,
        "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": 2}}}],
    }))
    .expect("a message");
    assert_eq!(message.content, Content::Nothing);
    let source = "{{ tools[0]|tojson }}{{ messages[0].tool_calls[0].function.arguments|tojson }}\
                  {{ enable_thinking }}{{ messages[0].content is none }}";
    let template = ChatTemplate::compile(source, "test.gguf").expect("it compiles");
    let mut options = options();
    options.tools = vec![json!({"type": "function", "function": {"name": "f"}, "a": 1})];
    options
        .variables
        .insert("enable_thinking".into(), false.into());
    assert_eq!(
        template.render(&[message], &options).as_deref(),
        Ok(r#"{"type": "function", "function": {"name": "f"}, "a": 1}{"z": 1, "a": 2}FalseTrue"#),
    );
}

#[test]
fn parts_become_text_where_the_template_knows_only_text() {
    let message = Message {
        role: "user".into(),
        content: Content::Parts(vec![ContentPart::text("A"), ContentPart::text("B")]),
        ..Message::default()
    };
    let render = |source: &str, message: &Message| {
        let template = ChatTemplate::compile(source, "test.gguf").expect("it compiles");
        template.render(std::slice::from_ref(message), &options())
    };
    let plain = "{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}";
    let printed = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
    let parts = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}\
                 {% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}";
    assert_eq!(render(plain, &message).as_deref(), Ok("<A\nB>"));
    assert_eq!(render(printed, &message).as_deref(), Ok("<A\nB>"));
    assert_eq!(render(parts, &message).as_deref(), Ok("[A][B]"));
    let image = Message {
        content: Content::Parts(vec![ContentPart {
            kind: "image".into(),
            ..ContentPart::default()
        }]),
        ..message
    };
    let error = render(plain, &image).expect_err("an image is no text");
    assert!(error.to_string().contains("`image`"), "{error}");
}

#[test]
fn the_time_is_the_one_that_is_passed_in() {
    let source = "{{ strftime_now('%d %b %Y') }}";
    assert!(render(source).is_err());
    let template = ChatTemplate::compile(source, "test.gguf").expect("it compiles");
    let options = RenderOptions {
        now: Some(LocalTime {
            year: 2026,
            month: 11,
            day: 30,
            hour: 22,
            minute: 5,
            second: 0,
        }),
        ..options()
    };
    assert_eq!(template.render(&[], &options).as_deref(), Ok("30 Nov 2026"));
}
