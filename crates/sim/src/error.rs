//! Errors of worlds and of names.

use std::fmt;

use tidegate_core::suggest::question;

/// Why a section of a scenario is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldError {
    /// The case, if the world has several.
    pub case: Option<String>,
    /// What is wrong with it.
    pub flaw: &'static str,
}

impl WorldError {
    pub(crate) const fn new(flaw: &'static str) -> WorldError {
        WorldError { case: None, flaw }
    }
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(case) = &self.case {
            write!(f, "case {case}: ")?;
        }
        f.write_str(self.flaw)
    }
}

impl std::error::Error for WorldError {}

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNameError {
    /// What it should name: `policy` or `limiter`.
    pub kind: &'static str,
    /// The name as given.
    pub name: String,
    /// The names that are known.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guess = question(&self.name, &self.known);
        write!(f, "unknown {} `{}`{guess}; known are {}", self.kind, self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownNameError {}
