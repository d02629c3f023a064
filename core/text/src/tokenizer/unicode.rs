//! Classes of characters that the word rules need.

use unicode_general_category::{GeneralCategory as G, get_general_category};

/// Class of a character. A set of classes is a bit mask.
pub(super) mod class {
    /// Upper-case and title-case letters.
    pub(crate) const UPPER: u8 = 1;
    /// Lower-case letters.
    pub(crate) const LOWER: u8 = 1 << 1;
    /// Letters without case, and modifier letters.
    pub(crate) const OTHER_LETTER: u8 = 1 << 2;
    /// Combining marks.
    pub(crate) const MARK: u8 = 1 << 3;
    /// Numbers of any kind.
    pub(crate) const NUMBER: u8 = 1 << 4;
    /// White space.
    pub(crate) const SPACE: u8 = 1 << 5;
    /// Punctuation.
    pub(crate) const PUNCTUATION: u8 = 1 << 6;
    /// Everything else: symbols, controls, unassigned.
    pub(crate) const OTHER: u8 = 1 << 7;
    /// Letters of any kind.
    pub(crate) const LETTER: u8 = UPPER | LOWER | OTHER_LETTER;
}

const ASCII: [u8; 128] = {
    let mut table = [class::OTHER; 128];
    let mut i = 0;
    while i < 128 {
        let b = i as u8;
        if b.is_ascii_uppercase() {
            table[i] = class::UPPER;
        } else if b.is_ascii_lowercase() {
            table[i] = class::LOWER;
        } else if b.is_ascii_digit() {
            table[i] = class::NUMBER;
        } else if matches!(b, b' ' | 9..=13) {
            table[i] = class::SPACE;
        } else if b.is_ascii_punctuation()
            && !matches!(
                b,
                b'$' | b'+' | b'<' | b'=' | b'>' | b'^' | b'`' | b'|' | b'~'
            )
        {
            table[i] = class::PUNCTUATION;
        }
        i += 1;
    }
    table
};

/// The class of `c`.
pub(super) fn class_of(c: char) -> u8 {
    if c.is_ascii() {
        return ASCII[c as usize];
    }
    // White space first: U+0085 is a control by category, and a space to every engine.
    if c.is_whitespace() {
        return class::SPACE;
    }
    match get_general_category(c) {
        G::UppercaseLetter | G::TitlecaseLetter => class::UPPER,
        G::LowercaseLetter => class::LOWER,
        G::OtherLetter | G::ModifierLetter => class::OTHER_LETTER,
        G::NonspacingMark | G::SpacingMark | G::EnclosingMark => class::MARK,
        G::DecimalNumber | G::LetterNumber | G::OtherNumber => class::NUMBER,
        G::ConnectorPunctuation
        | G::DashPunctuation
        | G::OpenPunctuation
        | G::ClosePunctuation
        | G::InitialPunctuation
        | G::FinalPunctuation
        | G::OtherPunctuation => class::PUNCTUATION,
        _ => class::OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ascii_table_agrees_with_unicode() {
        for c in (0u8..128).map(char::from) {
            let by_category = match get_general_category(c) {
                _ if c.is_whitespace() => class::SPACE,
                G::UppercaseLetter => class::UPPER,
                G::LowercaseLetter => class::LOWER,
                G::DecimalNumber => class::NUMBER,
                G::Control | G::MathSymbol | G::CurrencySymbol | G::ModifierSymbol => class::OTHER,
                _ => class::PUNCTUATION,
            };
            assert_eq!(class_of(c), by_category, "{c:?}");
        }
    }
}
