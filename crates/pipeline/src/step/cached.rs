//! What the response cache holds of a reply.
//!
//! Of an answer it is the response itself, so that a profile that reads more from it next year
//! finds it there. Of a failure it is all that its dead letter tells; only the run that met the
//! failure takes it from there, so that a resumed run does not pay for it twice.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tidegate_core::Code;

use super::window::CallHistory;

/// A reply as the response cache holds it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CachedReply {
    /// A success as the service sent it.
    Response {
        /// Its status.
        status: u16,
        /// Its content type, empty if it had none.
        content_type: String,
        /// Its body.
        body: Vec<u8>,
    },
    /// A failure.
    Failure {
        /// Its code.
        code: Code,
        /// Its message.
        message: String,
        /// Its attempts.
        history: CallHistory,
    },
}

/// The part of a failure that is stored as JSON.
#[derive(Serialize, Deserialize)]
struct FailureDetail<'a> {
    message: Cow<'a, str>,
    history: Cow<'a, CallHistory>,
}

impl CachedReply {
    /// The bytes for the cache: a tag, a status, a length-prefixed text, the rest.
    #[must_use]
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            CachedReply::Response { status, content_type, body } => {
                framed(RESPONSE, *status, content_type, body)
            }
            CachedReply::Failure { code, message, history } => {
                let detail =
                    FailureDetail { message: message.as_str().into(), history: Cow::Borrowed(history) };
                // Texts and numbers always have a JSON form.
                let detail = serde_json::to_vec(&detail).unwrap_or_default();
                framed(FAILURE, 0, code.as_str(), &detail)
            }
        }
    }

    /// What was stored; `None` if another version wrote something else.
    #[must_use]
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<CachedReply> {
        let (&[tag, low, high, len], rest) = bytes.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(usize::from(len))?;
        let text = std::str::from_utf8(text).ok()?;
        match tag {
            RESPONSE => Some(CachedReply::Response {
                status: u16::from_le_bytes([low, high]),
                content_type: text.to_string(),
                body: rest.to_vec(),
            }),
            FAILURE => {
                let detail: FailureDetail<'_> = serde_json::from_slice(rest).ok()?;
                Some(CachedReply::Failure {
                    code: text.parse().ok()?,
                    message: detail.message.into_owned(),
                    history: detail.history.into_owned(),
                })
            }
            _ => None,
        }
    }
}

const RESPONSE: u8 = 1;
/// 2 was a failure without its attempts; it is asked for again.
const FAILURE: u8 = 3;

fn framed(tag: u8, number: u16, text: &str, rest: &[u8]) -> Vec<u8> {
    let text = text.get(..text.len().min(255)).unwrap_or_default();
    let mut out = Vec::with_capacity(4 + text.len() + rest.len());
    out.push(tag);
    out.extend_from_slice(&number.to_le_bytes());
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::LetterAttempt;
    use proptest::prelude::*;

    #[test]
    fn what_is_stored_is_found() {
        for reply in [
            CachedReply::Response {
                status: 200,
                content_type: "application/json".into(),
                body: b"{\"a\":1}".to_vec(),
            },
            CachedReply::Response { status: 204, content_type: String::new(), body: Vec::new() },
            CachedReply::Failure {
                code: Code::BAD_REQUEST,
                message: "no such street: é".into(),
                history: CallHistory {
                    attempts: vec![LetterAttempt { at_ms: 5, status: Some(400), ..LetterAttempt::default() }],
                    not_before_ms: Some(1_794_884_407_179),
                },
            },
        ] {
            assert_eq!(CachedReply::from_bytes(&reply.to_bytes()), Some(reply));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = CachedReply::from_bytes(&bytes);
        }
    }
}
