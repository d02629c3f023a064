//! What must hold for any text.

use kvant_text::{DecodeOptions, EncodeOptions, StreamDecoder, Tokenizer};
use proptest::prelude::*;

use crate::common;

const WHOLE: DecodeOptions = DecodeOptions {
    skip_special: false,
    whole_text: true,
};

/// Bytes of UTF-8 that SmolLM2's vocabulary has no token for.
const LOST: &[u8] = &[4, 6, 0x13, 0x14, 0x16, 0x1d, 0xf1, 0xf2];

/// Text with much white space, digits, marks, joined emoji and the like.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[ -~]{1,12}",
        1 => "[ \t\r\n\u{a0}\u{3000}]{1,8}",
        1 => "(?s:.){1,8}",
        1 => prop::sample::select(vec![
            "<|im_start|>", "<|im_end|>", "<bos>", "<eos>", "<start_of_turn>", "</s>", "<0x41>",
            "👩\u{200d}👦", "e\u{301}", "١٢٣", "中文", "'LL", "\u{0}", "\u{10ffff}",
        ]).prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn plain(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer
        .encode(text, EncodeOptions::default())
        .expect("it encodes")
}

fn tokenizers() -> [&'static Tokenizer; 2] {
    [common::smollm2(), common::gemma3()]
}

proptest! {
    #[test]
    fn text_survives(text in text()) {
        let [bpe, spm] = tokenizers();
        // Bytes without a token vanish.
        let known: Vec<u8> = text.bytes().filter(|b| !LOST.contains(b)).collect();
        prop_assert_eq!(bpe.decode_bytes(&plain(bpe, &text), WHOLE), Ok(known));
        // The mark for a space is no different from a space.
        let spaces = text.replace('\u{2581}', " ");
        prop_assert_eq!(spm.decode(&plain(spm, &text), WHOLE), Ok(spaces));
    }

    #[test]
    fn plain_text_never_becomes_a_control_token(text in text()) {
        for tokenizer in tokenizers() {
            let ids = plain(tokenizer, &text);
            prop_assert!(ids.iter().all(|&id| !tokenizer.is_control(id)));
        }
    }

    #[test]
    fn streaming_gives_the_whole_text(text in text(), skip_special: bool, whole_text: bool) {
        let options = DecodeOptions { skip_special, whole_text };
        for tokenizer in tokenizers() {
            let parse = EncodeOptions { add_special: true, parse_special: true };
            let ids = tokenizer.encode(&text, parse).expect("it encodes");
            let streamed = stream(tokenizer, &ids, options);
            prop_assert_eq!(Ok(streamed), tokenizer.decode(&ids, options));
        }
    }

    /// A model may produce any tokens, also halves of characters.
    #[test]
    fn streaming_any_tokens_gives_the_whole_text(
        ids in prop::collection::vec(0u32..49_152, 0..40),
        halves in prop::collection::vec(238u32..494, 0..40),
    ) {
        let options = DecodeOptions::default();
        for (tokenizer, ids) in [(common::smollm2(), &ids), (common::gemma3(), &halves)] {
            let streamed = stream(tokenizer, ids, options);
            prop_assert_eq!(Ok(streamed), tokenizer.decode(ids, options));
        }
    }

    #[test]
    fn special_tokens_cut_the_text(before in text(), after in text()) {
        let tokenizer = common::smollm2();
        let parse = EncodeOptions { add_special: false, parse_special: true };
        let encode = |text: &str| tokenizer.encode(text, parse).expect("it encodes");
        let whole = encode(&format!("{before}<|im_end|>{after}"));
        let mut parts = encode(&before);
        parts.extend(tokenizer.token_id("<|im_end|>"));
        parts.extend(encode(&after));
        prop_assert_eq!(whole, parts);
    }
}

fn stream(tokenizer: &Tokenizer, ids: &[u32], options: DecodeOptions) -> String {
    let mut decoder = StreamDecoder::new(options);
    let mut out = String::new();
    for &id in ids {
        out += &decoder.push(tokenizer, id).expect("a known token");
    }
    out + &decoder.finish()
}

#[test]
fn a_character_comes_whole() {
    let tokenizer = common::smollm2();
    let ids = plain(tokenizer, "🌤");
    assert!(ids.len() > 1, "several tokens a character");
    let mut decoder = StreamDecoder::new(DecodeOptions::default());
    for &id in &ids[..ids.len() - 1] {
        assert_eq!(decoder.push(tokenizer, id).as_deref(), Ok(""));
    }
    let half = decoder.clone();
    assert_eq!(
        decoder.push(tokenizer, ids[ids.len() - 1]).as_deref(),
        Ok("🌤")
    );
    assert_eq!(half.finish(), "\u{fffd}");
}

#[test]
fn hostile_texts_take_linear_time() {
    for tokenizer in tokenizers() {
        for pattern in [
            "a",
            " ",
            "\n",
            "\t ",
            "<",
            "é",
            "\u{301}",
            "A",
            "Aa",
            "'",
            "👩\u{200d}",
        ] {
            let text = pattern.repeat((1 << 19) / pattern.len());
            let ids = plain(tokenizer, &text);
            assert_eq!(tokenizer.decode(&ids, WHOLE), Ok(text));
        }
    }
}

#[test]
fn ends_of_generation_are_known() {
    let texts = |tokenizer: &Tokenizer| -> Vec<String> {
        let ends = tokenizer.end_of_generation().iter();
        ends.map(|&id| String::from_utf8_lossy(tokenizer.token_bytes(id)).into())
            .collect()
    };
    assert!(texts(common::smollm2()).contains(&"<|im_end|>".into()));
    assert!(texts(common::smollm2()).contains(&"<|endoftext|>".into()));
    assert!(texts(common::gemma3()).contains(&"<end_of_turn>".into()));
    assert!(texts(common::gemma3()).contains(&"<eos>".into()));
}
