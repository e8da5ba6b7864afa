//! Why a source cannot go on.

use std::fmt;
use tidegate_core::{Code, Wall};

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The job cannot work as given.
    Setup,
    /// The service, or what it sent, is at fault. The position before it stays good.
    Broken,
    /// The service wants no calls for longer than our patience.
    TryLater(Wall),
    /// The service is down or refuses for now: all attempts failed in a way that can heal by itself.
    Down,
    /// What was received is not what was declared.
    Mismatch,
    /// Our own disk. Nobody else is at fault.
    Disk,
}

/// Why a source cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// What can be done.
    pub trouble: Trouble,
    /// The code of the taxonomy.
    pub code: Code,
    /// What is wrong, where, and what to do next. Secrets are masked.
    pub message: String,
}

impl SourceError {
    /// The job cannot work as given.
    #[must_use]
    pub fn setup(message: impl Into<String>) -> SourceError {
        SourceError { trouble: Trouble::Setup, code: Code::BAD_REQUEST, message: message.into() }
    }

    /// The service is at fault.
    #[must_use]
    pub fn broken(code: Code, message: impl Into<String>) -> SourceError {
        SourceError { trouble: Trouble::Broken, code, message: message.into() }
    }

    /// What was received cannot be stored.
    #[must_use]
    pub fn disk(message: impl Into<String>) -> SourceError {
        SourceError { trouble: Trouble::Disk, code: Code::UNKNOWN, message: message.into() }
    }

    /// Whether it may only be that the service has forgotten a link.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        matches!(self.trouble, Trouble::Broken | Trouble::Down)
            && [Code::BAD_REQUEST, Code::NOT_FOUND, Code::UNPROCESSABLE, Code::SERVICE_EXCEPTION]
                .contains(&self.code)
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for SourceError {}
