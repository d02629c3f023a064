//! Cuts text into words, inside which byte-level BPE merges.
//!
//! The rules that model files use (see `words`) are a handful of shapes with a few switches, so
//! they are scanned by hand: linear time on any input, where a backtracking engine gives up on
//! long runs of spaces.

use super::unicode::{class, class_of};

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
