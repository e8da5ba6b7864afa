//! What an expression says of a record.

use std::borrow::Cow;
use std::cmp::Ordering;

use tidegate_core::Code;

use super::{Binary, Expr, Fault, Function, Literal, Own, Unary, find, no_field, parse};
use crate::batch::Batch;
use crate::column::Value;
use crate::error::Problem;
use crate::schema::Schema;
use crate::wkb;

/// A condition that fits a schema.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Expression,
}

#[derive(Clone, Debug)]
enum Expression {
    Field(usize, String),
    Own(Own),
    Literal(Literal),
    Unary(Unary, Box<Expression>),
    /// All of a row of `and`, or of `or`: the value that decides, and the parts.
    Logic(bool, Vec<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    In(Box<Expression>, Vec<Expression>),
    Call(Function, Vec<Expression>),
}

/// A value on the way.
#[derive(Clone, Debug, PartialEq)]
enum Word<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(Cow<'a, str>),
}

impl Filter {
    /// Reads a condition over the fields of a schema.
    ///
    /// # Errors
    /// `SCHEMA_MISMATCH`, with the byte of the condition at which the trouble shows.
    pub fn new(text: &str, schema: &Schema) -> Result<Filter, Problem> {
        let expr = parse(text).map_err(Fault::problem)?;
        let root = bind(&expr, schema).map_err(|(name, at)| no_field(&name, at, schema).problem())?;
        Ok(Filter { root })
    }

    /// Whether the condition is true for this row; what has no answer is not.
    #[must_use]
    pub fn keeps(&self, batch: &Batch, row: usize) -> bool {
        self.is_true(batch, row).unwrap_or(false)
    }

    /// Whether the condition is true for this row; null is not true.
    ///
    /// # Errors
    /// `SCHEMA_MISMATCH` if there is no answer because values cannot be compared, or the result is no
    /// truth value.
    pub fn is_true(&self, batch: &Batch, row: usize) -> Result<bool, Problem> {
        match truth(eval(&self.root, batch, row)) {
            Ok(known) => Ok(known.unwrap_or(false)),
            Err(problem) => Err(problem),
        }
    }
}

/// The name and the place of a field that the schema does not have, else the expression with the
/// places of its fields.
fn bind(expr: &Expr, schema: &Schema) -> Result<Expression, (String, usize)> {
    let all = |list: &[Expr]| list.iter().map(|expr| bind(expr, schema)).collect::<Result<Vec<_>, _>>();
    Ok(match expr {
        Expr::Field(name, at) => {
            Expression::Field(find(name, schema).ok_or_else(|| (name.clone(), *at))?, name.clone())
        }
        Expr::Own(own) => Expression::Own(*own),
        Expr::Literal(literal) => Expression::Literal(literal.clone()),
        Expr::Unary(operator, inner) => Expression::Unary(*operator, Box::new(bind(inner, schema)?)),
        Expr::Binary(operator @ (Binary::And | Binary::Or), left, right) => {
            // A long row is a deep tree, which need not be walked by recursion.
            let (mut parts, mut rest) = (vec![bind(right, schema)?], left.as_ref());
            while let Expr::Binary(same, left, right) = rest
                && same == operator
            {
                parts.push(bind(right, schema)?);
                rest = left;
            }
            parts.push(bind(rest, schema)?);
            parts.reverse();
            Expression::Logic(*operator == Binary::Or, parts)
        }
        Expr::Binary(operator, left, right) => {
            Expression::Binary(*operator, Box::new(bind(left, schema)?), Box::new(bind(right, schema)?))
        }
        Expr::In(left, list) => Expression::In(Box::new(bind(left, schema)?), all(list)?),
        Expr::Call(function, list) => Expression::Call(*function, all(list)?),
    })
}

fn refuse(message: String) -> Problem {
    Problem::new(Code::SCHEMA_MISMATCH, message)
}

fn show(word: &Word<'_>) -> String {
    match word {
        Word::Null => "null".into(),
        Word::Bool(b) => b.to_string(),
        Word::Int(i) => i.to_string(),
        Word::Real(x) => x.to_string(),
        Word::Text(text) => format!("'{}'", text.chars().take(60).collect::<String>()),
    }
}

type Said<'a> = Result<Word<'a>, Problem>;

fn eval<'a>(node: &'a Expression, batch: &'a Batch, row: usize) -> Said<'a> {
    Ok(match node {
        Expression::Field(at, name) => match batch.value(row, *at) {
            Value::Null => Word::Null,
            Value::Bool(b) => Word::Bool(b),
            Value::Int(i) => Word::Int(i),
            Value::Real(x) => Word::Real(x),
            Value::Text(text) | Value::Json(text) => Word::Text(text.into()),
            Value::Bytes(_) => return Err(refuse("bytes cannot be compared".into()).under(name)),
        },
        Expression::Own(Own::Shape) => {
            let shape = batch.geometry(row).and_then(wkb::head);
            shape.map_or(Word::Null, |(shape, _)| Word::Text(shape.name().into()))
        }
        Expression::Own(Own::Id) => {
            batch.id(row).map_or(Word::Null, |id| Word::Text(id.trim_matches('"').into()))
        }
        Expression::Own(Own::Record) => Word::Int(i64::try_from(batch.record(row)).unwrap_or(i64::MAX)),
        Expression::Literal(Literal::Null) => Word::Null,
        Expression::Literal(Literal::Bool(b)) => Word::Bool(*b),
        Expression::Literal(Literal::Int(i)) => Word::Int(*i),
        Expression::Literal(Literal::Real(x)) => Word::Real(*x),
        Expression::Literal(Literal::Text(text)) => Word::Text(text.as_str().into()),
        Expression::Unary(Unary::IsNull, inner) => Word::Bool(eval(inner, batch, row)? == Word::Null),
        Expression::Unary(Unary::Not, inner) => said(truth(eval(inner, batch, row))?.map(|b| !b)),
        Expression::Unary(Unary::Minus, inner) => match eval(inner, batch, row)? {
            Word::Null => Word::Null,
            Word::Int(i) => i.checked_neg().map_or(Word::Real(-(i as f64)), Word::Int),
            other => {
                let number =
                    number(&other).ok_or_else(|| refuse(format!("{} is not a number", show(&other))));
                Word::Real(-number?)
            }
        },
        Expression::Logic(decides, parts) => {
            any(parts.iter().map(|part| truth(eval(part, batch, row))), *decides)?
        }
        Expression::Binary(operator, left, right) => {
            binary(*operator, eval(left, batch, row)?, eval(right, batch, row)?)?
        }
        Expression::In(left, list) => {
            let left = eval(left, batch, row)?;
            let same = |item| truth(binary(Binary::Equal, left.clone(), eval(item, batch, row)?));
            any(list.iter().map(same), true)?
        }
        Expression::Call(Function::HasGeometry, _) => Word::Bool(batch.geometry(row).is_some()),
        Expression::Call(Function::Coalesce, list) => {
            for item in list {
                let word = eval(item, batch, row)?;
                if word != Word::Null {
                    return Ok(word);
                }
            }
            Word::Null
        }
        Expression::Call(function, list) => {
            let Some(inner) = list.first() else { return Ok(Word::Null) };
            call(*function, eval(inner, batch, row)?)?
        }
    })
}

fn said<'a>(truth: Option<bool>) -> Word<'a> {
    truth.map_or(Word::Null, Word::Bool)
}

/// A word as a truth value. A text may spell one, as in CSV.
fn truth(word: Said<'_>) -> Result<Option<bool>, Problem> {
    match word? {
        Word::Null => Ok(None),
        Word::Bool(b) => Ok(Some(b)),
        other => match &other {
            Word::Text(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Word::Text(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            _ => Err(refuse(format!("{} is not true or false", show(&other)))),
        },
    }
}

/// The value that decides as soon as one says it; else unknown if one is unknown, and why if one
/// knows why.
fn any<'a>(
    parts: impl Iterator<Item = Result<Option<bool>, Problem>>,
    decides: bool,
) -> Result<Word<'a>, Problem> {
    let mut unknown = Ok(false);
    for part in parts {
        match part {
            Ok(Some(said)) if said == decides => return Ok(Word::Bool(decides)),
            Ok(Some(_)) => {}
            Ok(None) => unknown = unknown.map(|_| true),
            Err(problem) => unknown = Err(problem),
        }
    }
    unknown.map(|unknown| if unknown { Word::Null } else { Word::Bool(!decides) })
}

fn call(function: Function, word: Word<'_>) -> Said<'_> {
    Ok(match (function, word) {
        (_, Word::Null) => Word::Null,
        (Function::Lower, Word::Text(text)) => Word::Text(text.to_lowercase().into()),
        (Function::Upper, Word::Text(text)) => Word::Text(text.to_uppercase().into()),
        (Function::Trim, Word::Text(text)) => Word::Text(text.trim().to_owned().into()),
        (Function::Length, Word::Text(text)) => {
            Word::Int(i64::try_from(text.chars().count()).unwrap_or(i64::MAX))
        }
        (Function::Abs, Word::Int(i)) => Word::Int(i.saturating_abs()),
        (Function::Abs, other) => match number(&other) {
            Some(x) => Word::Real(x.abs()),
            None => return Err(refuse(format!("`abs` does not take {}", show(&other)))),
        },
        (_, other) => return Err(refuse(format!("the function does not take {}", show(&other)))),
    })
}

fn binary<'a>(operator: Binary, left: Word<'a>, right: Word<'a>) -> Said<'a> {
    if left == Word::Null || right == Word::Null {
        return Ok(Word::Null);
    }
    if matches!(operator, Binary::Like | Binary::AnyLike) {
        let text = |word: &Word<'a>| match word {
            Word::Text(text) => Ok(text.clone()),
            Word::Int(i) => Ok(i.to_string().into()),
            other => Err(refuse(format!("{} is not a string", show(other)))),
        };
        let (text, pattern) = (text(&left)?, text(&right)?);
        return Ok(Word::Bool(match operator {
            Binary::Like => like(&text, &pattern),
            _ => like(&text.to_lowercase(), &pattern.to_lowercase()),
        }));
    }
    if matches!(operator, Binary::Plus | Binary::Minus | Binary::Times | Binary::Over) {
        return arithmetic(operator, &left, &right);
    }
    let order = compare(&left, &right)
        .ok_or_else(|| refuse(format!("{} and {} cannot be compared", show(&left), show(&right))))?;
    Ok(Word::Bool(match operator {
        Binary::Equal => order.is_eq(),
        Binary::Unequal => order.is_ne(),
        Binary::Less => order.is_lt(),
        Binary::AtMost => order.is_le(),
        Binary::More => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn arithmetic<'a>(operator: Binary, left: &Word<'_>, right: &Word<'_>) -> Said<'a> {
    if let (Word::Int(a), Word::Int(b)) = (left, right) {
        let whole = match operator {
            Binary::Plus => a.checked_add(*b),
            Binary::Minus => a.checked_sub(*b),
            Binary::Times => a.checked_mul(*b),
            _ => None,
        };
        if let Some(whole) = whole {
            return Ok(Word::Int(whole));
        }
    }
    let (Some(a), Some(b)) = (number(left), number(right)) else {
        return Err(refuse(format!("{} and {} are not both numbers", show(left), show(right))));
    };
    let (made, sign) = match operator {
        Binary::Plus => (a + b, '+'),
        Binary::Minus => (a - b, '-'),
        Binary::Times => (a * b, '*'),
        _ => (a / b, '/'),
    };
    if made.is_finite() { Ok(Word::Real(made)) } else { Err(refuse(format!("{a} {sign} {b} has no value"))) }
}

/// A number, or the one that a text spells.
fn number(word: &Word<'_>) -> Option<f64> {
    match word {
        Word::Int(i) => Some(*i as f64),
        Word::Real(x) => Some(*x),
        Word::Text(text) => fast_float2::parse(text.trim()).ok(),
        Word::Bool(_) | Word::Null => None,
    }
}

/// How two values stand to each other; `None` if that cannot be said.
fn compare(left: &Word<'_>, right: &Word<'_>) -> Option<Ordering> {
    match (left, right) {
        (Word::Int(a), Word::Int(b)) => Some(a.cmp(b)),
        (Word::Text(a), Word::Text(b)) => Some(a.cmp(b)),
        (Word::Bool(_), _) | (_, Word::Bool(_)) => Some(flag(left)?.cmp(&flag(right)?)),
        _ => number(left)?.partial_cmp(&number(right)?),
    }
}

/// A flag, as formats without flags write it.
fn flag(word: &Word<'_>) -> Option<bool> {
    match word {
        Word::Bool(b) => Some(*b),
        Word::Int(0) => Some(false),
        Word::Int(1) => Some(true),
        Word::Text(text) => match text.trim() {
            t if t.eq_ignore_ascii_case("true") || t == "1" => Some(true),
            f if f.eq_ignore_ascii_case("false") || f == "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a text fits a pattern of `%` and `_`. Going back only to the last `%` keeps the cost at the
/// product of both lengths, whatever the pattern.
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
