//! Schema mapping: from the fields that a source has to the fields that a sink wants.
//!
//! A rule names a field of the result, where its value comes from (a field, or a path into one
//! that holds JSON), which kind it must have, what counts as no value, and what to put there
//! instead. Rules are checked against the source's schema once, before the first record.
//!
//! The promise is *lossless or refused*: a value is changed in kind only if nothing of it is lost
//! (`"12"` to 12, 12.0 to 12, but neither 12.5 nor `"12 m"`), and a record with a value that cannot
//! be is rejected with the field's name. Whoever wants to lose something says so with a rule.

mod coerce;
mod path;

use std::sync::Arc;

use tidegate_core::Code;

use crate::batch::Batch;
use crate::column::Value;
use crate::error::Problem;
use crate::format::Rejected;
use crate::schema::{Kind, Schema};
pub use coerce::{Owned, coerce};

/// One field of the result.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// Its name.
    pub to: String,
    /// Where it comes from: a field, or a field of JSON and a path within it (`tags.name`,
    /// `stops.0.id`). The name of the result if it is not given.
    pub from: Option<String>,
    /// Its kind; that of the source if it is not given.
    pub kind: Option<Kind>,
    /// Texts that mean no value, such as `""`, `N/A`, `-9999`.
    pub null: Vec<String>,
    /// What to put where there is no value.
    pub default: Option<Owned>,
    /// How dates and moments are written in the source, in the letters of `strftime` (`%d.%m.%Y`).
    pub format: Option<String>,
    /// Refuse a record without a value.
    pub required: bool,
}

impl Rule {
    /// A field taken over as it is.
    #[must_use]
    pub fn keep(name: impl Into<String>) -> Rule {
        Rule { to: name.into(), ..Rule::default() }
    }

    /// A field under another name.
    #[must_use]
    pub fn rename(from: impl Into<String>, to: impl Into<String>) -> Rule {
        Rule { to: to.into(), from: Some(from.into()), ..Rule::default() }
    }
}

/// What becomes of the source's fields that no rule names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// They are dropped.
    #[default]
    Drop,
    /// They follow after the fields of the rules.
    Keep,
    /// They are an error, told before the first record.
    Refuse,
}

/// Rules that fit a source.
#[derive(Clone, Debug)]
pub struct Mapping {
    fields: Vec<Mapped>,
    schema: Arc<Schema>,
}

#[derive(Clone, Debug)]
struct Mapped {
    rule: Rule,
    source: Option<usize>,
    path: Vec<String>,
    kind: Kind,
}

impl Mapping {
    /// Checks the rules against a source's schema.
    ///
    /// # Errors
    /// `SCHEMA_MISMATCH` for a rule whose source does not exist (unless it has a default), a name
    /// used twice, or a field that no rule names where that is refused.
    pub fn new(source: &Schema, rules: &[Rule], others: Others) -> Result<Mapping, Problem> {
        let refuse =
            |name: &str, message: &str| Err(Problem::new(Code::SCHEMA_MISMATCH, message).under(name));
        let mut fields: Vec<Mapped> = Vec::new();
        let mut used = vec![false; source.fields().len()];
        for rule in rules {
            if fields.iter().any(|field| field.rule.to == rule.to) {
                return refuse(&rule.to, "two rules create a field with this name");
            }
            let from = rule.from.as_deref().unwrap_or(&rule.to);
            let (place, path) = resolve(source, from);
            if place.is_none() && rule.default.is_none() {
                return refuse(from, "no such field in the source, and the rule has no default");
            }
            if let Some(flag) = place.and_then(|at| used.get_mut(at)) {
                *flag = true;
            }
            let own = place.and_then(|at| source.fields().get(at)).map(|field| field.kind);
            let found = if path.is_empty() { own } else { Some(Kind::Json) };
            let kind = rule.kind.or(found).or(rule.default.as_ref().map(Owned::kind)).unwrap_or(Kind::Text);
            fields.push(Mapped { rule: rule.clone(), source: place, path, kind });
        }
        for (at, field) in source.fields().iter().enumerate() {
            let named = used.get(at).copied().unwrap_or(false);
            match others {
                _ if named => {}
                Others::Drop => {}
                Others::Refuse => return refuse(&field.name, "no rule for this field"),
                Others::Keep if fields.iter().any(|mapped| mapped.rule.to == field.name) => {
                    return refuse(&field.name, "a rule creates a field with the name of one that is kept");
                }
                Others::Keep => fields.push(Mapped {
                    rule: Rule::keep(&field.name),
                    source: Some(at),
                    path: Vec::new(),
                    kind: field.kind,
                }),
            }
        }
        let mut schema = Schema::new(fields.iter().map(|field| (field.rule.to.clone(), field.kind)));
        (schema.shape, schema.dim) = (source.shape, source.dim);
        Ok(Mapping { fields, schema: Arc::new(schema) })
    }

    /// The schema of the result.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Maps a batch. Records that do not fit are added to `rejected`, with all their problems.
    pub fn apply(&self, batch: &Batch, rejected: &mut Vec<Rejected>) -> Batch {
        let mut out = Batch::new(self.schema.clone());
        for row in 0..batch.len() {
            out.go_to_record(batch.record(row));
            let mut problems = Vec::new();
            let mut values = Vec::with_capacity(self.fields.len());
            for field in &self.fields {
                match field.value(batch, row) {
                    Ok(value) => values.push(value),
                    Err(problem) => problems.push(problem.under(&field.rule.to)),
                }
            }
            if problems.is_empty() {
                let geometry = |out: &mut Vec<u8>| {
                    out.extend_from_slice(batch.geometry(row).unwrap_or_default());
                    Ok(())
                };
                match out.push_with(geometry, values.iter().map(Owned::value)) {
                    Ok(()) => {
                        if let Some(id) = batch.id(row) {
                            out.set_id(id);
                        }
                        if !batch.foreign(row).is_empty() {
                            out.set_foreign(batch.foreign(row));
                        }
                        let (span, raw) = batch.origin(row);
                        out.set_origin(span, raw);
                        continue;
                    }
                    Err(problem) => problems.push(problem),
                }
            }
            let record = batch.record(row);
            let problems = problems.into_iter().map(|problem| problem.of_record(record)).collect();
            let (span, raw) = batch.origin(row);
            rejected.push(Rejected { record, span, raw: raw.to_vec(), problems });
        }
        out
    }
}

/// A field of exactly this name, or the longest one that the path begins with.
fn resolve(source: &Schema, from: &str) -> (Option<usize>, Vec<String>) {
    if let Some(at) = source.position(from) {
        return (Some(at), Vec::new());
    }
    let dots = from.char_indices().rev().filter(|(_, c)| *c == '.').map(|(at, _)| at);
    for dot in dots {
        if let (Some(at), Some(rest)) =
            (from.get(..dot).and_then(|name| source.position(name)), from.get(dot + 1..))
        {
            return (Some(at), rest.split('.').map(str::to_owned).collect());
        }
    }
    (None, Vec::new())
}

impl Mapped {
    fn value(&self, batch: &Batch, row: usize) -> Result<Owned, Problem> {
        let mut value = self.source.map_or(Value::Null, |at| batch.value(row, at));
        if !self.path.is_empty() {
            value = match value {
                Value::Json(json) => path::find(json, &self.path).map_or(Value::Null, Value::Json),
                _ => Value::Null,
            };
        }
        let found = coerce(value, self.kind, &self.rule.null, self.rule.format.as_deref())?;
        match (found, &self.rule.default) {
            (Owned::Null, Some(default)) => Ok(default.clone()),
            (Owned::Null, None) if self.rule.required => {
                Err(Problem::new(Code::SCHEMA_MISMATCH, "no value, but one is required"))
            }
            (found, _) => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Batch {
        let schema = Schema::new([
            ("NAME", Kind::Text),
            ("pop", Kind::Text),
            ("tags", Kind::Json),
            ("day", Kind::Text),
        ]);
        let mut batch = Batch::new(Arc::new(schema)).from_record(7);
        let tags = r#"{"a":{"b":[1,{"c":"d\u00e9"}]},"x":null}"#;
        for (name, pop, day) in
            [("A", "12", "15.11.2026"), ("B", "N/A", "1.1.2026"), ("C", "12.5", "31.02.2026")]
        {
            batch
                .push_point(
                    1.0,
                    2.0,
                    [Value::Text(name), Value::Text(pop), Value::Json(tags), Value::Text(day)],
                )
                .unwrap();
        }
        batch
    }

    #[test]
    fn fields_are_renamed_coerced_flattened_and_filled() {
        let rules = [
            Rule::rename("NAME", "name"),
            Rule {
                kind: Some(Kind::Int),
                null: vec!["N/A".into()],
                default: Some(Owned::Int(-1)),
                ..Rule::keep("pop")
            },
            Rule { kind: Some(Kind::Text), ..Rule::rename("tags.a.b.1.c", "c") },
            Rule { kind: Some(Kind::Date), format: Some("%d.%m.%Y".into()), ..Rule::keep("day") },
            Rule { default: Some(Owned::Text("new".into())), ..Rule::keep("state") },
        ];
        let batch = source();
        let mapping = Mapping::new(batch.schema(), &rules, Others::Drop).unwrap();
        let kinds: Vec<_> = mapping.schema().fields().iter().map(|f| (f.name.as_str(), f.kind)).collect();
        assert_eq!(
            kinds,
            [
                ("name", Kind::Text),
                ("pop", Kind::Int),
                ("c", Kind::Text),
                ("day", Kind::Date),
                ("state", Kind::Text)
            ]
        );
        let mut rejected = Vec::new();
        let out = mapping.apply(&batch, &mut rejected);
        let row = |row: usize| out.columns().iter().map(|column| column.get(row)).collect::<Vec<_>>();
        assert_eq!(
            row(0),
            [
                Value::Text("A"),
                Value::Int(12),
                Value::Text("dé"),
                Value::Text("2026-11-15"),
                Value::Text("new")
            ]
        );
        assert_eq!(
            row(1),
            [
                Value::Text("B"),
                Value::Int(-1),
                Value::Text("dé"),
                Value::Text("2026-01-01"),
                Value::Text("new")
            ]
        );
        assert_eq!(out.len(), 2);
        let told: Vec<_> = rejected[0].problems.iter().map(|p| (p.record, p.path.as_str())).collect();
        assert_eq!(told, [(Some(9), "pop"), (Some(9), "day")], "both problems are told");
    }

    #[test]
    fn rules_are_checked_before_the_first_record() {
        let batch = source();
        let wrong = |rules: &[Rule], others| Mapping::new(batch.schema(), rules, others).unwrap_err().path;
        assert_eq!(wrong(&[Rule::keep("nope")], Others::Drop), "nope");
        assert_eq!(wrong(&[Rule::keep("pop"), Rule::rename("NAME", "pop")], Others::Drop), "pop");
        assert_eq!(wrong(&[Rule::keep("pop")], Others::Refuse), "NAME");
        assert_eq!(wrong(&[Rule::rename("pop", "NAME")], Others::Keep), "NAME");
        let kept = Mapping::new(batch.schema(), &[Rule::rename("pop", "n")], Others::Keep).unwrap();
        assert_eq!(
            kept.schema().fields().iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
            ["n", "NAME", "tags", "day"]
        );
    }

    #[test]
    fn a_required_value_must_be_there() {
        let batch = source();
        let rules = [Rule { required: true, null: vec!["N/A".into()], ..Rule::keep("pop") }];
        let mut rejected = Vec::new();
        let out = Mapping::new(batch.schema(), &rules, Others::Drop).unwrap().apply(&batch, &mut rejected);
        assert_eq!((out.len(), rejected.len(), rejected[0].record), (2, 1, 8));
    }
}
