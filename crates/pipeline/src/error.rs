//! The error of everything that is looked at before a run begins.
//!
//! A manifest, an option or a file is at fault, and only a person can mend that. So nothing in the
//! program decides by the kind of the error; it carries the sentence that says what to change.
//! Errors that decide how a run goes on have types of their own: [`crate::run::RunError`],
//! [`crate::step::StepError`], [`crate::sink::SinkError`], [`crate::source::SourceError`].

use std::fmt;

/// Why a part of a pipeline cannot be set up, in a sentence that says what to change.
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
