//! Why a queue cannot be used.

use std::fmt;

/// Why a queue cannot be used. No variant contains a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// It may work later: the server is down, restarts, or is overloaded.
    Unreachable(String),
    /// It will not work: wrong credentials, no permission, no such queue, a wrong URL.
    Refused(String),
    /// The message is larger than the server accepts.
    TooLarge {
        /// The size of the message in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The transport does not offer this.
    Unsupported(String),
}

impl QueueError {
    /// Whether the same operation may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, QueueError::Unreachable(_))
    }
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueError::Unreachable(what) => write!(f, "the queue cannot be reached: {what}"),
            QueueError::Refused(what) => write!(f, "the queue cannot be used: {what}"),
            QueueError::TooLarge { bytes, max } => write!(
                f,
                "the message has {bytes} bytes, but the queue accepts {max}; put the payload into an object store and refer to it with `object`"
            ),
            QueueError::Unsupported(what) => write!(f, "this queue does not support {what}"),
        }
    }
}

impl std::error::Error for QueueError {}
