//! The alphabet of byte-level BPE files: each byte written as one printable character.
//!
//! Printable Latin-1 bytes stand for themselves; the other 68 are numbered from U+0100 on in
//! byte order (the scheme of GPT-2).

/// True for bytes that are written as the character of the same number.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// `byte_of[c]` for characters below U+0144: the byte that `c` stands for, or 256.
const BYTE_OF: [u16; 0x144] = {
    let mut table = [256; 0x144];
    let mut next = 0x100;
    let mut byte = 0;
    while byte < 256 {
        if is_printable(byte as u8) {
            table[byte] = byte as u16;
        } else {
            table[next] = byte as u16;
            next += 1;
        }
        byte += 1;
    }
    table
};

/// The byte that a character of a byte-level vocabulary stands for.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let byte = *BYTE_OF.get(c as usize)?;
    u8::try_from(byte).ok()
}

/// Appends the bytes that `text` stands for. False, with `out` unchanged, if `text` is not
/// UTF-8 or holds a character outside the alphabet.
pub(super) fn decode_into(text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_exactly_one_character() {
        let mut seen = [false; 256];
        for c in (0..0x200u32).filter_map(char::from_u32) {
            if let Some(byte) = byte_of(c) {
                assert!(!std::mem::replace(&mut seen[byte as usize], true));
            }
        }
        assert!(seen.iter().all(|&s| s));
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of(' '), None);
    }
}
