//! The taxonomy: one code per thing that can go wrong.
//!
//! A code is what triage groups by, what remedies are keyed by and what a person types in a
//! filter, so it must read the same in a log, a manifest, a metric and a database of last year.
//! Hence a code is its own name: up to 31 bytes of `A-Z 0-9 _`, kept inline, copied freely. The
//! well-known ones are constants with a meaning in [`KNOWN`]; anybody may add another with
//! [`Code::new`] without touching this file.

use core::fmt;
use core::str::FromStr;

/// A code of the taxonomy, such as `RATE_LIMITED`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    bytes: [u8; Code::MAX_LEN],
    len: u8,
}

impl Code {
    /// The longest name.
    pub const MAX_LEN: usize = 31;

    /// The code of this name, or `None` if it is empty, too long, or holds anything but
    /// `A-Z 0-9 _` starting with a letter.
    #[must_use]
    pub const fn new(name: &str) -> Option<Code> {
        let from = name.as_bytes();
        if from.is_empty() || from.len() > Code::MAX_LEN || !from[0].is_ascii_uppercase() {
            return None;
        }
        let mut bytes = [0; Code::MAX_LEN];
        let mut i = 0;
        while i < from.len() {
            let b = from[i];
            if !(b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') {
                return None;
            }
            bytes[i] = b;
            i += 1;
        }
        Some(Code { bytes, len: from.len() as u8 })
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..usize::from(self.len)).and_then(|b| core::str::from_utf8(b).ok()).unwrap_or_default()
    }

    /// What a well-known code means, in one sentence.
    #[must_use]
    pub fn meaning(&self) -> Option<&'static str> {
        KNOWN.iter().find(|(code, _)| code == self).map(|(_, meaning)| *meaning)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text is not a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotACode;

impl fmt::Display for NotACode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a code is 1 to 31 of A-Z, 0-9 and _, and starts with a letter")
    }
}

impl core::error::Error for NotACode {}

impl FromStr for Code {
    type Err = NotACode;
    fn from_str(name: &str) -> Result<Code, NotACode> {
        Code::new(name).ok_or(NotACode)
    }
}

macro_rules! codes {
    ($($name:ident $meaning:literal)*) => {
        impl Code {
            $(
                #[doc = $meaning]
                pub const $name: Code = match Code::new(stringify!($name)) {
                    Some(code) => code,
                    None => unreachable!(),
                };
            )*
        }

        /// The well-known codes with their meanings.
        pub const KNOWN: &[(Code, &str)] = &[$((Code::$name, $meaning)),*];
    };
}

codes! {
    OK "The answer is what was asked for."
    NO_MATCH "The service answered, and has nothing for this record."
    RATE_LIMITED "The service asked for fewer calls; waiting heals it."
    QUOTA_EXHAUSTED "The quota is spent until a date or a payment; retrying now does not help."
    SERVICE_UNAVAILABLE "The service said that it cannot serve now (503)."
    BAD_GATEWAY "A proxy got no good answer from the service (502)."
    GATEWAY_TIMEOUT "A proxy waited too long for the service (504)."
    INTERNAL_ERROR "The service failed inside (500)."
    TIMEOUT "No answer within the time of one attempt."
    CONNECTION_REFUSED "Nothing listens there."
    CONNECTION_RESET "The connection broke before the answer was complete."
    DNS_FAILURE "The name of the host could not be resolved."
    TLS_FAILURE "No trusted connection could be made."
    TRUNCATED_BODY "The body ended before it was complete."
    BAD_REQUEST "The service refused the request as malformed (400)."
    UNAUTHORIZED "The credential is missing or wrong (401)."
    FORBIDDEN "The credential may not do this (403)."
    NOT_FOUND "There is no such resource (404, 410)."
    CONFLICT "The resource changed meanwhile (409, 412)."
    UNPROCESSABLE "The service understood the request and refused its content (422)."
    PAYLOAD_TOO_LARGE "The request or the answer is over a size limit (413)."
    UNEXPECTED_STATUS "A status that no rule names."
    UNEXPECTED_REDIRECT "A redirect that may not be followed."
    SERVICE_EXCEPTION "The body of a success carried the service's own error."
    UNEXPECTED_BODY "The body is not of the form that the service documents."
    HOST_NOT_ALLOWED "The address is outside what the manifest allows."
    PAGE_LOOP "The pages of a service lead in circles."
    COUNT_MISMATCH "What was received is not what the source declared."
    CRS_NOT_FOUND "The coordinate reference system is missing or unknown."
    CRS_MISMATCH "The coordinates cannot be in the system that they are said to be in, or several are named."
    INVALID_GEOMETRY "The geometry breaks a rule of its type."
    REPAIR_TOO_COSTLY "To make the geometry valid would take more time or memory than it may."
    OUT_OF_BOUNDS "The geometry lies outside the area that it may lie in."
    AXIS_ORDER_SWAPPED "Latitude stands where longitude should."
    UNCLOSED_RING "A ring does not end where it begins."
    WRONG_WINDING "A ring runs the wrong way round."
    CORRUPTED_HEADER "The file's header cannot be read."
    SCHEMA_MISMATCH "A field is missing, extra or of another type."
    CONSTRAINT_VIOLATION "The database refused the row (SQLSTATE class 23)."
    DATA_EXCEPTION "The database cannot hold the value (SQLSTATE class 22)."
    SERIALIZATION_FAILURE "A concurrent transaction won (SQLSTATE 40001, 40P01)."
    DATABASE_UNAVAILABLE "The database cannot serve now (SQLSTATE classes 08, 53, 57, 58)."
    DATABASE_ERROR "The database refused the statement."
    CIRCUIT_OPEN "The breaker keeps calls away from a failing service."
    DEADLINE_EXCEEDED "The time for this record is used up."
    BUDGET_EXHAUSTED "The retry budget of the lane is spent."
    CANCELLED "The work was stopped from outside."
    PROCESS_CRASHED "The process died while it worked on this record, again and again."
    UNKNOWN "A failure that carried no more than its own existence."
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_round_trip() {
        for (code, meaning) in KNOWN {
            assert_eq!(code.as_str().parse(), Ok(*code));
            assert_eq!(code.meaning(), Some(*meaning));
            assert!(meaning.ends_with('.'));
        }
        assert_eq!(Code::RATE_LIMITED.to_string(), "RATE_LIMITED");
    }

    #[test]
    fn anybody_may_add_a_code_but_not_any_text() {
        assert_eq!(Code::new("TILE_IS_PLACEHOLDER").map(|c| c.as_str().len()), Some(19));
        assert_eq!(Code::new("TILE_IS_PLACEHOLDER").and_then(|c| c.meaning()), None);
        for bad in ["", "lower", "9TH", "_X", "WITH SPACE", "ÄÖ", "A234567890123456789012345678901X"] {
            assert_eq!(bad.parse::<Code>(), Err(NotACode), "{bad}");
        }
    }
}
