//! The filter of letters that all commands share.
//!
//! A filter becomes a `WHERE` clause. The properties of a group (code, class, service, pipeline,
//! stage, fingerprint) are looked up in the small table of groups, bounding boxes and words in
//! their own indexes, and the rest in the rows of the letters.

use super::store::{SqlDialect, Val};
use tidegate_core::letter::{FailureClass, Fingerprint, LetterId, LetterState};

/// A filter of letters. Empty means all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LetterFilter {
    /// With one of these ids.
    pub ids: Vec<LetterId>,
    /// With one of these codes.
    pub codes: Vec<String>,
    /// With one of these classes.
    pub classes: Vec<FailureClass>,
    /// In one of these states.
    pub states: Vec<LetterState>,
    /// With one of these fingerprints.
    pub fingerprints: Vec<Fingerprint>,
    /// Of this pipeline.
    pub pipeline: Option<String>,
    /// Of this stage.
    pub stage: Option<String>,
    /// Of this service.
    pub service: Option<String>,
    /// Last seen at or after this time, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    /// First given up before this time, in milliseconds since 1970.
    pub until_ms: Option<i64>,
    /// Intersecting this bounding box: west, south, east, north in degrees on WGS 84.
    pub bbox: Option<[f64; 4]>,
    /// In this coordinate system, as the record names it.
    pub crs: Option<String>,
    /// With a message that contains all these words.
    pub text: Option<String>,
    /// Of a record that has died at least this often before.
    pub generation_min: Option<u32>,
    /// Of a record that has died at most this often before.
    pub generation_max: Option<u32>,
    /// With a retention that ends before this time, in milliseconds since 1970, and not on hold.
    pub expired_ms: Option<i64>,
    /// In the replay plan of this number.
    pub plan: Option<i64>,
    /// With a row number above this; for reading in pages.
    pub after: Option<i64>,
}

impl LetterFilter {
    /// Letters with these ids.
    #[must_use]
    pub fn of_ids(ids: impl IntoIterator<Item = LetterId>) -> LetterFilter {
        LetterFilter { ids: ids.into_iter().collect(), ..LetterFilter::default() }
    }

    /// Whether it matches all letters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == LetterFilter::default()
    }

    /// The condition on `letter l`; its arguments are appended to `args`.
    pub(super) fn sql(&self, dialect: SqlDialect, args: &mut Vec<Val>) -> String {
        let mut all: Vec<String> = Vec::new();
        let mut place = |val: Val| {
            args.push(val);
            format!("?{}", args.len())
        };
        let mut any = |column: &str, values: Vec<Val>, all: &mut Vec<String>| {
            if !values.is_empty() {
                let places: Vec<String> = values.into_iter().map(&mut place).collect();
                all.push(format!("{column} IN ({})", places.join(", ")));
            }
        };
        let texts = |texts: &[String]| texts.iter().cloned().map(Val::Text).collect::<Vec<_>>();
        let mut group = Vec::new();
        any("code", texts(&self.codes), &mut group);
        any("class", self.classes.iter().map(|c| Val::from(c.as_str())).collect(), &mut group);
        any("fp", self.fingerprints.iter().map(|f| Val::Int(f.0.cast_signed())).collect(), &mut group);
        for (column, value) in
            [("pipeline", &self.pipeline), ("stage", &self.stage), ("service", &self.service)]
        {
            any(column, value.iter().cloned().map(Val::Text).collect(), &mut group);
        }
        if !group.is_empty() {
            all.push(format!("l.grp IN (SELECT grp FROM grp WHERE {})", group.join(" AND ")));
        }
        any("l.id", self.ids.iter().map(|id| Val::Blob(id.to_bytes().to_vec())).collect(), &mut all);
        any("l.state", self.states.iter().map(|s| Val::Int(*s as i64)).collect(), &mut all);
        any("l.crs", self.crs.iter().cloned().map(Val::Text).collect(), &mut all);
        let int = |n: Option<u32>| n.map(i64::from);
        for (condition, value) in [
            ("l.last_ms >= ", self.since_ms),
            ("l.failed_ms < ", self.until_ms),
            ("l.generation >= ", int(self.generation_min)),
            ("l.generation <= ", int(self.generation_max)),
            ("l.hold IS NULL AND l.retain_ms < ", self.expired_ms),
            ("l.plan = ", self.plan),
            ("l.seq > ", self.after),
        ] {
            if let Some(value) = value {
                all.push(format!("{condition}{}", place(Val::Int(value))));
            }
        }
        if let Some(bbox) = self.bbox {
            let [w, s, e, n] = bbox.map(|x| place(Val::Real(x)));
            all.push(dialect.meets(&w, &s, &e, &n));
        }
        if let Some(text) = &self.text {
            let words = place(Val::Text(dialect.words(text)));
            all.push(dialect.says(&words));
        }
        if all.is_empty() { "1 = 1".into() } else { all.join(" AND ") }
    }
}
