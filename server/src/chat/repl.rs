//! Reading questions and commands from a terminal.

use std::path::Path;

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::conversation::Conversation;
use super::{cut_note, stop};
use crate::error::CliError;
use crate::pull;
use crate::sampling;
use crate::terminal;

const HELP: &str = "\
/help               this list
/clear              forget the conversation
/system TEXT        set the instructions and start afresh; no TEXT removes them
/set                show how tokens are chosen
/set NAME VALUE     change it, as in /set temperature 0.7
/stats              speed of the last answer, and how full the context is
/save FILE          write the conversation as JSON
/load FILE          go on with a saved one
/quit               end (Ctrl-D does too)
A line that ends in \\ goes on; \"\"\" starts and ends a text of several lines.
Ctrl-C stops an answer.";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Input<'a> {
    Nothing,
    Question(&'a str),
    Help,
    Clear,
    System(&'a str),
    ShowSettings,
    Set(&'a str, &'a str),
    Stats,
    Save(&'a str),
    Load(&'a str),
    Quit,
    /// Not a command; what is wrong with it.
    Wrong(String),
}

impl<'a> Input<'a> {
    fn parse(line: &'a str) -> Self {
        let line = line.trim();
        if line.is_empty() {
            return Self::Nothing;
        }
        let Some(command) = line.strip_prefix('/') else {
            return Self::Question(line);
        };
        let (name, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let rest = rest.trim();
        match (name, rest) {
            ("help" | "?", _) => Self::Help,
            ("clear", _) => Self::Clear,
            ("system", text) => Self::System(text),
            ("set", "") => Self::ShowSettings,
            ("set", pair) => match pair.split_once(char::is_whitespace) {
                Some((name, value)) => Self::Set(name, value.trim()),
                None => {
                    Self::Wrong("/set takes a name and a value, as in /set top_p 0.9".to_owned())
                }
            },
            ("stats", _) => Self::Stats,
            ("save" | "load", "") => Self::Wrong(format!("/{name} takes the name of a file")),
            ("save", file) => Self::Save(file),
            ("load", file) => Self::Load(file),
            ("quit" | "exit" | "bye", _) => Self::Quit,
            _ => Self::Wrong(format!("there is no /{name}; /help lists the commands")),
        }
    }
}

/// What the user typed.
enum Typed {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D.
    End,
}

/// Runs the conversation until the user ends it.
pub(super) fn run(conversation: &mut Conversation) -> Result<(), CliError> {
    let failed =
        |error: ReadlineError| CliError::Failed(format!("cannot read the terminal: {error}"));
    let _guard = stop::restore_the_terminal();
    let mut editor = DefaultEditor::new().map_err(failed)?;
    let history = pull::home()?.join("chat-history");
    // The first time there is none; a history that cannot be read is not worth an error.
    let _ = editor.load_history(&history);
    eprintln!("/help lists the commands; Ctrl-D ends");
    let mut interrupted = false;
    loop {
        let line = match read(&mut editor).map_err(failed)? {
            Typed::Text(line) => line,
            Typed::End => break,
            Typed::Interrupted if interrupted => break,
            Typed::Interrupted => {
                interrupted = true;
                eprintln!("Ctrl-C again ends the program");
                continue;
            }
        };
        interrupted = false;
        match Input::parse(&line) {
            Input::Nothing => continue,
            Input::Quit => break,
            input => {
                // A history that cannot be kept must not end the conversation.
                let _ = editor.add_history_entry(line.as_str());
                let _ = save_history(&mut editor, &history);
                act(conversation, input)?;
            }
        }
    }
    Ok(())
}

fn save_history(editor: &mut DefaultEditor, history: &Path) -> rustyline::Result<()> {
    if let Some(folder) = history.parent() {
        std::fs::create_dir_all(folder)?;
    }
    editor.save_history(history)
}

/// One line, or several by `\` at the end or between `"""`.
fn read(editor: &mut DefaultEditor) -> rustyline::Result<Typed> {
    let mut text = match editor.readline("> ") {
        Ok(line) => line,
        Err(error) => return stopped(error),
    };
    if let Some(start) = text.trim_start().strip_prefix("\"\"\"") {
        let mut block = start.to_owned();
        while !block.trim_end().ends_with("\"\"\"") {
            match editor.readline("… ") {
                Ok(line) => {
                    block.push('\n');
                    block.push_str(&line);
                }
                Err(error) => return stopped(error),
            }
        }
        let end = block.trim_end().len() - 3;
        return Ok(Typed::Text(block[..end].to_owned()));
    }
    while text.ends_with('\\') {
        text.pop();
        match editor.readline("… ") {
            Ok(line) => {
                text.push('\n');
                text.push_str(&line);
            }
            Err(error) => return stopped(error),
        }
    }
    Ok(Typed::Text(text))
}

fn stopped(error: ReadlineError) -> rustyline::Result<Typed> {
    match error {
        ReadlineError::Interrupted => Ok(Typed::Interrupted),
        ReadlineError::Eof => Ok(Typed::End),
        error => Err(error),
    }
}

/// Does what a line asks for. Only a failure of the terminal itself is an error.
fn act(conversation: &mut Conversation, input: Input<'_>) -> Result<(), CliError> {
    match input {
        Input::Question(question) => return answer(conversation, question),
        Input::Help => eprintln!("{HELP}\nNames for /set: {}", sampling::NAMES.join(", ")),
        Input::Clear => {
            conversation.clear();
            eprintln!("forgotten");
        }
        Input::System(text) => {
            conversation.set_system(text);
            let what = if text.is_empty() {
                "no instructions"
            } else {
                "new instructions"
            };
            eprintln!("{what}; the conversation starts afresh");
        }
        Input::ShowSettings => eprintln!("{}", conversation.settings()),
        Input::Set(name, value) => match conversation.sampler.set(name, value) {
            Ok(()) => eprintln!("{}", conversation.settings()),
            Err(why) => eprintln!("{why}"),
        },
        Input::Stats => eprintln!("{}", conversation.stats()),
        Input::Save(file) => match conversation.save(Path::new(file)) {
            Ok(n_messages) => eprintln!("{n_messages} messages written to {file}"),
            Err(error) => eprintln!("{error}"),
        },
        Input::Load(file) => match conversation.load(Path::new(file)) {
            Ok(n_messages) => eprintln!("{n_messages} messages read from {file}"),
            Err(error) => eprintln!("{error}"),
        },
        Input::Wrong(why) => eprintln!("{why}"),
        Input::Nothing | Input::Quit => {}
    }
    Ok(())
}

fn answer(conversation: &mut Conversation, question: &str) -> Result<(), CliError> {
    let (flag, _guard) = stop::stop_the_answer();
    match conversation.ask(
        question.to_owned(),
        &mut |piece| terminal::print(piece),
        &flag,
    ) {
        Ok(answer) => {
            terminal::print("\n")?;
            if let Some(note) = cut_note(&answer) {
                eprintln!("{note}");
            }
        }
        Err(error @ (CliError::BrokenPipe | CliError::Stream { .. })) => return Err(error),
        Err(error) => eprintln!("error: {error}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Input;

    #[test]
    fn lines_are_questions_or_commands() {
        assert_eq!(Input::parse("  "), Input::Nothing);
        assert_eq!(
            Input::parse(" what is 1/2? "),
            Input::Question("what is 1/2?")
        );
        assert_eq!(
            Input::parse("/system  Be brief. "),
            Input::System("Be brief.")
        );
        assert_eq!(
            Input::parse("/set temperature 0.7"),
            Input::Set("temperature", "0.7")
        );
        assert_eq!(Input::parse("/set"), Input::ShowSettings);
        assert_eq!(Input::parse("/save a b.json"), Input::Save("a b.json"));
        assert_eq!(Input::parse("/quit"), Input::Quit);
        for wrong in ["/set x", "/save", "/load ", "/hlep", "/"] {
            assert!(matches!(Input::parse(wrong), Input::Wrong(_)), "{wrong}");
        }
    }
}
