//! The class of a failure: which kind of repair it needs.
//!
//! | class | meaning | repair |
//! |---|---|---|
//! | transient | the service or database failed temporarily | replay, perhaps later |
//! | fatal | this record is rejected as it is | a remedy or an edit |
//! | poison | the record crashes the process | inspect before processing it again |
//! | systemic | every record would fail alike | fix the cause once, then replay all |
//! | ambiguous | it is unknown whether the call took effect | replay only by decision of a person |

use crate::call::GiveUpReason;
use crate::taxonomy::Code;
use core::fmt;
use core::str::FromStr;

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// The service or database failed temporarily.
    Transient,
    /// This record is rejected as it is.
    Fatal,
    /// The record crashes the process.
    Poison,
    /// Every record would fail alike.
    Systemic,
    /// It is unknown whether the call took effect.
    Ambiguous,
}

impl FailureClass {
    /// All classes.
    pub const ALL: [FailureClass; 5] = [
        FailureClass::Transient,
        FailureClass::Fatal,
        FailureClass::Poison,
        FailureClass::Systemic,
        FailureClass::Ambiguous,
    ];

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureClass::Transient => "transient",
            FailureClass::Fatal => "fatal",
            FailureClass::Poison => "poison",
            FailureClass::Systemic => "systemic",
            FailureClass::Ambiguous => "ambiguous",
        }
    }

    /// The class of a failure by its code and, if known, by the reason for giving up.
    #[must_use]
    pub fn of(code: Code, why: Option<GiveUpReason>) -> FailureClass {
        const HEALS: [Code; 18] = [
            Code::RATE_LIMITED,
            Code::QUOTA_EXHAUSTED,
            Code::SERVICE_UNAVAILABLE,
            Code::BAD_GATEWAY,
            Code::GATEWAY_TIMEOUT,
            Code::INTERNAL_ERROR,
            Code::TIMEOUT,
            Code::CONNECTION_REFUSED,
            Code::CONNECTION_RESET,
            Code::DNS_FAILURE,
            Code::TRUNCATED_BODY,
            Code::SERIALIZATION_FAILURE,
            Code::DATABASE_UNAVAILABLE,
            Code::CIRCUIT_OPEN,
            Code::DEADLINE_EXCEEDED,
            Code::BUDGET_EXHAUSTED,
            Code::CANCELLED,
            Code::CONFLICT,
        ];
        const ALL_ALIKE: [Code; 5] = [
            Code::UNAUTHORIZED,
            Code::FORBIDDEN,
            Code::TLS_FAILURE,
            Code::HOST_NOT_ALLOWED,
            Code::OBJECT_NOT_ALLOWED,
        ];
        match code {
            _ if why == Some(GiveUpReason::NotRepeatable) => FailureClass::Ambiguous,
            Code::PROCESS_CRASHED => FailureClass::Poison,
            code if ALL_ALIKE.contains(&code) => FailureClass::Systemic,
            code if HEALS.contains(&code) => FailureClass::Transient,
            _ => FailureClass::Fatal,
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for FailureClass {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<FailureClass, &'static str> {
        let found = FailureClass::ALL.into_iter().find(|class| class.as_str() == text);
        found.ok_or("unknown class; expected one of transient, fatal, poison, systemic, ambiguous")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::taxonomy::KNOWN;

    #[test]
    fn every_code_has_a_class_and_names_round_trip() {
        for class in FailureClass::ALL {
            assert_eq!(class.as_str().parse(), Ok(class));
        }
        let count = |class| KNOWN.iter().filter(|(code, _)| FailureClass::of(*code, None) == class).count();
        assert_eq!(
            [FailureClass::Transient, FailureClass::Poison, FailureClass::Systemic].map(count),
            [18, 1, 5]
        );
        assert_eq!(
            FailureClass::of(Code::TIMEOUT, Some(GiveUpReason::NotRepeatable)),
            FailureClass::Ambiguous
        );
        assert_eq!(
            FailureClass::of(Code::INVALID_GEOMETRY, Some(GiveUpReason::Permanent)),
            FailureClass::Fatal
        );
    }
}
