//! drift: the numbers of a record are those of the last run that ended well, within a tolerance.
//!
//! What such a run has seen is the baseline, a file in the state directory of the pipeline: for each record,
//! found again by the key of the sink, the numbers of the fields of these gates. A run notes the numbers of
//! the records that pass in a second file, before their batch is committed; when it is done, the notes
//! become part of the baseline. So a run that halts or is given up changes no baseline, and one that is
//! killed and resumed ends with the same one. A record that is new passes, and a record that is rejected
//! keeps its old numbers: the next run is compared with the same baseline. Its replay accepts the new ones.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_core::Code;
use tidegate_geo::mapping::{Owned, coerce};
use tidegate_geo::{Batch, Kind, Problem, Value};

use crate::durable;
use crate::manifest::{Gate, Manifest, YamlScalar};
use crate::step::Flow;
use crate::step::content_key::CONTENT_KEY;

const BASELINE: &str = "baseline.json";
const NOTES: &str = "baseline.next.ndjson";

/// The numbers of a field: one, or one per band.
type NumberList = Vec<Option<f64>>;
type FieldNumbers = BTreeMap<String, NumberList>;

/// How far a number may be from that of the last run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DriftTolerance {
    /// By a share of the number of the last run.
    Share(f64),
    /// By this much.
    Amount(f64),
}

impl DriftTolerance {
    /// Reads `10%`, or `0.05`.
    pub(crate) fn parse(text: &str) -> Option<DriftTolerance> {
        let (number, share) = match text.trim().strip_suffix('%') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let number = number.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)?;
        Some(if share { DriftTolerance::Share(number / 100.0) } else { DriftTolerance::Amount(number) })
    }

    fn of(form: &Gate) -> Option<DriftTolerance> {
        match form.tolerate.as_ref()? {
            YamlScalar::Int(n) => DriftTolerance::parse(&n.to_string()),
            YamlScalar::Float(x) => DriftTolerance::parse(&x.to_string()),
            YamlScalar::Text(text) => DriftTolerance::parse(text),
            _ => None,
        }
    }

    /// How much two numbers differ, if by too much.
    fn excess(self, last: f64, now: f64) -> Option<String> {
        let by = (now - last).abs();
        let rounded = |x: f64| (x * 1e6).round() / 1e6;
        match self {
            DriftTolerance::Share(share) if by > share * last.abs() => Some(match last == 0.0 {
                true => format!("more than {} %", rounded(share * 100.0)),
                false => {
                    format!("{} %, more than {} %", rounded(by / last.abs() * 100.0), rounded(share * 100.0))
                }
            }),
            DriftTolerance::Amount(most) if by > most => Some(format!("{by}, more than {most}")),
            _ => None,
        }
    }
}

/// The check of one gate.
pub(super) struct DriftCheck {
    key: Vec<usize>,
    fields: Vec<(usize, String)>,
    tolerance: DriftTolerance,
}

impl DriftCheck {
    pub(super) fn new(form: &Gate, manifest: &Manifest, flow: &Flow) -> Result<DriftCheck, String> {
        let names = manifest.pipeline.sink.as_ref().map(|sink| sink.key.as_slice()).unwrap_or_default();
        if names.is_empty() || names.iter().any(|name| name == CONTENT_KEY) {
            return Err("records are found again by `sink.key`; set one that stays the same".into());
        }
        let tolerance = DriftTolerance::of(form)
            .ok_or("`tolerate` is a percentage such as 10%, or a number such as 0.05")?;
        let key = names.iter().map(|name| flow.field(name)).collect::<Result<_, _>>()?;
        let field =
            |name: &String| -> Result<(usize, String), String> { Ok((flow.field(name)?, name.clone())) };
        Ok(DriftCheck { key, fields: form.fields.iter().map(field).collect::<Result<_, _>>()?, tolerance })
    }

    /// The key of a record in the baseline.
    pub(super) fn key(&self, batch: &Batch, row: usize) -> String {
        let text = |at: &usize| match coerce(batch.value(row, *at), Kind::Text, &[], None) {
            Ok(Owned::Text(text)) => Some(text),
            _ => None,
        };
        let all: Vec<Option<String>> = self.key.iter().map(text).collect();
        serde_json::to_string(&all).unwrap_or_default()
    }

    /// The numbers of a record.
    pub(super) fn numbers(&self, batch: &Batch, row: usize) -> Result<FieldNumbers, Problem> {
        let mut all = FieldNumbers::new();
        for (at, name) in &self.fields {
            let value = batch.value(row, *at);
            let numbers = numbers(value).ok_or_else(|| {
                Problem::new(Code::SCHEMA_MISMATCH, "neither a number nor a list of numbers").under(name)
            })?;
            all.insert(name.clone(), numbers);
        }
        Ok(all)
    }

    /// What is wrong with the numbers, beside those of the last run.
    pub(super) fn judge(&self, now: &FieldNumbers, last: &FieldNumbers) -> Option<Problem> {
        now.iter().find_map(|(name, now)| {
            let last = last.get(name)?;
            let message = self.differs(last, now)?;
            Some(Problem::new(Code::SCHEMA_MISMATCH, message).under(name))
        })
    }

    fn differs(&self, last: &NumberList, now: &NumberList) -> Option<String> {
        if last.len() != now.len() {
            return Some(format!("{} numbers, the last run had {}", now.len(), last.len()));
        }
        let of = |at: usize| if now.len() > 1 { format!("band {}: ", at + 1) } else { String::new() };
        last.iter().zip(now).enumerate().find_map(|(at, pair)| match pair {
            (None, None) => None,
            (Some(last), None) => Some(format!("{}no value, the last run had {last}", of(at))),
            (None, Some(now)) => Some(format!("{}{now}, the last run had no value", of(at))),
            (Some(last), Some(now)) => {
                let by = self.tolerance.excess(*last, *now)?;
                Some(format!("{}{now} differs from {last}, the number of the last run, by {by}", of(at)))
            }
        })
    }
}

fn numbers(value: Value<'_>) -> Option<NumberList> {
    Some(match value {
        Value::Null => vec![None],
        Value::Json(text) => serde_json::from_str(text).ok()?,
        value => match coerce(value, Kind::Real, &[], None) {
            Ok(Owned::Real(number)) => vec![Some(number)],
            _ => return None,
        },
    })
}

/// A line of the notes.
#[derive(Serialize, Deserialize)]
struct NotedNumbers {
    key: String,
    numbers: FieldNumbers,
}

/// What the last run that ended well has seen, and what this one sees.
#[derive(Default)]
pub(super) struct Baseline {
    known: BTreeMap<String, FieldNumbers>,
    /// Lines that are not yet in the notes.
    pending: String,
    notes: Option<(PathBuf, File)>,
}

impl Baseline {
    /// Reads the baseline of a pipeline; the notes of a run that is resumed are kept.
    pub(super) fn open(dir: &Path, resumed: bool) -> Result<Baseline, String> {
        let path = dir.join(NOTES);
        let opened = || -> io::Result<File> {
            let file = durable::append(&path)?;
            if !resumed {
                file.set_len(0)?;
            }
            Ok(file)
        };
        let notes = opened().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Baseline { known: read(dir)?, pending: String::new(), notes: Some((path, notes)) })
    }

    pub(super) fn last(&self, key: &str) -> Option<&FieldNumbers> {
        self.known.get(key)
    }

    pub(super) fn note(&mut self, key: String, numbers: FieldNumbers) {
        if self.notes.is_none() {
            return;
        }
        if let Ok(line) = serde_json::to_string(&NotedNumbers { key, numbers }) {
            self.pending.push_str(&line);
            self.pending.push('\n');
        }
    }

    /// Writes what was noted to the disk.
    pub(super) fn write(&mut self) -> Result<(), String> {
        let pending = std::mem::take(&mut self.pending);
        let Some((path, file)) = &mut self.notes else { return Ok(()) };
        if pending.is_empty() {
            return Ok(());
        }
        file.write_all(pending.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(|e| format!("{}: {e}", path.display()))
    }
}

fn read(dir: &Path) -> Result<BTreeMap<String, FieldNumbers>, String> {
    let path = dir.join(BASELINE);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
            format!(
                "cannot read {} ({e}), so there is nothing to compare with; remove it to start anew",
                path.display()
            )
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// Takes the notes of a run that is done into the baseline. Without notes it does nothing.
pub(crate) fn settle(dir: &Path) -> Result<(), String> {
    let path = dir.join(NOTES);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    let mut known = read(dir)?;
    // The last line may have been cut; its record was noted again then.
    for NotedNumbers { key, numbers } in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        known.entry(key).or_default().extend(numbers);
    }
    let target = dir.join(BASELINE);
    let fail = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let bytes = serde_json::to_vec(&known).map_err(|e| fail(&target, &e))?;
    durable::replace(&target, &bytes).map_err(|e| fail(&target, &e))?;
    fs::remove_file(&path).map_err(|e| fail(&path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tolerate: &str) -> DriftCheck {
        DriftCheck {
            key: Vec::new(),
            fields: Vec::new(),
            tolerance: DriftTolerance::parse(tolerate).unwrap(),
        }
    }

    #[test]
    fn a_share_is_of_the_last_number_and_an_amount_is_not() {
        let says = |tolerate: &str, last: &[f64], now: &[f64]| {
            let list = |all: &[f64]| all.iter().map(|n| Some(*n)).collect::<NumberList>();
            check(tolerate).differs(&list(last), &list(now))
        };
        assert_eq!(says("10%", &[200.0], &[220.0]), None);
        assert_eq!(
            says("10%", &[200.0], &[221.0]).as_deref(),
            Some("221 differs from 200, the number of the last run, by 10.5 %, more than 10 %")
        );
        assert_eq!(says("10%", &[-200.0], &[-180.0]), None);
        assert_eq!(says("0%", &[0.0], &[0.0]), None);
        assert!(says("50%", &[0.0], &[0.1]).is_some());
        assert_eq!(says("0.05", &[0.0], &[0.05]), None);
        assert_eq!(
            says("0.5", &[1.0, 2.0], &[1.0, 3.0]).as_deref(),
            Some("band 2: 3 differs from 2, the number of the last run, by 1, more than 0.5")
        );
        assert_eq!(says("10%", &[1.0], &[1.0, 1.0]).as_deref(), Some("2 numbers, the last run had 1"));
        assert_eq!(
            check("1").differs(&vec![Some(7.0)], &vec![None]).as_deref(),
            Some("no value, the last run had 7")
        );
    }

    #[test]
    fn tolerances_are_percentages_or_numbers() {
        assert_eq!(DriftTolerance::parse("10 %"), Some(DriftTolerance::Share(0.1)));
        assert_eq!(DriftTolerance::parse("2"), Some(DriftTolerance::Amount(2.0)));
        for wrong in ["", "-1", "ten", "NaN", "inf%"] {
            assert_eq!(DriftTolerance::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn notes_become_the_baseline_when_a_run_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let numbers = |n: f64| FieldNumbers::from([("mean".to_owned(), vec![Some(n)])]);
        let mut baseline = Baseline::open(dir.path(), false).unwrap();
        baseline.note("a".into(), numbers(1.0));
        baseline.write().unwrap();
        // Killed and resumed: what was noted counts, and the last note of a record does.
        let mut baseline = Baseline::open(dir.path(), true).unwrap();
        assert_eq!(baseline.last("a"), None);
        baseline.note("a".into(), numbers(2.0));
        baseline.note("b".into(), numbers(3.0));
        baseline.write().unwrap();
        settle(dir.path()).unwrap();
        let mut baseline = Baseline::open(dir.path(), false).unwrap();
        assert_eq!(baseline.last("a"), Some(&numbers(2.0)));
        // A run that is given up leaves the baseline alone.
        baseline.note("a".into(), numbers(9.0));
        baseline.write().unwrap();
        let baseline = Baseline::open(dir.path(), false).unwrap();
        assert_eq!(baseline.last("a"), Some(&numbers(2.0)));
        settle(dir.path()).unwrap();
        assert_eq!(Baseline::open(dir.path(), false).unwrap().last("b"), Some(&numbers(3.0)));
    }
}
