//! The rules that cut text into words, under the names and expressions that files give them.
//!
//! GGUF files name them (`tokenizer.ggml.pre`); `tokenizer.json` spells them out as regular
//! expressions.

use super::split::{Contractions, Digits, Letters, Stage, Words};
use super::unicode::{class, class_of};

/// How a byte-level BPE vocabulary prepares text.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreTokenizer {
    /// Each stage cuts the pieces of the one before.
    pub(super) stages: &'static [Stage],
    /// A word that is a token as a whole is taken without merging.
    pub(super) ignore_merges: bool,
    /// Prompts start with the beginning-of-text token unless the file says otherwise.
    pub(super) add_bos: bool,
    /// Text is brought to Unicode normal form C first.
    pub(super) nfc: bool,
}

/// The word rule of GPT-2:
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(super) const GPT2: Stage = Stage::Words(Words {
    contractions: Contractions::LowerCase,
    letters: Letters::AfterSpace,
    digits: Digits::AfterSpace,
    punctuation_tail: b"",
    line_breaks: false,
});

/// The word rule of `cl100k` and its many followers, which differ in the digits:
/// `(?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
const fn cl100k(digits: usize) -> Stage {
    Stage::Words(Words {
        contractions: Contractions::AnyCase,
        letters: Letters::AfterAny,
        digits: Digits::UpTo(digits),
        punctuation_tail: b"\r\n",
        line_breaks: true,
    })
}

/// The word rule of `o200k`, and of Mistral's Tekken, which has no contractions.
const fn o200k(contraction: bool, digits: usize) -> Stage {
    Stage::Words(Words {
        contractions: Contractions::None,
        letters: Letters::Cased { contraction },
        digits: Digits::UpTo(digits),
        punctuation_tail: b"\r\n/",
        line_breaks: true,
    })
}

/// Each digit becomes a piece.
pub(super) const EACH_DIGIT: Stage = Stage::Isolate {
    what: is_number,
    min: 1,
    max: 1,
};

fn is_number(c: char) -> bool {
    class_of(c) == class::NUMBER
}

fn is_punctuation_or_math(c: char) -> bool {
    class_of(c) == class::PUNCTUATION || matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|')
}

/// The rule for files that name none.
const DEFAULT: &[Stage] = &[
    Stage::Isolate {
        what: is_punctuation_or_math,
        min: 1,
        max: usize::MAX,
    },
    GPT2,
    Stage::Isolate {
        what: is_number,
        min: 1,
        max: usize::MAX,
    },
    Stage::Isolate {
        what: |c| c.is_ascii_digit(),
        min: 3,
        max: 3,
    },
];

const FALCON: &[Stage] = &[
    Stage::Isolate {
        what: |c| is_punctuation_or_math(c) || c == '`',
        min: 1,
        max: usize::MAX,
    },
    GPT2,
    DEFAULT[3],
];

const PLAIN: PreTokenizer = PreTokenizer {
    stages: &[GPT2],
    ignore_merges: false,
    add_bos: false,
    nfc: false,
};

/// Each rule with the names that files give it.
const KNOWN: &[(&[&str], PreTokenizer)] = &[
    (
        &["default"],
        PreTokenizer {
            stages: DEFAULT,
            ..PLAIN
        },
    ),
    (
        &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "mpt",
            "jais",
            "gigachat",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "trillion",
        ],
        PLAIN,
    ),
    (&["olmo"], PreTokenizer { nfc: true, ..PLAIN }),
    (
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
        ],
        PreTokenizer {
            stages: &[EACH_DIGIT, GPT2],
            ..PLAIN
        },
    ),
    (
        &["falcon"],
        PreTokenizer {
            stages: FALCON,
            ..PLAIN
        },
    ),
    (
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        PreTokenizer {
            stages: &[cl100k(3)],
            ignore_merges: true,
            add_bos: true,
            ..PLAIN
        },
    ),
    (
        &["dbrx", "smaug-bpe"],
        PreTokenizer {
            stages: &[cl100k(3)],
            ..PLAIN
        },
    ),
    (
        &["chatglm-bpe", "glm4"],
        PreTokenizer {
            stages: &[cl100k(3)],
            ignore_merges: true,
            ..PLAIN
        },
    ),
    (
        &["qwen2"],
        PreTokenizer {
            stages: &[cl100k(1)],
            nfc: true,
            ..PLAIN
        },
    ),
    (
        &["stablelm2", "deepseek-r1-qwen", "hunyuan", "grok-2"],
        PreTokenizer {
            stages: &[cl100k(1)],
            ..PLAIN
        },
    ),
    (
        &["tekken"],
        PreTokenizer {
            stages: &[o200k(false, 1)],
            ignore_merges: true,
            add_bos: true,
            ..PLAIN
        },
    ),
    (
        &["gpt-4o", "llama4"],
        PreTokenizer {
            stages: &[o200k(true, 3)],
            ..PLAIN
        },
    ),
];

/// The word rules as `tokenizer.json` spells them.
const EXPRESSIONS: &[(&str, Stage)] = &[
    (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        GPT2,
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        cl100k(1),
    ),
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        cl100k(3),
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        o200k(false, 1),
    ),
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        o200k(true, 3),
    ),
    (r"\p{N}", EACH_DIGIT),
    (
        r"\p{N}{1,3}",
        Stage::Isolate {
            what: is_number,
            min: 1,
            max: 3,
        },
    ),
];

/// The rule that a regular expression of `tokenizer.json` spells.
pub(super) fn by_expression(expression: &str) -> Option<Stage> {
    // Possessive repeats change nothing where what follows cannot match what they took, and
    // greedy white space before one line break reaches the last one as well.
    let plain = expression
        .replace("?+", "?")
        .replace("++", "+")
        .replace(r"\s*[\r\n]|", r"\s*[\r\n]+|");
    let mut known = EXPRESSIONS.iter();
    known
        .find(|(text, _)| *text == plain)
        .map(|&(_, stage)| stage)
}

/// The pre-tokenizer that files call `name`.
pub(super) fn by_name(name: &str) -> Option<PreTokenizer> {
    let mut rules = KNOWN.iter();
    rules.find(|(names, _)| names.contains(&name)).map(|r| r.1)
}

/// The names of all pre-tokenizers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().flat_map(|(names, _)| names.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::super::split::split;
    use super::*;
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::tokenizer::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _,
        SplitDelimiterBehavior,
    };

    fn ours(stages: &[Stage], text: &str) -> Vec<String> {
        let mut words = Vec::new();
        split(stages, text, &mut |word| {
            words.push(word.to_owned());
            Ok::<(), ()>(())
        })
        .expect("nothing fails");
        words
    }

    /// A backtracking engine that applies expressions one after the other.
    struct Oracle(Vec<Split>);

    impl Oracle {
        fn new(expressions: &[&str]) -> Self {
            let split = |expression: &&str| {
                let pattern = SplitPattern::Regex((*expression).into());
                let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
                split.expect("the expression compiles")
            };
            Self(expressions.iter().map(split).collect())
        }

        fn cut(&self, text: &str) -> Vec<String> {
            let mut pieces = PreTokenizedString::from(text);
            for split in &self.0 {
                split.pre_tokenize(&mut pieces).expect("it splits");
            }
            let pieces = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
            pieces
                .into_iter()
                .map(|(text, _, _)| text.to_owned())
                .collect()
        }
    }

    static SINGLE: LazyLock<Vec<(Stage, Oracle)>> = LazyLock::new(|| {
        let oracle = |(expression, stage): &(&str, Stage)| (*stage, Oracle::new(&[expression]));
        EXPRESSIONS.iter().map(oracle).collect()
    });

    static STAGED: LazyLock<Vec<(&str, Oracle)>> = LazyLock::new(|| {
        let gpt2 = EXPRESSIONS[0].0;
        let marks = r"[\p{P}\$\+<=>\^~\|]+";
        let cases: [(&str, &[&str]); 4] = [
            ("smollm", &[r"\p{N}", gpt2]),
            ("gpt-2", &[gpt2]),
            ("default", &[marks, gpt2, r"\p{N}+", "[0-9][0-9][0-9]"]),
            (
                "falcon",
                &[r"[\p{P}\$\+<=>\^~\|`]+", gpt2, "[0-9][0-9][0-9]"],
            ),
        ];
        cases
            .map(|(name, expressions)| (name, Oracle::new(expressions)))
            .into()
    });

    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-zA-Z'0-9 .,!?/$_\n-]{1,8}",
            2 => "[ \\t\\r\\n\u{a0}\u{2028}\u{85}]{1,5}",
            2 => "[àÉßǅʰªﬀЖжώ中あ๑ก\u{301}\u{20e3}٣²Ⅻ½€«—…😀\u{200d}]{1,6}",
            1 => prop::sample::select(vec!["'s", "'RE", "'ll", "n't", "'ſ", "CamelCase", "ABCdef", "éÉé", " 'd"])
                .prop_map(String::from),
            1 => "(?s:.){1,4}",
        ];
        prop::collection::vec(piece, 0..10).prop_map(|pieces| {
            // Case folding makes `'ſ` a contraction to the oracle; no file is known to mean it.
            pieces.concat().replace('ſ', "s")
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn scanned_rules_cut_as_their_expressions_do(text in text()) {
            for (stage, oracle) in SINGLE.iter() {
                prop_assert_eq!(ours(&[*stage], &text), oracle.cut(&text), "{:?}", stage);
            }
        }

        #[test]
        fn stages_cut_as_their_expressions_do(text in text()) {
            for (name, oracle) in STAGED.iter() {
                let stages = by_name(name).expect("a known name").stages;
                prop_assert_eq!(ours(stages, &text), oracle.cut(&text), "{}", name);
            }
        }

        #[test]
        fn pieces_are_the_text(text in text()) {
            for (_, pre) in KNOWN {
                prop_assert_eq!(ours(pre.stages, &text).concat(), text.clone());
            }
        }
    }
}
