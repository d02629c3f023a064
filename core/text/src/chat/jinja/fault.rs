//! Why a template did not parse.

/// Why, and where.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::chat) struct Fault {
    /// Line in the template, from 1; 0 until it is known.
    pub(in crate::chat) line: usize,
    /// What went wrong.
    pub(in crate::chat) reason: String,
}

impl Fault {
    /// A fault whose line is not known yet.
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            line: 0,
            reason: reason.into(),
        }
    }

    /// The same, at a line if it has none yet.
    pub(super) fn at(mut self, line: usize) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}
