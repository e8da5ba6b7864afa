//! The taxonomy: one code per kind of failure.
//!
//! Triage groups by code, remedies apply to codes, and users filter by code, so a code must be the
//! same in logs, manifests, metrics and old databases. Hence a code is its own name: up to 31 bytes
//! of `A-Z 0-9 _`, stored inline and cheap to copy. The well-known codes are constants with a meaning
//! in [`KNOWN`]; [`Code::new`] creates others without a change to this file.

use core::fmt;
use core::str::FromStr;

/// A code of the taxonomy, such as `RATE_LIMITED`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// The name, padded with zeros.
    bytes: [u8; Code::MAX_LEN],
    /// The length of the name, in bytes.
    len: u8,
}

impl Code {
    /// The maximum length of a name, in bytes.
    pub const MAX_LEN: usize = 31;

    /// The code with this name; `None` if the name is empty or too long, does not start with a
    /// letter, or contains anything but `A-Z 0-9 _`.
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

    /// The meaning of a well-known code, as one sentence.
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
        f.write_str("a code must be 1 to 31 characters of A-Z, 0-9 and _, starting with a letter")
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
    OK "The response is as requested."
    NO_MATCH "The service responded, and has no result for this record."
    RATE_LIMITED "The service asked for fewer calls; waiting helps."
    QUOTA_EXHAUSTED "The quota is exhausted until a date or a payment; retrying now does not help."
    SERVICE_UNAVAILABLE "The service is temporarily unavailable (503)."
    BAD_GATEWAY "A proxy got an invalid response from the service (502)."
    GATEWAY_TIMEOUT "A proxy waited too long for the service (504)."
    INTERNAL_ERROR "The service had an internal error (500)."
    TIMEOUT "No response within the timeout of one attempt."
    CONNECTION_REFUSED "The connection was refused."
    CONNECTION_RESET "The connection was lost before the response was complete."
    DNS_FAILURE "The host name could not be resolved."
    TLS_FAILURE "No trusted TLS connection could be made."
    TRUNCATED_BODY "The body ended before it was complete."
    BAD_REQUEST "The service rejected the request as malformed (400)."
    UNAUTHORIZED "The credential is missing or wrong (401)."
    FORBIDDEN "The credential has no permission for this (403)."
    NOT_FOUND "There is no such resource (404, 410)."
    CONFLICT "The resource has changed (409, 412)."
    UNPROCESSABLE "The service understood the request and rejected its content (422)."
    PAYLOAD_TOO_LARGE "The request or the response exceeds a size limit (413)."
    UNEXPECTED_STATUS "A status without a rule."
    UNEXPECTED_REDIRECT "A redirect that is not allowed."
    SERVICE_EXCEPTION "The body of a successful response contains an error of the service."
    UNEXPECTED_BODY "The body does not have the documented format."
    HOST_NOT_ALLOWED "The manifest does not allow this address."
    OBJECT_NOT_ALLOWED "The manifest does not allow opening this path or address, which came in data."
    PATH_NOT_ALLOWED "A value would lead the request to another path of the service."
    PAGE_LOOP "The paging of a service loops."
    COUNT_MISMATCH "The number of records received is not the number declared."
    CRS_NOT_FOUND "The coordinate reference system is missing or unknown."
    CRS_MISMATCH "The coordinates cannot be in the declared coordinate reference system, or several are declared."
    INVALID_GEOMETRY "The geometry is invalid for its type."
    REPAIR_TOO_COSTLY "Checking or repairing the geometry would take more work than the limits allow."
    LIMIT_EXCEEDED "The file or the record needs more work, rows or bytes than the limits allow."
    OUT_OF_BOUNDS "The geometry is outside the allowed area."
    AXIS_ORDER_SWAPPED "Longitude and latitude are swapped."
    UNCLOSED_RING "A ring is not closed."
    WRONG_WINDING "A ring has the wrong orientation."
    CORRUPTED_HEADER "The file header cannot be read."
    CORRUPTED_BLOCK "A block of the raster does not unpack to its pixels."
    UNSUPPORTED_RASTER "The raster is of a kind that is not read."
    SCHEMA_MISMATCH "A field is missing, unexpected or has another type."
    CONSTRAINT_VIOLATION "The database rejected the row (SQLSTATE class 23)."
    DATA_EXCEPTION "The database cannot hold the value (SQLSTATE class 22)."
    SERIALIZATION_FAILURE "A concurrent transaction won (SQLSTATE 40001, 40P01)."
    DATABASE_UNAVAILABLE "The database is temporarily unavailable (SQLSTATE classes 08, 53, 57, 58)."
    DATABASE_ERROR "The database rejected the statement."
    CIRCUIT_OPEN "The circuit breaker blocks calls to a failing service."
    DEADLINE_EXCEEDED "The deadline of this record has passed."
    BUDGET_EXHAUSTED "The retry budget of the lane is exhausted."
    CANCELLED "The run was interrupted."
    TASK_INVALID "A message of the queue is not a geotask."
    TASK_KIND_UNKNOWN "No pipeline of the worker takes tasks of this kind."
    TASK_EXPIRED "The time of the task was over before a worker had it."
    TASK_BLOCKED "A task that must be done before is dead or cancelled."
    PROCESS_CRASHED "The process died repeatedly while it processed this record."
    ERROR_DOCUMENT "The file is an error message of a service, saved under the name of the data."
    UNKNOWN "A failure without further information."
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
