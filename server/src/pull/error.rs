//! What can go wrong when a model is asked for.

use std::fmt;
use std::path::PathBuf;

use super::units::Bytes;
use crate::catalogue::CatalogueError;

/// Why a model could not be had. Every message is one line that says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Not a catalogue name, nor anything else that names a model.
    #[error(
        "no model is called '{name}'{}; `kvant pull --list` shows the names, and a path, hf:org/repo or URL works too",
        DidYouMean(near)
    )]
    UnknownModel {
        /// What the user typed.
        name: String,
        /// Catalogue names that look like it.
        near: Vec<String>,
    },
    /// `hf:` or a URL that cannot be read.
    #[error("'{spec}' does not name a model: {why}")]
    BadReference {
        /// What the user typed.
        spec: String,
        /// The rule it breaks.
        why: String,
    },
    /// A path without a model.
    #[error("{}: {why}", path.display())]
    NoModelAtPath {
        /// What the user typed.
        path: PathBuf,
        /// What is there instead.
        why: &'static str,
    },
    /// The terms must be agreed to first.
    #[error(
        "{model} comes under the {licence} ({url}); read them, then run `kvant pull {model} --accept-licence`"
    )]
    LicenceNotAccepted {
        /// Name of the model.
        model: String,
        /// Title of the terms.
        licence: String,
        /// Where they are.
        url: String,
    },
    /// The server could not be reached at all.
    #[error("cannot reach {host}: {why}")]
    Unreachable {
        /// Host part of the URL.
        host: String,
        /// What failed.
        why: String,
    },
    /// The server answered with an error.
    #[error("{url} answered {status}{}", Hint(hint))]
    Status {
        /// What was asked for.
        url: String,
        /// HTTP status code.
        status: u16,
        /// What to do, where known.
        hint: Option<String>,
    },
    /// The transfer broke off again and again.
    #[error("{url} broke off after {}: {why}; run the same command again to go on from there", Bytes(*have))]
    BrokenOff {
        /// What was being read.
        url: String,
        /// Bytes safely on disk.
        have: u64,
        /// The last failure.
        why: String,
    },
    /// The server breaks the rules of HTTP or of its own API.
    #[error("{url} sent something unexpected: {why}")]
    BadAnswer {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// The source offers another file than the one wanted.
    #[error("{what} is {found} bytes long, but {wanted} were expected; it is not the file wanted")]
    WrongLength {
        /// File or URL.
        what: String,
        /// Bytes expected.
        wanted: u64,
        /// Bytes offered.
        found: u64,
    },
    /// The bytes are not the ones wanted. The damaged file has been removed.
    #[error(
        "checksum of {what} is wrong: expected sha256 {expected}, got {actual}; nothing was kept, so try again or use another source"
    )]
    Checksum {
        /// File or URL.
        what: String,
        /// SHA-256 that was to be.
        expected: String,
        /// SHA-256 of what came.
        actual: String,
    },
    /// The disk cannot hold the file.
    #[error("not enough disk space in {}: {}{} free; make room or set KVANT_HOME to a folder on another disk, then run the same command again", folder.display(), Needed(*needed), Bytes(*free))]
    DiskFull {
        /// Folder of the cache.
        folder: PathBuf,
        /// Bytes still to be written, where known.
        needed: Option<u64>,
        /// Bytes free.
        free: u64,
    },
    /// Another file operation failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// Verb: read, write, create, …
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no pip to ask.
    #[error(
        "no pip found (tried python3 -m pip, python -m pip, pip3, pip); install Python 3 with pip"
    )]
    NoPip,
    /// pip ran and failed.
    #[error("pip could not download {packages}: {why}")]
    Pip {
        /// `name==version`, separated by spaces.
        packages: String,
        /// pip's last error line.
        why: String,
    },
    /// A wheel does not hold what the catalogue says.
    #[error("{}: {why}", wheel.display())]
    Wheel {
        /// The wheel.
        wheel: PathBuf,
        /// What is missing or damaged.
        why: String,
    },
    /// A repository without a single obvious model.
    #[error("{repo} has {why}")]
    NoObviousFile {
        /// `organisation/repository`.
        repo: String,
        /// What it has, and what to type.
        why: String,
    },
    /// Each source failed; the reasons in order.
    #[error("could not pull {model}: {}", reasons.join("; then "))]
    AllSourcesFailed {
        /// Name of the model.
        model: String,
        /// One reason per source.
        reasons: Vec<String>,
    },
    /// Neither KVANT_HOME nor the user's home folder is known.
    #[error("no folder for models: set KVANT_HOME to one")]
    NoHome,
    /// The catalogue itself is damaged.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

impl PullError {
    /// Whether another source of the same file is worth trying after this failure.
    pub(crate) fn is_about_the_source(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Status { .. }
                | Self::BrokenOff { .. }
                | Self::BadAnswer { .. }
                | Self::WrongLength { .. }
                | Self::Checksum { .. }
                | Self::NoPip
                | Self::Pip { .. }
                | Self::Wheel { .. }
        )
    }

    /// Exit status of the program: 2 where the command line names no model, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::UnknownModel { .. } | Self::BadReference { .. } => 2,
            _ => 1,
        }
    }
}

struct DidYouMean<'a>(&'a [String]);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            names => write!(f, " (did you mean {}?)", names.join(" or ")),
        }
    }
}

struct Hint<'a>(&'a Option<String>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(hint) => write!(f, ": {hint}"),
            None => Ok(()),
        }
    }
}

struct Needed(Option<u64>);

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{} needed, ", Bytes(bytes)),
            None => Ok(()),
        }
    }
}
