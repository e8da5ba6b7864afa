//! The exit codes: one meaning each, for every verb. A script decides by them.

use std::process::ExitCode;

use tidegate_ledger::letter::LetterError;

/// How a run of the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All done.
    Done = 0,
    /// Something failed that is none of the below.
    Failure = 1,
    /// The command line or the manifest is wrong; nothing was begun.
    Usage = 2,
    /// A gate halted the run; the batch in question was not committed.
    Halted = 3,
    /// Finished; some records are dead letters.
    DeadLetters = 4,
    /// Finished; an alert fired that the manifest wants told by the exit code.
    Alerted = 5,
    /// Stopped by the other side: try later.
    TryLater = 75,
}

/// The codes, for `--help`. `docs/exit-codes.md` says more.
pub(crate) const HELP: &str = "Exit codes: 0 success; 1 failure; 2 usage error or invalid manifest; \
3 halted by a gate; 4 finished with dead letters; 5 finished, but an alert fired; 75 a service is down or asked to wait, try again later.";

impl Exit {
    /// The same, unless all is done and an alert is to be told.
    pub(crate) fn or_alerted(self, alerted: bool) -> Exit {
        if alerted && self == Exit::Done { Exit::Alerted } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not work, and the exit code it ends with.
pub(crate) struct CommandFailure(pub(crate) Exit, pub(crate) String);

/// The command line asks for what cannot be done.
pub(crate) fn usage(why: impl Into<String>) -> CommandFailure {
    CommandFailure(Exit::Usage, why.into())
}

/// Something failed on our side.
pub(crate) fn failure(why: impl ToString) -> CommandFailure {
    CommandFailure(Exit::Failure, why.to_string())
}

impl From<LetterError> for CommandFailure {
    fn from(error: LetterError) -> CommandFailure {
        let exit = if matches!(error, LetterError::Refused(_)) { Exit::Usage } else { Exit::Failure };
        CommandFailure(exit, error.to_string())
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> CommandFailure {
        failure(error)
    }
}
