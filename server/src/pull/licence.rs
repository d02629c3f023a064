//! Terms that a user must agree to before the weights are fetched.

use std::io::{IsTerminal, Write};

use super::error::PullError;
use super::progress::Ui;
use crate::catalogue::Entry;

/// Shows the terms of a model and makes sure the user agrees: with the flag, or by typing `yes`.
pub(crate) fn ensure_accepted(entry: &Entry, accepted: bool, ui: &Ui) -> Result<(), PullError> {
    let licence = &entry.licence;
    ui.note(&format!(
        "{}: {} ({})",
        entry.name, licence.name, licence.url
    ));
    if !licence.must_accept || accepted {
        return Ok(());
    }
    let interactive = ui.is_terminal() && std::io::stdin().is_terminal();
    if interactive && ask("Do you accept these terms? [yes/no] ") {
        return Ok(());
    }
    Err(PullError::LicenceNotAccepted {
        model: entry.name.clone(),
        licence: licence.name.clone(),
        url: licence.url.clone(),
    })
}

fn ask(question: &str) -> bool {
    eprint!("{question}");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    match std::io::stdin().read_line(&mut answer) {
        Ok(_) => matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"),
        Err(_) => false,
    }
}
