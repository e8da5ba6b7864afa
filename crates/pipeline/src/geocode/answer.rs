//! How a row ended, and the form in which that is kept in the cache.
//!
//! What is kept of an answer is the response itself, so that a profile that reads more from it
//! next year finds it there. What is kept of a failure is its code and message.

use crate::profile::{GeocodeCandidate, Profile, Sniffed};
use crate::telemetry::Ended;
use std::time::Duration;
use tidegate_core::Code;
use tidegate_core::signal::Means;

/// How a row ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Matched, no match, or failed.
    pub ended: Ended,
    /// The best answer of a match.
    pub answer: Option<GeocodeCandidate>,
    /// `OK`, `NO_MATCH`, or why it failed.
    pub code: Code,
    /// Why it failed, in words.
    pub message: String,
    /// Attempts made for it in this run.
    pub attempts: u32,
    /// From the first question to the end.
    pub elapsed: Duration,
    /// It cost no call in this run.
    pub cached: bool,
    /// The attempts, if it failed in this run.
    pub tried: Vec<crate::letter::LetterAttempt>,
}

impl Finished {
    /// What a success means; `None` if the body says that it is none.
    pub(super) fn of(read: Sniffed) -> Option<Finished> {
        let (ended, code) = match (read.finding, read.answers.is_empty()) {
            (None, false) => (Ended::Matched, Code::OK),
            (None, true) => (Ended::NoMatch, Code::NO_MATCH),
            (Some(found), _) if found.means == Means::NoMatch => (Ended::NoMatch, found.code),
            (Some(_), _) => return None,
        };
        let answer = read.answers.into_iter().next();
        Some(Finished { ended, answer, code, ..Finished::failed(code, String::new()) })
    }

    /// A row that could not be asked.
    #[must_use]
    pub fn failed(code: Code, message: String) -> Finished {
        Finished {
            ended: Ended::Failed,
            answer: None,
            code,
            message,
            attempts: 0,
            elapsed: Duration::ZERO,
            cached: false,
            tried: Vec::new(),
        }
    }
}

/// What the cache holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// A success as the service sent it.
    Response {
        /// Its status.
        status: u16,
        /// Its content type, empty if it had none.
        content_type: String,
        /// Its body.
        body: Vec<u8>,
    },
    /// A failure for good.
    Failure {
        /// Its code.
        code: Code,
        /// Its message.
        message: String,
    },
}

impl Kept {
    /// The bytes for the cache: a tag, two length-prefixed texts, the rest.
    #[must_use]
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (tag, number, text, rest): (u8, u16, &str, &[u8]) = match self {
            Kept::Response { status, content_type, body } => (1, *status, content_type, body),
            Kept::Failure { code, message } => (2, 0, code.as_str(), message.as_bytes()),
        };
        let text = text.get(..text.len().min(255)).unwrap_or_default();
        let mut out = Vec::with_capacity(4 + text.len() + rest.len());
        out.push(tag);
        out.extend_from_slice(&number.to_le_bytes());
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(rest);
        out
    }

    /// What was kept; `None` if another version wrote something else.
    #[must_use]
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Kept> {
        let (&[tag, low, high, len], rest) = bytes.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(usize::from(len))?;
        let text = std::str::from_utf8(text).ok()?;
        match tag {
            1 => Some(Kept::Response {
                status: u16::from_le_bytes([low, high]),
                content_type: text.to_string(),
                body: rest.to_vec(),
            }),
            2 => Some(Kept::Failure {
                code: text.parse().ok()?,
                message: String::from_utf8_lossy(rest).into_owned(),
            }),
            _ => None,
        }
    }

    /// How the row ends by this, as the profile reads it now. `None` if the profile no longer
    /// takes the response for an answer: then it is asked again.
    #[must_use]
    pub(super) fn finish(self, profile: &Profile) -> Option<Finished> {
        match self {
            Kept::Response { status, content_type, body } => {
                let content_type = (!content_type.is_empty()).then_some(content_type.as_str());
                Finished::of(profile.read(status, content_type, &body))
            }
            Kept::Failure { code, message } => Some(Finished::failed(code, message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_kept_comes_back() {
        for kept in [
            Kept::Response {
                status: 200,
                content_type: "application/json".into(),
                body: b"{\"a\":1}".to_vec(),
            },
            Kept::Response { status: 204, content_type: String::new(), body: Vec::new() },
            Kept::Failure { code: Code::BAD_REQUEST, message: "no such street: é".into() },
        ] {
            assert_eq!(Kept::from_bytes(&kept.to_bytes()), Some(kept));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Kept::from_bytes(&bytes);
        }
    }
}
