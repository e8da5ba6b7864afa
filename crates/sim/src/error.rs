//! Why a world cannot be built, and why a name is not known.

use std::fmt;

use tidegate_core::suggest::question;

/// A section of a scenario that describes no possible world.
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

/// A name that stands for nothing here.
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
