//! Decides whether a run reads everything or only what has changed since the last one, and how far it
//! has read when it ends.
//!
//! The watermark is stored in the sink, with the identity of the table and its number of rows. So a
//! sink that was restored from a backup has the watermark of that backup, and one that lost rows or was
//! recreated is filled by a full run.

use serde::{Deserialize, Serialize};

use crate::manifest::SinceSpec;
use crate::sink::{SavedWatermark, Standing};
use crate::source::ChangeMark;

/// How far the source of a sink was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watermark {
    /// The field of `since`.
    field: String,
    /// The highest value of it that was read.
    mark: ChangeMark,
    /// The number of runs since the last one that read everything.
    increments: u32,
    /// The sink after the run.
    sink: Standing,
}

/// What a run reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadScope {
    /// Everything, for this reason.
    Full(String),
    /// What has changed from this value of the field on.
    Changes {
        /// The field.
        field: String,
        /// The lowest value that is asked for: the watermark less the overlap.
        from: ChangeMark,
        /// The watermark itself.
        mark: ChangeMark,
        /// The number of runs since the last one that read everything, this one included.
        increments: u32,
    },
}

impl std::fmt::Display for ReadScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadScope::Full(why) => write!(f, "read everything: {why}"),
            ReadScope::Changes { field, from, .. } => {
                write!(f, "read only what has changed: {field} >= {from}")
            }
        }
    }
}

impl ReadScope {
    /// The value that is asked for; `None` for a full read.
    pub(super) fn from(&self) -> Option<ChangeMark> {
        match self {
            ReadScope::Full(_) => None,
            ReadScope::Changes { from, .. } => Some(*from),
        }
    }
}

/// Decides what a new run reads. `forced` if the user wants everything, `described` if the fields of
/// the last run are known: a few changed records may not have all of them.
pub(super) fn decide(
    spec: &SinceSpec,
    saved: Option<&SavedWatermark>,
    (forced, described): (bool, bool),
) -> ReadScope {
    let full = |why: &str| ReadScope::Full(why.to_owned());
    if forced {
        return full("--full was given");
    }
    let Some(saved) = saved else { return full("the sink has no watermark yet") };
    let Ok(known) = serde_json::from_str::<Watermark>(&saved.watermark) else {
        return full("the watermark was written by another version of tidegate");
    };
    if known.field != spec.field {
        return full("`since.field` has changed");
    }
    // The watermark of a file is in the file itself, which then needs no identity.
    if !saved.standing.identity.is_empty() && known.sink.identity != saved.standing.identity {
        return full("the sink was recreated since the last run");
    }
    if saved.standing.rows < known.sink.rows {
        return full("the sink has fewer rows than after the last run");
    }
    if !described {
        return full("the state directory does not have the fields of the last run");
    }
    let increments = known.increments + 1;
    if increments >= spec.full_every {
        return full(&format!("`full_every` is {}", spec.full_every));
    }
    let from = known.mark.less(spec.overlap_seconds);
    ReadScope::Changes { field: spec.field.clone(), from, mark: known.mark, increments }
}

/// The watermark after a run, as text; `None` if nothing is known. `highest` is what it has read, and
/// `began_ms` its start.
pub(super) fn advance(
    scope: &ReadScope,
    field: &str,
    highest: Option<ChangeMark>,
    (began_ms, sink): (i64, &Standing),
) -> Option<String> {
    let (before, increments) = match scope {
        ReadScope::Full(_) => (None, 0),
        ReadScope::Changes { mark, increments, .. } => (Some(*mark), *increments),
    };
    let highest = highest.map(|mark| mark.at_most(began_ms));
    let mark = before.max(highest)?;
    let watermark = Watermark { field: field.to_owned(), mark, increments, sink: sink.clone() };
    serde_json::to_string(&watermark).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> SinceSpec {
        serde_json::from_str(r#"{"field":"EDITED","overlap_seconds":10,"full_every":3}"#).unwrap()
    }

    fn standing(identity: &str, rows: u64) -> Standing {
        Standing { identity: identity.into(), rows: Some(rows) }
    }

    const MARK: ChangeMark = ChangeMark::Micros(100_000_000);

    fn saved(scope: &ReadScope, now: &Standing) -> SavedWatermark {
        let watermark = advance(scope, "EDITED", Some(MARK), (1_000_000, &standing("a", 5))).unwrap();
        SavedWatermark { watermark, standing: now.clone() }
    }

    #[test]
    fn a_run_reads_on_from_the_watermark() {
        let first = decide(&spec(), None, (false, true));
        let ReadScope::Full(_) = &first else { panic!("{first}") };
        let second = decide(&spec(), Some(&saved(&first, &standing("a", 5))), (false, true));
        let changes = |increments| ReadScope::Changes {
            field: "EDITED".into(),
            from: ChangeMark::Micros(90_000_000),
            mark: MARK,
            increments,
        };
        assert_eq!(second, changes(1));
        let third = decide(&spec(), Some(&saved(&second, &standing("a", 7))), (false, true));
        assert_eq!(third, changes(2));
        let fourth = decide(&spec(), Some(&saved(&third, &standing("a", 7))), (false, true));
        assert_eq!(fourth, ReadScope::Full("`full_every` is 3".into()));
    }

    #[test]
    fn a_sink_that_lost_something_is_filled_anew() {
        let first = ReadScope::Full(String::new());
        let full = |now: Standing, known: (bool, bool), why: &str| {
            let scope = decide(&spec(), Some(&saved(&first, &now)), known);
            assert!(scope.to_string().contains(why), "{scope}");
        };
        full(standing("b", 5), (false, true), "was recreated");
        full(standing("a", 4), (false, true), "fewer rows");
        full(standing("a", 5), (true, true), "--full");
        full(standing("a", 5), (false, false), "fields of the last run");
        let other = SinceSpec { field: "CHANGED".into(), ..spec() };
        let scope = decide(&other, Some(&saved(&first, &standing("a", 5))), (false, true));
        assert!(scope.to_string().contains("has changed"), "{scope}");
    }

    /// A record from the future does not hide what changes until then.
    #[test]
    fn the_watermark_never_passes_the_start_of_the_run() {
        let first = ReadScope::Full(String::new());
        let text = advance(&first, "EDITED", Some(MARK), (50, &standing("a", 1))).unwrap();
        assert!(text.contains(r#"{"micros":50000}"#), "{text}");
        assert_eq!(advance(&first, "EDITED", None, (50, &standing("a", 1))), None);
    }
}
