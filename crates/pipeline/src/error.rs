//! The error of everything that is checked before a run starts.
//!
//! A manifest, an option or a file is wrong, and only the user can correct it. So the program does
//! not distinguish kinds; the error carries the message that says what to change. Errors that
//! decide how a run continues have types of their own: [`crate::run::RunError`],
//! [`crate::step::StepError`], [`crate::sink::SinkError`], [`crate::source::SourceError`].

use std::fmt;

/// Why a part of a pipeline cannot be set up, and what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError(String);

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SetupError {}

impl From<String> for SetupError {
    fn from(message: String) -> SetupError {
        SetupError(message)
    }
}

impl From<&str> for SetupError {
    fn from(message: &str) -> SetupError {
        SetupError(message.to_owned())
    }
}

impl From<SetupError> for String {
    fn from(error: SetupError) -> String {
        error.0
    }
}
