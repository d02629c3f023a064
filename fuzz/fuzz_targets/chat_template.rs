//! A chat template; after a zero byte messages as JSON.

#![no_main]

use kvant_fuzz::{bounded, split_at_zero};
use kvant_text::{ChatTemplate, Message, RenderOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (template, messages) = split_at_zero(data);
    let Ok(template) = std::str::from_utf8(template) else {
        return;
    };
    let messages = serde_json::from_slice(messages).unwrap_or_else(|_| {
        vec![
            Message::new("system", "Be brief."),
            Message::new("user", "Hi"),
        ]
    });
    let options = RenderOptions {
        add_generation_prompt: true,
        bos_token: "<s>".into(),
        eos_token: "</s>".into(),
        ..RenderOptions::default()
    };
    let outcome = bounded(data.len(), || {
        ChatTemplate::compile(template, "fuzz")?.render(&messages, &options)
    });
    if let Err(error) = outcome {
        assert!(!error.to_string().is_empty());
    }
});
