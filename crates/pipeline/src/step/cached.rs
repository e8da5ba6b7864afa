//! What the response cache holds of a reply.
//!
//! Of an answer it is the response itself, so that a profile that reads more from it next year
//! finds it there. Of a failure it is the code and the message; only the run that met the failure
//! takes it from there, so that a resumed run does not pay for it twice.

use tidegate_core::Code;

/// A reply as the response cache holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    },
}

impl CachedReply {
    /// The bytes for the cache: a tag, a status, a length-prefixed text, the rest.
    #[must_use]
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (tag, number, text, rest): (u8, u16, &str, &[u8]) = match self {
            CachedReply::Response { status, content_type, body } => (1, *status, content_type, body),
            CachedReply::Failure { code, message } => (2, 0, code.as_str(), message.as_bytes()),
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

    /// What was stored; `None` if another version wrote something else.
    #[must_use]
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<CachedReply> {
        let (&[tag, low, high, len], rest) = bytes.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(usize::from(len))?;
        let text = std::str::from_utf8(text).ok()?;
        match tag {
            1 => Some(CachedReply::Response {
                status: u16::from_le_bytes([low, high]),
                content_type: text.to_string(),
                body: rest.to_vec(),
            }),
            2 => Some(CachedReply::Failure {
                code: text.parse().ok()?,
                message: String::from_utf8_lossy(rest).into_owned(),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            CachedReply::Failure { code: Code::BAD_REQUEST, message: "no such street: é".into() },
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
