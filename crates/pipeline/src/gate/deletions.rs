//! Whether a run with `mode: sync` may delete the rows that the source no longer has.
//!
//! A row is deleted only if the source is known not to have its record: everything was read, and every
//! record that was rejected has a known key. More rows than `max_deleted` halt the run.

use super::Halt;
use crate::sink::AbsentRows;
use crate::source::CountTolerance;

/// The share of the rows that may be deleted by default.
pub(crate) const MAX_DELETED: CountTolerance = CountTolerance { features: 0, share: 0.1 };

/// What is known at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Deletions {
    /// The rows, as counted by the sink.
    pub(crate) rows: AbsentRows,
    /// How many of the current rows this run added.
    pub(crate) inserted: u64,
    /// Rejected records whose key is unknown.
    pub(crate) unknown: u64,
    /// How the number of records read compares with the number declared, if the source is a service.
    pub(crate) read: Option<ReadVerdict>,
    /// The most rows that may be deleted.
    pub(crate) max: CountTolerance,
}

/// Why a source may not have been read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadVerdict {
    /// The layer changed while it was read.
    Changed,
    /// The number of records differs from the declared one by a tolerated number.
    Tolerated,
}

/// What happens to the rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeletionVerdict {
    /// They are deleted, marked or ended.
    Retire,
    /// They stay, for this reason.
    Keep(String),
    /// The run halts.
    Halt(Halt),
}

impl Deletions {
    pub(crate) fn judge(&self) -> DeletionVerdict {
        let absent = self.rows.absent;
        if absent == 0 {
            return DeletionVerdict::Retire;
        }
        let (rows, them) = if absent == 1 { ("row is", "it") } else { ("rows are", "them") };
        let keep = |why: &str| {
            DeletionVerdict::Keep(format!(
                "{absent} {rows} not in the source, but nothing was deleted: {why}; the next complete run deletes {them}"
            ))
        };
        match self.read {
            Some(ReadVerdict::Changed) => return keep("the source changed while it was read"),
            Some(ReadVerdict::Tolerated) => {
                return keep("the source returned a different number of records than it declared");
            }
            None => {}
        }
        if self.unknown > 0 {
            let which = if self.unknown == 1 {
                "record was rejected before its key was known, so its row"
            } else {
                "records were rejected before their keys were known, so their rows"
            };
            return keep(&format!("{} {which} cannot be identified", self.unknown));
        }
        let before = self.rows.current.saturating_sub(self.inserted);
        let most = self.max.of(before);
        if absent <= most {
            return DeletionVerdict::Retire;
        }
        let are = if absent == 1 { "is" } else { "are" };
        let reason = format!(
            "{absent} of {before} rows {are} no longer in the source, but at most {most} may be deleted; check the source, or raise `sink.max_deleted`"
        );
        DeletionVerdict::Halt(Halt { gate: "max_deleted".into(), record: None, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(current: u64, absent: u64) -> Deletions {
        Deletions {
            rows: AbsentRows { current, absent },
            inserted: 0,
            unknown: 0,
            read: None,
            max: MAX_DELETED,
        }
    }

    #[test]
    fn a_tenth_of_the_rows_may_go() {
        assert_eq!(of(100, 10).judge(), DeletionVerdict::Retire);
        assert_eq!(of(0, 0).judge(), DeletionVerdict::Retire);
        let DeletionVerdict::Halt(halt) = of(100, 11).judge() else { panic!("it halts") };
        assert_eq!(
            halt.to_string(),
            "gate max_deleted: 11 of 100 rows are no longer in the source, but at most 10 may be deleted; check the source, or raise `sink.max_deleted`"
        );
    }

    /// Rows that were added in this run do not make room for deletions.
    #[test]
    fn the_share_is_of_the_rows_before_the_run() {
        assert!(matches!(Deletions { inserted: 900, ..of(1000, 11) }.judge(), DeletionVerdict::Halt(_)));
    }

    #[test]
    fn what_may_still_be_in_the_source_stays() {
        let keeps = |deletions: Deletions, why: &str| match deletions.judge() {
            DeletionVerdict::Keep(text) => assert!(text.contains(why), "{text}"),
            other => panic!("{other:?}"),
        };
        keeps(Deletions { unknown: 1, ..of(100, 1) }, "1 row is not in the source");
        keeps(Deletions { unknown: 2, ..of(100, 1) }, "2 records were rejected");
        keeps(Deletions { read: Some(ReadVerdict::Changed), ..of(100, 99) }, "changed while it was read");
        keeps(Deletions { read: Some(ReadVerdict::Tolerated), ..of(100, 99) }, "a different number");
    }
}
