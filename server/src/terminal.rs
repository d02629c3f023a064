//! Standard input and output: text in, text and JSON out.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::CliError;

/// Writes to standard output at once.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(CliError::output)
}

/// Writes a line to standard output.
pub fn print_line(line: &str) -> Result<(), CliError> {
    print(&format!("{line}\n"))
}

/// Writes a value to standard output as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::Failed(format!("cannot write JSON: {error}")))?;
    print_line(&text)
}

/// All of standard input, which must be text.
pub fn read_stdin() -> Result<String, CliError> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|source| CliError::Stream {
            stream: "standard input",
            source,
        })?;
    text_of(bytes, || "standard input".to_owned())
}

/// A whole file, which must be text.
pub fn read_text(path: &Path) -> Result<String, CliError> {
    let bytes = std::fs::read(path).map_err(|source| CliError::file("read", path, source))?;
    text_of(bytes, || path.display().to_string())
}

fn text_of(bytes: Vec<u8>, what: impl FnOnce() -> String) -> Result<String, CliError> {
    String::from_utf8(bytes).map_err(|error| CliError::NotUtf8 {
        what: what(),
        at: error.utf8_error().valid_up_to(),
    })
}

/// Whether a person types the input.
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Whether a person may watch the notes on standard error.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether a person reads the output.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// A table with its columns aligned: the first to the left, the others to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, (cell, &width)) in cells.zip(&widths).enumerate() {
            if column == 0 {
                line.push_str(&format!("{cell:width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "10".to_owned()],
            vec!["bcd".to_owned(), "7".to_owned()],
        ];
        assert_eq!(table(&["x", "n"], &rows), "x     n\na    10\nbcd   7\n");
    }

    #[test]
    fn the_first_wrong_byte_is_named() {
        let error = text_of(vec![b'a', b'b', 0xff], || "it".to_owned()).unwrap_err();
        assert!(error.to_string().starts_with("it is not UTF-8 (byte 2)"));
    }
}
