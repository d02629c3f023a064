//! Cuts text into words, inside which byte-level BPE merges.
//!
//! Model files name these rules (`tokenizer.ggml.pre`); `tokenizer.json` spells them as regular
//! expressions. They are a handful of shapes with a few switches, so they are scanned by hand:
//! linear time on any input, where a backtracking engine gives up on long runs of spaces.

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

/// One cutting rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Words, numbers, punctuation, white space.
    Words(Words),
    /// Runs of some characters become pieces of `min..=max` characters; the text between them
    /// stays whole.
    Isolate {
        /// Which characters.
        what: fn(char) -> bool,
        /// Shorter rests stay with the text around them.
        min: usize,
        /// Longer runs are cut.
        max: usize,
    },
}

/// The switches of the word rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// English contractions (`'s`, `'re`…) that are words of their own.
    pub(super) contractions: Contractions,
    /// What a run of letters takes with it.
    pub(super) letters: Letters,
    /// How numbers are cut.
    pub(super) digits: Digits,
    /// Characters that a run of punctuation takes with it at its end.
    pub(super) punctuation_tail: &'static [u8],
    /// White space up to the last line break of a run is a word.
    pub(super) line_breaks: bool,
}

/// See [`Words::contractions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contractions {
    /// They have no rule.
    None,
    /// In lower case.
    LowerCase,
    /// In any case.
    AnyCase,
}

/// See [`Words::letters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    /// One space.
    AfterSpace,
    /// Any one character that is no letter, number or line break.
    AfterAny,
    /// As `AfterAny`, and the run also breaks before an upper-case letter that follows a
    /// lower-case one; marks count as letters. `contraction`: the run takes one at its end.
    Cased { contraction: bool },
}

/// See [`Words::digits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digits {
    /// A whole number with a space before it.
    AfterSpace,
    /// At most this many digits.
    UpTo(usize),
}

/// The word rule of GPT-2:
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
const GPT2: Stage = Stage::Words(Words {
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

const EACH_DIGIT: Stage = Stage::Isolate {
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

/// The rule of GPT-2, which `tokenizer.json` calls `ByteLevel`.
pub(super) const fn gpt2() -> Stage {
    GPT2
}

/// The rule that makes each digit a piece.
pub(super) const fn each_digit() -> Stage {
    EACH_DIGIT
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

/// Calls `word` for each piece of `text` after all `stages`, in order; together the pieces are
/// the text.
pub(super) fn split<E>(
    stages: &[Stage],
    text: &str,
    word: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let Some((stage, rest)) = stages.split_first() else {
        return word(text);
    };
    let mut piece = |piece: &str| split(rest, piece, word);
    match stage {
        Stage::Words(words) => words.split(text, &mut piece),
        &Stage::Isolate { what, min, max } => isolate(text, what, min, max, &mut piece),
    }
}

fn isolate<E>(
    text: &str,
    what: fn(char) -> bool,
    min: usize,
    max: usize,
    piece: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let (mut from, mut at) = (0, 0);
    while at < text.len() {
        let run = text[at..].chars().take(max).take_while(|&c| what(c));
        let (count, bytes) = run.fold((0, 0), |(n, b), c| (n + 1, b + c.len_utf8()));
        if count < min {
            at += bytes.max(text[at..].chars().next().map_or(1, char::len_utf8));
            continue;
        }
        if from < at {
            piece(&text[from..at])?;
        }
        piece(&text[at..at + bytes])?;
        at += bytes;
        from = at;
    }
    if from < text.len() {
        piece(&text[from..])?;
    }
    Ok(())
}

impl Words {
    fn split<E>(&self, text: &str, piece: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut at = 0;
        while at < text.len() {
            let end = self.word_end(text, at);
            piece(&text[at..end])?;
            at = end;
        }
        Ok(())
    }

    /// End of the word that starts at `at`, which is inside `text`. The rules are tried in the
    /// order of the expressions above.
    fn word_end(&self, text: &str, at: usize) -> usize {
        if self.contractions != Contractions::None
            && let Some(end) = contraction_end(text, at, self.contractions)
        {
            return end;
        }
        if let Some(end) = self.letters_end(text, at) {
            return end;
        }
        let (first, second) = (Char::at(text, at), Char::at(text, at).next(text));
        let after_space = |class: u8| match first {
            Char { class: c, .. } if c & class != 0 => Some(first.end),
            Char { space: true, .. } if second.class & class != 0 => Some(second.end),
            _ => None,
        };
        match self.digits {
            Digits::UpTo(n) if first.class == class::NUMBER => {
                return run_end(text, first.end, class::NUMBER, n - 1);
            }
            Digits::AfterSpace => {
                if let Some(end) = after_space(class::NUMBER) {
                    return run_end(text, end, class::NUMBER, usize::MAX);
                }
            }
            Digits::UpTo(_) => {}
        }
        let not_word = !(class::LETTER | class::NUMBER | class::SPACE);
        if let Some(end) = after_space(not_word) {
            let end = run_end(text, end, not_word, usize::MAX);
            let tail = text.as_bytes()[end..].iter();
            return end
                + tail
                    .take_while(|b| self.punctuation_tail.contains(b))
                    .count();
        }
        self.space_end(text, at)
    }

    fn letters_end(&self, text: &str, at: usize) -> Option<usize> {
        let first = Char::at(text, at);
        let may_lead = match self.letters {
            Letters::AfterSpace => first.space,
            _ => first.class & (class::LETTER | class::NUMBER) == 0 && !first.line_break,
        };
        let second = if may_lead { Some(first.end) } else { None };
        let Letters::Cased { contraction } = self.letters else {
            let start = match second {
                Some(second) if Char::at(text, second).class & class::LETTER != 0 => second,
                _ if first.class & class::LETTER != 0 => at,
                _ => return None,
            };
            return Some(run_end(text, start, class::LETTER, usize::MAX));
        };
        let end = second
            .and_then(|s| ends_lower(text, s))
            .or_else(|| ends_lower(text, at))
            .or_else(|| second.and_then(|s| all_upper(text, s)))
            .or_else(|| all_upper(text, at))?;
        let tail = if contraction {
            contraction_end(text, end, Contractions::AnyCase)
        } else {
            None
        };
        Some(tail.unwrap_or(end))
    }

    fn space_end(&self, text: &str, at: usize) -> usize {
        let end = run_end(text, at, class::SPACE, usize::MAX);
        let run = &text[at..end];
        if self.line_breaks
            && let Some(last) = run.rfind(['\r', '\n'])
        {
            return at + last + 1;
        }
        // The last space goes with the word after it, if there is one.
        match run.char_indices().next_back() {
            Some((last, _)) if last > 0 && end < text.len() => at + last,
            _ => end,
        }
    }
}

/// `[upper or other]* [lower or other]+`, with the backtracking of the expression.
fn ends_lower(text: &str, at: usize) -> Option<usize> {
    let upper_end = run_end(text, at, UPPERISH, usize::MAX);
    let lower_end = run_end(text, upper_end, LOWERISH, usize::MAX);
    if lower_end > upper_end {
        return Some(lower_end);
    }
    // Give back characters until one of them can also end the word.
    let mut back = text[at..upper_end].char_indices().rev();
    back.find(|&(_, c)| class_of(c) & LOWERISH != 0)
        .map(|(i, c)| at + i + c.len_utf8())
}

/// `[upper or other]+ [lower or other]*` where [`ends_lower`] found nothing.
fn all_upper(text: &str, at: usize) -> Option<usize> {
    let end = run_end(text, at, UPPERISH, usize::MAX);
    (end > at).then_some(end)
}

const UPPERISH: u8 = class::UPPER | class::OTHER_LETTER | class::MARK;
const LOWERISH: u8 = class::LOWER | class::OTHER_LETTER | class::MARK;

/// A character of the text; class 0 past its end.
#[derive(Clone, Copy)]
struct Char {
    class: u8,
    /// Where the next one starts.
    end: usize,
    /// It is U+0020.
    space: bool,
    line_break: bool,
}

impl Char {
    fn at(text: &str, at: usize) -> Self {
        match text[at..].chars().next() {
            Some(c) => Self {
                class: class_of(c),
                end: at + c.len_utf8(),
                space: c == ' ',
                line_break: matches!(c, '\r' | '\n'),
            },
            None => Self {
                class: 0,
                end: at,
                space: false,
                line_break: false,
            },
        }
    }

    fn next(self, text: &str) -> Self {
        Self::at(text, self.end)
    }
}

/// End of the run of at most `max` characters of `class` that starts at `at`.
fn run_end(text: &str, at: usize, class: u8, max: usize) -> usize {
    let run = text[at..].chars().take(max);
    at + run
        .take_while(|&c| class_of(c) & class != 0)
        .map(char::len_utf8)
        .sum::<usize>()
}

/// End of the contraction (`'s 't 're 've 'm 'll 'd`) that starts at `at`.
fn contraction_end(text: &str, at: usize, case: Contractions) -> Option<usize> {
    let rest = text.as_bytes()[at..].strip_prefix(b"'")?;
    let fold = |b: &u8| match case {
        Contractions::AnyCase => b.to_ascii_lowercase(),
        _ => *b,
    };
    let (first, second) = (rest.first().map(fold)?, rest.get(1).map(fold));
    match (first, second) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r', Some(b'e')) | (b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(at + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

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
