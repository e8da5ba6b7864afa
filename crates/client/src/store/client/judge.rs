//! Classifies the responses of a store.

use super::wire::ObservedExchange;
use std::error::Error as _;
use std::io;
use tidegate_core::classify::Classifier;
use tidegate_core::hint::Hints;
use tidegate_core::signal::{Finding, Means, Network, Signal};
use tidegate_core::{Code, Mono, Verdict, VerdictKind};

/// The error of one attempt.
#[derive(Debug)]
pub(super) enum StoreFault {
    /// An error of the object store.
    Store(object_store::Error),
    /// A body shorter than its declared length.
    Cut,
}

impl From<object_store::Error> for StoreFault {
    fn from(error: object_store::Error) -> StoreFault {
        StoreFault::Store(error)
    }
}

/// The verdict about one attempt, its hints, and a short description.
pub(super) fn judge(
    classifier: &Classifier,
    fault: Option<&StoreFault>,
    seen: Option<ObservedExchange>,
    now: Mono,
) -> (Verdict, Hints, String) {
    let (signal, hints, words) = match (seen, fault) {
        (_, Some(StoreFault::Cut)) => {
            (Signal::Network(Network::Truncated), Hints::default(), "the object is truncated".to_owned())
        }
        (Some(ObservedExchange::Credential(fault)), _) => {
            (Signal::Task(fault.finding), Hints::default(), fault.words)
        }
        (Some(ObservedExchange::Failure(failure)), _) => {
            (failure.signal(), Hints::default(), failure.to_string())
        }
        (Some(ObservedExchange::Answer { status, finding, hints, word }), fault) => {
            let odd = (200..300).contains(&status) && finding.is_none();
            let finding = match fault {
                // Azure deletes in batches, and answers 202 with what became of each.
                Some(StoreFault::Store(object_store::Error::NotFound { .. })) if odd => {
                    Some(finding_of(Means::Permanent, Code::NOT_FOUND))
                }
                Some(_) if odd => Some(finding_of(Means::Transient, Code::UNEXPECTED_BODY)),
                _ => finding,
            };
            let words = match word {
                Some(word) => format!("{status} {word}"),
                None => status.to_string(),
            };
            (Signal::Http { status, finding }, *hints, words)
        }
        (None, Some(StoreFault::Store(error))) => {
            let (finding, words) = embedded(error);
            (Signal::Task(finding), Hints::default(), words)
        }
        (None, None) => return (Verdict::DONE, Hints::default(), String::new()),
    };
    let mut verdict = classifier.classify(&signal, &hints, now);
    // In a pipeline, a missing object is a failure, not an empty answer.
    if verdict.kind == VerdictKind::NoMatch {
        (verdict.kind, verdict.code) = (VerdictKind::Permanent, Code::NOT_FOUND);
    }
    (verdict, hints, words)
}

/// Whether these words of a store say that the bucket does not exist.
pub(super) fn is_missing_bucket(words: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound"].iter().any(|code| words.ends_with(code))
}

const fn finding_of(means: Means, code: Code) -> Finding {
    Finding { means, code }
}

/// The meaning of an error without an HTTP response: of files, of memory, or of the library itself.
fn embedded(error: &object_store::Error) -> (Finding, String) {
    use object_store::Error as E;
    let permanent = |code| finding_of(Means::Permanent, code);
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return (of_io(io), io.to_string());
        }
        cause = inner.source();
    }
    let finding = match error {
        E::NotFound { .. } => permanent(Code::NOT_FOUND),
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => permanent(Code::CONFLICT),
        E::PermissionDenied { .. } => permanent(Code::FORBIDDEN),
        E::Unauthenticated { .. } => permanent(Code::UNAUTHORIZED),
        _ => permanent(Code::BAD_REQUEST),
    };
    let words = match error {
        E::NotFound { .. } => "no such object",
        E::AlreadyExists { .. } => "the object already exists",
        E::Precondition { .. } | E::NotModified { .. } => "the object has changed",
        E::NotSupported { .. } | E::NotImplemented { .. } => "not supported by this store",
        E::InvalidPath { .. } => "the store contains an invalid key",
        _ => "the store rejected the request",
    };
    (finding, words.to_owned())
}

fn of_io(error: &io::Error) -> Finding {
    use io::ErrorKind as K;
    match error.kind() {
        K::NotFound | K::NotADirectory => finding_of(Means::Permanent, Code::NOT_FOUND),
        K::AlreadyExists => finding_of(Means::Permanent, Code::CONFLICT),
        K::PermissionDenied | K::ReadOnlyFilesystem => finding_of(Means::Permanent, Code::FORBIDDEN),
        K::Interrupted | K::WouldBlock | K::TimedOut | K::ResourceBusy => {
            finding_of(Means::Transient, Code::TIMEOUT)
        }
        // Disk full, file name too long, disk error: a retry does not help.
        _ => finding_of(Means::Permanent, Code::UNPROCESSABLE),
    }
}
