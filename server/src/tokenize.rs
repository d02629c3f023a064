//! `kvant tokenize`: text to token ids and back.

use clap::Args;
use kvant_text::{DecodeOptions, EncodeOptions, Tokenizer};
use serde::Serialize;

use crate::error::CliError;
use crate::session::{MODEL_HELP, open_checkpoint, open_tokenizer};
use crate::terminal;

/// Show the tokens of a text, or the text of tokens.
///
/// Prints one token a line: its id and its text. No weights are loaded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvant tokenize smollm2-135m \"Hello world\"
  kvant tokenize smollm2-135m --special \"<|im_start|>user\"
  kvant tokenize smollm2-135m --json - < text.txt
  kvant tokenize smollm2-135m --ids 19556,905")]
pub struct TokenizeArgs {
    #[arg(help = MODEL_HELP)]
    model: String,

    /// Text; standard input when it is `-` or missing
    #[arg(conflicts_with = "ids", allow_hyphen_values = true)]
    text: Option<String>,

    /// Decode these token ids instead
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',')]
    ids: Option<Vec<u32>>,

    /// Turn the text of special tokens into these tokens
    #[arg(long, conflicts_with = "ids")]
    special: bool,

    /// Put the beginning-of-text token first, whatever the model wants
    #[arg(long, conflicts_with_all = ["ids", "no_bos"])]
    bos: bool,

    /// Leave the beginning-of-text token out, whatever the model wants
    #[arg(long, conflicts_with = "ids")]
    no_bos: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `tokenize --json`.
#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    token_ids: &'a [u32],
    tokens: Vec<String>,
}

/// Runs the subcommand.
pub fn run(args: &TokenizeArgs) -> Result<(), CliError> {
    let text = match (&args.ids, args.text.as_deref()) {
        (Some(_), _) => None,
        (None, None | Some("-")) => Some(terminal::read_stdin()?),
        (None, Some(text)) => Some(text.to_owned()),
    };
    let (path, checkpoint) = open_checkpoint(&args.model)?;
    let tokenizer = open_tokenizer(&path, &checkpoint)?;
    let failed = |error: kvant_text::TextError| CliError::Failed(error.to_string());
    let (text, ids) = match (&args.ids, text) {
        (Some(ids), _) => {
            let whole = DecodeOptions {
                whole_text: true,
                skip_special: false,
            };
            (tokenizer.decode(ids, whole).map_err(failed)?, ids.clone())
        }
        (None, text) => {
            let text = text.unwrap_or_default();
            let ids = encode(args, &tokenizer, &text)?;
            (text, ids)
        }
    };
    let tokens = ids
        .iter()
        .map(|&id| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned());
    if args.json {
        return terminal::print_json(&Report {
            text: &text,
            token_ids: &ids,
            tokens: tokens.collect(),
        });
    }
    if args.ids.is_some() {
        return terminal::print_line(&text);
    }
    let lines: String = ids
        .iter()
        .zip(tokens)
        .map(|(id, token)| format!("{id:>7}  {token:?}\n"))
        .collect();
    terminal::print(&lines)
}

fn encode(args: &TokenizeArgs, tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, CliError> {
    let options = EncodeOptions {
        add_special: !args.no_bos && !args.bos,
        parse_special: args.special,
    };
    let mut ids = tokenizer
        .encode(text, options)
        .map_err(|error| CliError::Failed(error.to_string()))?;
    if args.bos {
        let none = || CliError::Usage("this model has no beginning-of-text token".to_owned());
        ids.insert(0, tokenizer.bos().ok_or_else(none)?);
    }
    Ok(ids)
}
