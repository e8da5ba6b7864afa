//! The exit codes. Each has one meaning for all commands, so that scripts can rely on them.

use tidegate_ledger::letter::LetterError;
use tidegate_pipeline::run::RunError;
use tidegate_pipeline::sink::SinkError;
use tidegate_queue::QueueError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Done = 0,
    /// Another failure on our side.
    Failure = 1,
    /// The command line or the manifest is invalid; nothing was started.
    Usage = 2,
    /// A gate halted the run; its batch was not committed.
    Halted = 3,
    /// Finished; some records are dead letters.
    DeadLetters = 4,
    /// Finished; an alert fired for which the manifest requests an exit code.
    Alerted = 5,
    /// The remote side is unavailable: try again later.
    TryLater = 75,
}

/// The codes, for `--help`; `docs/exit-codes.md` has the details.
pub(crate) const HELP: &str = "Exit codes: 0 success; 1 failure; 2 usage error or invalid manifest; \
3 halted by a gate; 4 finished with dead letters; 5 finished, but an alert fired; 75 a service is down or asked to wait, try again later.";

impl Exit {
    /// `Alerted` if all was successful but an alert asks for an exit code.
    pub(crate) fn or_alerted(self, alerted: bool) -> Exit {
        if alerted && self == Exit::Done { Exit::Alerted } else { self }
    }
}

impl From<&LetterError> for Exit {
    fn from(error: &LetterError) -> Exit {
        match error {
            LetterError::Refused(_) => Exit::Usage,
            LetterError::Unreachable(_) => Exit::TryLater,
            LetterError::Store(_)
            | LetterError::Full(_)
            | LetterError::Fenced(_)
            | LetterError::Sealed(_) => Exit::Failure,
        }
    }
}

impl From<&RunError> for Exit {
    fn from(error: &RunError) -> Exit {
        match error {
            RunError::Setup(_) => Exit::Usage,
            RunError::Later(_) | RunError::SinkUnavailable(_) | RunError::Service { until: Some(_), .. } => {
                Exit::TryLater
            }
            RunError::Service { until: None, .. } | RunError::Stopped | RunError::Broken(_) => Exit::Failure,
        }
    }
}

/// Why a command failed, and its exit code.
pub(crate) struct CommandFailure(pub(crate) Exit, pub(crate) String);

/// A usage error.
pub(crate) fn usage(why: impl Into<String>) -> CommandFailure {
    CommandFailure(Exit::Usage, why.into())
}

/// A failure on our side.
pub(crate) fn failure(why: impl ToString) -> CommandFailure {
    CommandFailure(Exit::Failure, why.to_string())
}

impl From<LetterError> for CommandFailure {
    fn from(error: LetterError) -> CommandFailure {
        CommandFailure(Exit::from(&error), error.to_string())
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> CommandFailure {
        failure(error)
    }
}

impl From<QueueError> for CommandFailure {
    fn from(error: QueueError) -> CommandFailure {
        let exit = match &error {
            QueueError::Unreachable(_) => Exit::TryLater,
            QueueError::Refused(_) | QueueError::Unsupported(_) => Exit::Usage,
            QueueError::TooLarge { .. } => Exit::Failure,
        };
        CommandFailure(exit, error.to_string())
    }
}

impl From<SinkError> for CommandFailure {
    fn from(error: SinkError) -> CommandFailure {
        let exit = match &error {
            SinkError::Transient { .. } => Exit::TryLater,
            SinkError::Fatal(_) => Exit::Failure,
        };
        CommandFailure(exit, format!("the sink: {error}"))
    }
}
