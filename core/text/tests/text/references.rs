//! Equal to another engine, token for token.

use kvant_text::{ChatTemplate, DecodeOptions, EncodeOptions, RenderOptions, Tokenizer};

use crate::common;

fn check_texts(tokenizer: &Tokenizer, fixture: &str) {
    for case in common::reference(fixture).texts {
        let encode = |add_special, parse_special| {
            let options = EncodeOptions {
                add_special,
                parse_special,
            };
            tokenizer.encode(&case.text, options).expect("it encodes")
        };
        let parsed = case.parsed.as_ref().unwrap_or(&case.plain);
        let prompt = case.prompt.as_ref().unwrap_or(parsed);
        assert_eq!(encode(false, false), case.plain, "{:?}", case.text);
        assert_eq!(&encode(false, true), parsed, "{:?}, parsed", case.text);
        assert_eq!(&encode(true, true), prompt, "{:?}, prompt", case.text);
        let decoded = tokenizer.decode(&case.plain, DecodeOptions::default());
        let want = case.decoded.unwrap_or(case.text);
        assert_eq!(decoded.as_ref(), Ok(&want));
    }
}

#[test]
fn smollm2_tokenizes_as_the_reference() {
    check_texts(common::smollm2(), "smollm2-135m.json");
}

#[test]
fn gemma3_tokenizes_as_the_reference() {
    check_texts(common::gemma3(), "gemma3-270m.json");
}

#[test]
fn smollm2_prompts_render_byte_for_byte() {
    let metadata = common::metadata(common::SMOLLM2);
    let source: &str = metadata.get("tokenizer.chat_template").expect("a template");
    let template = ChatTemplate::compile(source, common::SMOLLM2).expect("it compiles");
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    for chat in common::reference("smollm2-135m.json").chats {
        let prompt = template
            .render(&chat.messages, &options)
            .expect("it renders");
        assert_eq!(prompt, chat.rendered);
        let ids = common::smollm2()
            .encode_prompt(&prompt)
            .expect("it encodes");
        assert_eq!(ids, chat.ids);
    }
}
