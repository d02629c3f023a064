//! Rust source without its comments, texts and test modules, so that a check sees code only.

/// Replaces comments and the contents of string and character literals by spaces, and drops
/// everything from a `#[cfg(test)]` on its own line to the end of the item below it. Line numbers
/// stay.
pub(crate) fn code_only(source: &str) -> String {
    drop_tests(&blank_literals(source))
}

fn blank_literals(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let blank = |code: &mut Vec<u8>, from: usize, to: usize| {
        for byte in &mut code[from..to.min(bytes.len())] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    };
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let after_word = at > 0 && is_word(bytes[at - 1]);
        let end = if rest.starts_with(b"//") {
            at + rest
                .iter()
                .position(|&byte| byte == b'\n')
                .unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            at + block_comment(rest)
        } else if let Some(length) = (!after_word).then(|| raw_string(rest)).flatten() {
            at + length
        } else if rest[0] == b'"' {
            at + quoted(rest)
        } else if let Some(length) = character(rest) {
            at + length
        } else {
            at += 1;
            continue;
        };
        blank(&mut code, at, end);
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Length of a block comment, which may hold others.
fn block_comment(text: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Length of `"…"` with its escapes.
fn quoted(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Length of `r"…"`, `r#"…"#`, `br"…"`, if one starts here.
fn raw_string(text: &[u8]) -> Option<usize> {
    let prefix = if text.starts_with(b"br") {
        2
    } else {
        usize::from(text.starts_with(b"r"))
    };
    if prefix == 0 {
        return None;
    }
    let hashes = text[prefix..]
        .iter()
        .take_while(|&&byte| byte == b'#')
        .count();
    let open = prefix + hashes;
    if text.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = &text[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(text.len(), |end| open + 1 + end + close.len()))
}

/// Length of a character literal, if one starts here and it is not a lifetime.
fn character(text: &[u8]) -> Option<usize> {
    if text[0] != b'\'' {
        return None;
    }
    if text.get(1) == Some(&b'\\') {
        let end = text.iter().skip(3).position(|&byte| byte == b'\'')?;
        return Some(end + 4);
    }
    let end = text
        .iter()
        .take(6)
        .skip(2)
        .position(|&byte| byte == b'\'')?
        + 2;
    let inside = std::str::from_utf8(&text[1..end]).ok()?;
    (inside.chars().count() == 1).then_some(end + 1)
}

fn drop_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut lines = code.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            continue;
        }
        kept.push('\n');
        let mut depth = 0i64;
        let mut entered = false;
        for line in lines.by_ref() {
            kept.push('\n');
            for byte in line.bytes() {
                match byte {
                    b'{' => {
                        depth += 1;
                        entered = true;
                    }
                    b'}' => depth -= 1,
                    b';' if depth == 0 => entered = true,
                    _ => {}
                }
            }
            if entered && depth <= 0 {
                break;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_literals_are_blank_and_lines_stay() {
        let source = "let a = \"std::fs // \\\" x\"; // std::fs\nlet b = r#\"wgpu \"q\" \"#;\n/* a /* std::fs */ \n */ let c = '\"'; let d: &'a str = '\\'' ; y\n";
        let code = code_only(source);
        assert!(
            !code.contains("std::fs") && !code.contains("wgpu"),
            "{code}"
        );
        assert!(code.contains("let d: &'a str") && code.contains("let c") && code.contains("; y"));
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn test_modules_go_and_what_follows_stays() {
        let source = "a();\n#[cfg(test)]\nmod tests {\n    fn f() { std::fs::read(\"}\"); }\n}\nb();\n#[cfg(test)]\nmod more;\nc();\n";
        let code = code_only(source);
        assert!(
            !code.contains("std::fs") && !code.contains("mod more"),
            "{code}"
        );
        assert!(
            code.contains("a();") && code.contains("b();") && code.contains("c();"),
            "{code}"
        );
        assert_eq!(code.lines().count(), source.lines().count());
    }
}
