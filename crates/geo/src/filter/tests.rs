use std::sync::Arc;

use super::{Filter, parse};
use crate::batch::Batch;
use crate::column::Value;
use crate::schema::{Kind, Schema};

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
        ("pop between 1 and 300000 + 1 and city", &[2]),
        ("name LIKE '%r%n'", &[1]),
        ("name LIKE 'W__n'", &[0]),
        ("name ILIKE 'GR%'", &[2]),
        ("name NOT LIKE '%a%'", &[0, 1]),
        ("pop like '3%'", &[2]),
        ("\"two words\" < 100", &[0]),
        ("\"two words\" < 100 or city", &[0, 2]),
        ("not \"two words\" > 100", &[0]),
        ("city = true", &[0, 2]),
        ("city = 1", &[0, 2]),
        ("$shape = 'Point' AND $record >= 11", &[1, 2]),
        ("pop = NULL", &[]),
        ("NAME = 'Wien'", &[0]),
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
        ("pop > ", 6, "unexpected end"),
        ("pop > 1 1", 8, "'1'"),
        ("(pop > 1", 8, ")"),
        ("name = 'x", 7, "quote"),
        ("pop ! 1", 4, "'!'"),
        ("$area > 1", 0, "$area"),
        ("name LIKE 5", 10, "must be a string"),
        ("", 0, "unexpected end"),
    ] {
        let problem = Filter::new(text, batch.schema()).unwrap_err();
        assert_eq!(problem.offset, Some(at), "{text}: {problem}");
        assert!(problem.message.contains(word), "{text}: {problem}");
    }
    let deep = format!("{}pop > 1{}", "(".repeat(10_000), ")".repeat(10_000));
    let long = format!("pop > 1{}", " and pop > 1".repeat(10_000));
    for text in [deep, long, "NOT ".repeat(10_000)] {
        assert!(Filter::new(&text, batch.schema()).is_err());
    }
}

fn one() -> Batch {
    let schema = Schema::new([
        ("n", Kind::Int),
        ("x", Kind::Real),
        ("name", Kind::Text),
        ("a b", Kind::Bool),
        ("none", Kind::Text),
    ]);
    let mut batch = Batch::new(Arc::new(schema));
    let values = [Value::Int(7), Value::Real(0.5), Value::Text("Wien"), Value::Bool(true), Value::Null];
    batch.push_point(1.0, 2.0, values).unwrap();
    batch
}

fn ask(text: &str) -> Result<bool, String> {
    let batch = one();
    parse(text).map_err(|e| e.to_string())?;
    let filter = Filter::new(text, batch.schema()).map_err(|e| e.message)?;
    filter.is_true(&batch, 0).map_err(|e| e.message)
}

#[test]
fn expressions_say_what_sql_says() {
    for yes in [
        "n = 7",
        "n == 7.0 and x < 1",
        "n in (1, 7)",
        "name = 'Wien'",
        "\"a b\"",
        "none is null",
        "name is not null",
        "not (n > 7)",
        "not n > 7",
        "name like 'W%n'",
        "name not like '_x%'",
        "n + 1 = 8",
        "n * 2 - 4 = 10",
        "n / 2 = 3.5",
        "lower(name) = 'wien'",
        "length(name) = 4",
        "coalesce(none, name) = 'Wien'",
        "has_geometry()",
        "-n = -7",
        "n = 1 or n = 7 and x = 0.5",
        "n not in (1, 2)",
        "abs(-3) = 3",
        "x = 5e-1",
        "n = '7'",
        "n = 'a' or n = 7",
    ] {
        assert_eq!(ask(yes), Ok(true), "{yes}");
    }
    for no in [
        "none = 'a'",
        "none != 'a'",
        "not (none = 'a')",
        "n in (1, null)",
        "n != 7",
        "name like 'w%'",
        "null",
    ] {
        assert_eq!(ask(no), Ok(false), "{no}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (text, says) in [
        ("n = 'a'", "cannot be compared"),
        ("not n = 'a'", "cannot be compared"),
        ("n", "not true or false"),
        ("nope = 1", "nope"),
        ("n = ", "in single quotes at character 5"),
        ("n = 1 1", "at character 7"),
        ("(n = 1", "expected `)`"),
        ("name = 'x", "unclosed quote"),
        ("f(n)", "unknown function `f`"),
        ("n / 0 = 1", "no value"),
        ("n # 1", "unexpected '#'"),
        ("and", "double quotes"),
        ("lower(n) = 'a'", "does not take"),
    ] {
        let told = ask(text).unwrap_err();
        assert!(told.contains(says), "{text}: {told}");
    }
    assert!(parse(&"(".repeat(10_000)).is_err());
    assert!(parse(&format!("{}1", "not ".repeat(10_000))).is_err());
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
