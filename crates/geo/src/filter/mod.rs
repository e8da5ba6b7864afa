//! Which features: the condition of `--where`, in the words of SQL.
//!
//! Comparisons, `AND`, `OR`, `NOT`, `IN`, `BETWEEN`, `LIKE`, `IS NULL`, over fields, numbers and
//! texts. A field's name may stand bare or in double quotes, a text stands in single quotes. Besides
//! the fields there are `$shape` (`'Polygon'`), `$id` and `$record` (from 0).
//!
//! Logic has three values, as in SQL: what is compared with nothing is unknown, and only what is
//! true is kept. A text compared with a number counts as the number it spells, because every field
//! of a CSV file is text; a text that spells none is unknown beside a number. Names are looked up
//! once, before the first record, so that a misspelt one is an error and not an empty result.
//!
//! Why our own and not SQLite's: the batch would have to be copied into a table first, and a
//! condition out of a manifest must not reach a whole SQL engine.

mod lex;
mod parse;

use std::cmp::Ordering;

use crate::batch::Batch;
use crate::column::Value;
use crate::error::Problem;
use crate::schema::Schema;
use crate::wkb;

/// A condition that fits a schema.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
}

#[derive(Clone, Debug)]
enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Compare(Operand, Test, Operand),
    In(Operand, Vec<Operand>),
    Like { operand: Operand, pattern: String, any_case: bool },
    IsNull(Operand),
    Truth(Operand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug)]
enum Operand {
    Field(usize),
    Shape,
    Id,
    Record,
    Text(String),
    Int(i64),
    Real(f64),
    Bool(bool),
    Null,
}

impl Filter {
    /// Reads a condition over the fields of a schema.
    ///
    /// # Errors
    /// `SCHEMA_MISMATCH`, with the byte of the condition at which the trouble shows.
    pub fn new(text: &str, schema: &Schema) -> Result<Filter, Problem> {
        parse::parse(text, schema).map(|root| Filter { root })
    }

    /// Whether the condition is true for this row.
    #[must_use]
    pub fn keeps(&self, batch: &Batch, row: usize) -> bool {
        self.root.holds(batch, row) == Some(true)
    }
}

impl Node {
    /// True, false, or unknown.
    fn holds(&self, batch: &Batch, row: usize) -> Option<bool> {
        match self {
            Node::And(parts) => all(parts.iter().map(|part| part.holds(batch, row))),
            Node::Or(parts) => all(parts.iter().map(|part| part.holds(batch, row).map(|b| !b))).map(|b| !b),
            Node::Not(part) => part.holds(batch, row).map(|b| !b),
            Node::Compare(a, test, b) => {
                compare(a.value(batch, row), b.value(batch, row)).map(|order| test.passes(order))
            }
            Node::In(operand, list) => {
                let value = operand.value(batch, row);
                let differs = list
                    .iter()
                    .map(|item| compare(value, item.value(batch, row)).map(|order| order != Ordering::Equal));
                all(differs).map(|b| !b)
            }
            Node::Like { operand, pattern, any_case } => match operand.value(batch, row) {
                Value::Text(text) | Value::Json(text) if *any_case => {
                    Some(like(&text.to_lowercase(), &pattern.to_lowercase()))
                }
                Value::Text(text) | Value::Json(text) => Some(like(text, pattern)),
                Value::Int(i) => Some(like(&i.to_string(), pattern)),
                _ => None,
            },
            Node::IsNull(operand) => Some(operand.value(batch, row) == Value::Null),
            Node::Truth(operand) => match operand.value(batch, row) {
                Value::Bool(b) => Some(b),
                Value::Int(i) => Some(i != 0),
                Value::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
                Value::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
                _ => None,
            },
        }
    }
}

/// False if one is false, else unknown if one is unknown.
fn all(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut sure = true;
    for part in parts {
        match part {
            Some(false) => return Some(false),
            Some(true) => {}
            None => sure = false,
        }
    }
    sure.then_some(true)
}

impl Test {
    fn passes(self, order: Ordering) -> bool {
        match self {
            Test::Equal => order.is_eq(),
            Test::NotEqual => order.is_ne(),
            Test::Less => order.is_lt(),
            Test::LessOrEqual => order.is_le(),
            Test::Greater => order.is_gt(),
            Test::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, batch: &'a Batch, row: usize) -> Value<'a> {
        match self {
            Operand::Field(at) => batch.value(row, *at),
            Operand::Shape => batch
                .geometry(row)
                .and_then(wkb::head)
                .map_or(Value::Null, |(shape, _)| Value::Text(shape.name())),
            Operand::Id => batch.id(row).map_or(Value::Null, |id| Value::Text(id.trim_matches('"'))),
            Operand::Record => Value::Int(i64::try_from(batch.record(row)).unwrap_or(i64::MAX)),
            Operand::Text(text) => Value::Text(text),
            Operand::Int(i) => Value::Int(*i),
            Operand::Real(x) => Value::Real(*x),
            Operand::Bool(b) => Value::Bool(*b),
            Operand::Null => Value::Null,
        }
    }
}

/// The order of two values; `None` if there is none.
fn compare(a: Value<'_>, b: Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(&b)),
        (Value::Text(a) | Value::Json(a), Value::Text(b) | Value::Json(b)) => Some(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Text(text), Value::Bool(b)) => bool_of(text).map(|a| a.cmp(&b)),
        (Value::Bool(a), Value::Text(text)) => bool_of(text).map(|b| a.cmp(&b)),
        (a, b) => number(a)?.partial_cmp(&number(b)?),
    }
}

fn bool_of(text: &str) -> Option<bool> {
    match text.trim() {
        t if t.eq_ignore_ascii_case("true") || t == "1" => Some(true),
        f if f.eq_ignore_ascii_case("false") || f == "0" => Some(false),
        _ => None,
    }
}

fn number(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Int(i) => Some(i as f64),
        Value::Real(x) => Some(x),
        Value::Bool(b) => Some(f64::from(u8::from(b))),
        Value::Text(text) => fast_float2::parse(text.trim()).ok(),
        _ => None,
    }
}

/// SQL's `LIKE`: `%` is any text, `_` any one character. Going back only to the last `%` keeps the
/// cost at the product of both lengths, whatever the pattern.
fn like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut t, mut p) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while let Some(c) = text.get(t) {
        match pattern.get(p) {
            Some('%') => {
                back = Some((t, p + 1));
                p += 1;
            }
            Some(wanted) if *wanted == '_' || wanted == c => {
                t += 1;
                p += 1;
            }
            _ => {
                let Some((from, after)) = back else { return false };
                back = Some((from + 1, after));
                (t, p) = (from + 1, after);
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|c| *c == '%')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Kind;
    use std::sync::Arc;

    fn batch() -> Batch {
        let schema = Schema::new([
            ("name", Kind::Text),
            ("pop", Kind::Int),
            ("share", Kind::Real),
            ("city", Kind::Bool),
            ("two words", Kind::Text),
        ]);
        let mut batch = Batch::new(Arc::new(schema)).from_record(10);
        let rows = [
            ("Wien", Value::Int(2_000_000), Value::Real(0.5), Value::Bool(true), Value::Text("12")),
            ("O'Brien", Value::Null, Value::Real(1.5), Value::Bool(false), Value::Text("x")),
            ("Graz", Value::Int(300_000), Value::Null, Value::Bool(true), Value::Null),
        ];
        for (name, pop, share, city, words) in rows {
            batch.push_point(1.0, 2.0, [Value::Text(name), pop, share, city, words]).unwrap();
        }
        batch
    }

    fn kept(text: &str) -> Vec<usize> {
        let batch = batch();
        let filter = Filter::new(text, batch.schema()).unwrap_or_else(|e| panic!("{text}: {e}"));
        (0..batch.len()).filter(|row| filter.keeps(&batch, *row)).collect()
    }

    #[test]
    fn conditions_keep_what_is_true_and_not_what_is_unknown() {
        for (text, want) in [
            ("pop > 500000", &[0][..]),
            ("NOT pop > 500000", &[2]),
            ("pop IS NULL", &[1]),
            ("pop is not null and share is not null", &[0]),
            ("name = 'O''Brien'", &[1]),
            ("name <> 'Wien' AND city", &[2]),
            ("name != 'Wien' AND (city OR share >= 1.5)", &[1, 2]),
            ("name IN ('Graz', 'Wien')", &[0, 2]),
            ("name NOT IN ('Graz')", &[0, 1]),
            ("pop NOT IN (1, NULL)", &[]),
            ("pop BETWEEN 300000 AND 1e6", &[2]),
            ("share NOT BETWEEN -1 AND 1", &[1]),
            ("name LIKE '%r%n'", &[1]),
            ("name LIKE 'W__n'", &[0]),
            ("name ILIKE 'GR%'", &[2]),
            ("name NOT LIKE '%a%'", &[0, 1]),
            ("\"two words\" < 100", &[0]),
            ("city = true", &[0, 2]),
            ("$shape = 'Point' AND $record >= 11", &[1, 2]),
            ("pop = NULL", &[]),
            ("TRUE", &[0, 1, 2]),
        ] {
            assert_eq!(kept(text), want, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_condition_is_told_with_its_place() {
        let batch = batch();
        for (text, at, word) in [
            ("popp > 1", 0, "\"popp\""),
            ("pop > ", 6, "ends"),
            ("pop > 1 1", 8, "'1'"),
            ("(pop > 1", 8, ")"),
            ("name = 'x", 7, "quote"),
            ("pop ! 1", 4, "'!'"),
            ("$area > 1", 0, "$area"),
            ("name LIKE 5", 10, "text"),
            ("", 0, "ends"),
        ] {
            let problem = Filter::new(text, batch.schema()).unwrap_err();
            assert_eq!(problem.offset, Some(at), "{text}: {problem}");
            assert!(problem.message.contains(word), "{text}: {problem}");
        }
        let deep = format!("{}pop > 1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(Filter::new(&deep, batch.schema()).is_err());
        assert!(Filter::new(&"NOT ".repeat(10_000), batch.schema()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_ends_in_an_answer(text in "[a-z$'\"()<>=!,.0-9 %]{0,40}|(pop|AND|OR|NOT|IN|LIKE|IS|NULL|[()'<>=1 ]| )*") {
            let batch = batch();
            if let Ok(filter) = Filter::new(&text, batch.schema()) {
                let _ = filter.keeps(&batch, 0);
            }
        }
    }
}
