//! The states of a letter and the allowed transitions.
//!
//! ```text
//! captured ──▶ scheduled (not before a time) ─┐
//!    │  └────▶ review ──▶ validated ──────────┼──▶ planned ──▶ resolved ─┐
//!    │           ▲  (a remedy or an edit)     │       │  └───▶ dead: a new letter, generation + 1
//!    │           └── a remedy was rejected    │       └──▶ back, when the plan is cancelled
//!    ├──▶ suspended (its pipeline has an incident) ──▶ captured
//!    └──▶ unrecoverable, dismissed ──────────────────────▶ archived ──▶ purged (a tombstone)
//! ```
//!
//! A legal hold blocks only the last transition. A planned letter belongs to its plan: a worker
//! holds a lease with a token, and only this token can complete the letter.

use core::fmt;
use core::str::FromStr;

/// The state of a letter. The numbers are stored in databases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LetterState {
    /// New and unchanged.
    #[default]
    Captured = 0,
    /// Not replayed before a scheduled time.
    Scheduled = 1,
    /// Needs a person: a remedy was rejected.
    Review = 2,
    /// A remedy or an edit changed it, and it passes the gates.
    Validated = 3,
    /// Its pipeline has an open incident.
    Suspended = 4,
    /// It cannot be repaired.
    Unrecoverable = 5,
    /// It belongs to a replay.
    Planned = 6,
    /// Its record is in the sink.
    Resolved = 7,
    /// The replay failed; a new letter replaces it.
    Dead = 8,
    /// A person decided that it needs no action.
    Dismissed = 9,
    /// Its payload is in the archive.
    Archived = 10,
}

impl LetterState {
    /// All states, in the order of their numbers.
    pub const ALL: [LetterState; 11] = [
        LetterState::Captured,
        LetterState::Scheduled,
        LetterState::Review,
        LetterState::Validated,
        LetterState::Suspended,
        LetterState::Unrecoverable,
        LetterState::Planned,
        LetterState::Resolved,
        LetterState::Dead,
        LetterState::Dismissed,
        LetterState::Archived,
    ];

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            LetterState::Captured => "captured",
            LetterState::Scheduled => "scheduled",
            LetterState::Review => "review",
            LetterState::Validated => "validated",
            LetterState::Suspended => "suspended",
            LetterState::Unrecoverable => "unrecoverable",
            LetterState::Planned => "planned",
            LetterState::Resolved => "resolved",
            LetterState::Dead => "dead",
            LetterState::Dismissed => "dismissed",
            LetterState::Archived => "archived",
        }
    }

    /// The state with this number.
    #[must_use]
    pub fn from_number(n: i64) -> Option<LetterState> {
        usize::try_from(n).ok().and_then(|n| LetterState::ALL.get(n)).copied()
    }

    /// Whether the letter still needs action.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !matches!(
            self,
            LetterState::Resolved | LetterState::Dead | LetterState::Dismissed | LetterState::Archived
        )
    }

    /// Whether a remedy or an edit may change the letter.
    #[must_use]
    pub const fn is_mendable(self) -> bool {
        matches!(
            self,
            LetterState::Captured
                | LetterState::Scheduled
                | LetterState::Review
                | LetterState::Validated
                | LetterState::Unrecoverable
        )
    }

    /// Whether a replay may include the letter.
    #[must_use]
    pub const fn is_replayable(self) -> bool {
        matches!(self, LetterState::Captured | LetterState::Scheduled | LetterState::Validated)
    }

    /// Whether the transition from this state to `next` is allowed.
    #[must_use]
    pub fn may_become(self, next: LetterState) -> bool {
        match next {
            LetterState::Planned => self.is_replayable(),
            LetterState::Resolved | LetterState::Dead => self == LetterState::Planned,
            LetterState::Scheduled
            | LetterState::Review
            | LetterState::Validated
            | LetterState::Unrecoverable => self.is_mendable(),
            LetterState::Dismissed => self.is_open() && self != LetterState::Planned,
            LetterState::Archived => self != LetterState::Planned && self != LetterState::Archived,
            LetterState::Suspended => self == LetterState::Captured,
            LetterState::Captured => self == LetterState::Suspended,
        }
    }
}

impl fmt::Display for LetterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for LetterState {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<LetterState, &'static str> {
        LetterState::ALL.into_iter().find(|state| state.as_str() == text).ok_or(
            "unknown state; expected one of captured, scheduled, review, validated, suspended, unrecoverable, planned, \
             resolved, dead, dismissed, archived",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for (n, state) in LetterState::ALL.into_iter().enumerate() {
            assert_eq!((state as usize, LetterState::from_number(n as i64)), (n, Some(state)));
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert_eq!((LetterState::from_number(-1), LetterState::from_number(11)), (None, None));
    }

    #[test]
    fn what_is_in_a_replay_is_left_alone_by_everybody_else() {
        let from_planned: alloc::vec::Vec<_> =
            LetterState::ALL.into_iter().filter(|next| LetterState::Planned.may_become(*next)).collect();
        assert_eq!(from_planned, [LetterState::Resolved, LetterState::Dead]);
        for closed in
            [LetterState::Resolved, LetterState::Dead, LetterState::Dismissed, LetterState::Archived]
        {
            assert!(!closed.is_open() && !closed.may_become(LetterState::Planned) && !closed.is_mendable());
        }
    }
}
