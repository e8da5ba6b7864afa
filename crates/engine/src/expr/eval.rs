//! What an expression says of a record.

use std::borrow::Cow;
use std::cmp::Ordering;

use tidegate_core::Code;
use tidegate_geo::{Batch, Problem, Schema, Value};

use super::{Binary, Expr, Function, Literal, Unary};

/// An expression whose fields have been found in a schema.
#[derive(Clone, Debug)]
pub struct Bound {
    expr: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Field(usize, String),
    Literal(Literal),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    In(Box<Node>, Vec<Node>),
    Call(Function, Vec<Node>),
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

impl Bound {
    /// Finds the fields of an expression.
    ///
    /// # Errors
    /// The name of a field that the schema does not have.
    pub fn new(expr: &Expr, schema: &Schema) -> Result<Bound, String> {
        Ok(Bound { expr: bind(expr, schema)? })
    }

    /// Whether the expression is true of a record; null is not true.
    ///
    /// # Errors
    /// `SCHEMA_MISMATCH` if values of different types are compared or the result is no truth value.
    pub fn is_true(&self, batch: &Batch, row: usize) -> Result<bool, Problem> {
        match eval(&self.expr, batch, row)? {
            Word::Bool(found) => Ok(found),
            Word::Null => Ok(false),
            other => Err(refuse(format!("the expression gives {}, not true or false", show(&other)))),
        }
    }
}

fn bind(expr: &Expr, schema: &Schema) -> Result<Node, String> {
    let all = |list: &[Expr]| list.iter().map(|expr| bind(expr, schema)).collect::<Result<Vec<_>, _>>();
    Ok(match expr {
        Expr::Field(name) => Node::Field(schema.position(name).ok_or_else(|| name.clone())?, name.clone()),
        Expr::Literal(literal) => Node::Literal(literal.clone()),
        Expr::Unary(operator, inner) => Node::Unary(*operator, Box::new(bind(inner, schema)?)),
        Expr::Binary(operator, left, right) => {
            Node::Binary(*operator, Box::new(bind(left, schema)?), Box::new(bind(right, schema)?))
        }
        Expr::In(left, list) => Node::In(Box::new(bind(left, schema)?), all(list)?),
        Expr::Call(function, list) => Node::Call(*function, all(list)?),
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

fn eval<'a>(node: &'a Node, batch: &'a Batch, row: usize) -> Result<Word<'a>, Problem> {
    Ok(match node {
        Node::Field(at, name) => match batch.value(row, *at) {
            Value::Null => Word::Null,
            Value::Bool(b) => Word::Bool(b),
            Value::Int(i) => Word::Int(i),
            Value::Real(x) => Word::Real(x),
            Value::Text(text) | Value::Json(text) => Word::Text(text.into()),
            Value::Bytes(_) => return Err(refuse("bytes cannot be compared".into()).under(name)),
        },
        Node::Literal(Literal::Null) => Word::Null,
        Node::Literal(Literal::Bool(b)) => Word::Bool(*b),
        Node::Literal(Literal::Number(x)) => Word::Real(*x),
        Node::Literal(Literal::Text(text)) => Word::Text(text.as_str().into()),
        Node::Unary(operator, inner) => match (operator, eval(inner, batch, row)?) {
            (Unary::IsNull, word) => Word::Bool(word == Word::Null),
            (_, Word::Null) => Word::Null,
            (Unary::Not, Word::Bool(b)) => Word::Bool(!b),
            (Unary::Minus, Word::Int(i)) => i.checked_neg().map_or(Word::Real(-(i as f64)), Word::Int),
            (Unary::Minus, Word::Real(x)) => Word::Real(-x),
            (Unary::Not, other) => return Err(refuse(format!("not {} says nothing", show(&other)))),
            (Unary::Minus, other) => return Err(refuse(format!("{} is not a number", show(&other)))),
        },
        Node::Binary(Binary::And, left, right) => logic(left, right, batch, row, false)?,
        Node::Binary(Binary::Or, left, right) => logic(left, right, batch, row, true)?,
        Node::Binary(operator, left, right) => {
            binary(*operator, eval(left, batch, row)?, eval(right, batch, row)?)?
        }
        Node::In(left, list) => {
            let left = eval(left, batch, row)?;
            if left == Word::Null {
                return Ok(Word::Null);
            }
            let mut unknown = false;
            for item in list {
                match binary(Binary::Equal, left.clone(), eval(item, batch, row)?)? {
                    Word::Bool(true) => return Ok(Word::Bool(true)),
                    Word::Null => unknown = true,
                    _ => {}
                }
            }
            if unknown { Word::Null } else { Word::Bool(false) }
        }
        Node::Call(Function::HasGeometry, _) => Word::Bool(batch.geometry(row).is_some()),
        Node::Call(Function::Coalesce, list) => {
            for item in list {
                let word = eval(item, batch, row)?;
                if word != Word::Null {
                    return Ok(word);
                }
            }
            Word::Null
        }
        Node::Call(function, list) => {
            let Some(inner) = list.first() else { return Ok(Word::Null) };
            call(*function, eval(inner, batch, row)?)?
        }
    })
}

fn call(function: Function, word: Word<'_>) -> Result<Word<'_>, Problem> {
    Ok(match (function, word) {
        (_, Word::Null) => Word::Null,
        (Function::Lower, Word::Text(text)) => Word::Text(text.to_lowercase().into()),
        (Function::Upper, Word::Text(text)) => Word::Text(text.to_uppercase().into()),
        (Function::Trim, Word::Text(text)) => Word::Text(text.trim().to_owned().into()),
        (Function::Length, Word::Text(text)) => Word::Int(text.chars().count() as i64),
        (Function::Abs, Word::Int(i)) => Word::Int(i.saturating_abs()),
        (Function::Abs, Word::Real(x)) => Word::Real(x.abs()),
        (_, other) => return Err(refuse(format!("the function does not take {}", show(&other)))),
    })
}

/// `and` and `or`: `decides` is the value that decides whatever the other side says.
fn logic<'a>(
    left: &'a Node,
    right: &'a Node,
    batch: &'a Batch,
    row: usize,
    decides: bool,
) -> Result<Word<'a>, Problem> {
    let truth = |word: Word<'_>| match word {
        Word::Bool(b) => Ok(Some(b)),
        Word::Null => Ok(None),
        other => Err(refuse(format!("{} is neither true nor false", show(&other)))),
    };
    let left = truth(eval(left, batch, row)?)?;
    if left == Some(decides) {
        return Ok(Word::Bool(decides));
    }
    let right = truth(eval(right, batch, row)?)?;
    Ok(match (left, right) {
        (_, Some(right)) if right == decides => Word::Bool(decides),
        (Some(_), Some(_)) => Word::Bool(!decides),
        _ => Word::Null,
    })
}

fn binary<'a>(operator: Binary, left: Word<'a>, right: Word<'a>) -> Result<Word<'a>, Problem> {
    if left == Word::Null || right == Word::Null {
        return Ok(Word::Null);
    }
    if operator == Binary::Like {
        let (Word::Text(text), Word::Text(pattern)) = (&left, &right) else {
            return Err(refuse(format!(
                "{} is not a text",
                show(if matches!(left, Word::Text(_)) { &right } else { &left })
            )));
        };
        return Ok(Word::Bool(like(text, pattern)));
    }
    if matches!(operator, Binary::Plus | Binary::Minus | Binary::Times | Binary::Over) {
        return arithmetic(operator, &left, &right);
    }
    let order = compare(&left, &right)
        .ok_or_else(|| refuse(format!("{} and {} cannot be compared", show(&left), show(&right))))?;
    Ok(Word::Bool(match operator {
        Binary::Equal => order == Some(Ordering::Equal),
        Binary::Unequal => order != Some(Ordering::Equal),
        Binary::Less => order == Some(Ordering::Less),
        Binary::AtMost => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Binary::More => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }))
}

fn arithmetic<'a>(operator: Binary, left: &Word<'_>, right: &Word<'_>) -> Result<Word<'a>, Problem> {
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
    let made = match operator {
        Binary::Plus => a + b,
        Binary::Minus => a - b,
        Binary::Times => a * b,
        _ => a / b,
    };
    if made.is_finite() { Ok(Word::Real(made)) } else { Err(refuse(format!("{a} / {b} has no value"))) }
}

fn number(word: &Word<'_>) -> Option<f64> {
    match word {
        Word::Int(i) => Some(*i as f64),
        Word::Real(x) => Some(*x),
        _ => None,
    }
}

/// How two values of one type stand to each other; `None` if they are not of one type.
fn compare(left: &Word<'_>, right: &Word<'_>) -> Option<Option<Ordering>> {
    match (left, right) {
        (Word::Bool(a), Word::Bool(b)) => Some(Some(a.cmp(b))),
        (Word::Int(a), Word::Int(b)) => Some(Some(a.cmp(b))),
        (Word::Text(a), Word::Text(b)) => Some(Some(a.cmp(b))),
        _ => Some(number(left)?.partial_cmp(&number(right)?)),
    }
}

/// Whether a text fits a pattern of `%` and `_`. Linear but for the last `%`, to which it goes
/// back: no pattern takes exponential time.
fn like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut t, mut p) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('%') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '_' || text.get(t) == Some(c) => {
                t += 1;
                p += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
        }
    }
    pattern.iter().skip(p).all(|c| *c == '%')
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::sync::Arc;
    use tidegate_geo::Kind;

    fn batch() -> Batch {
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
        let batch = batch();
        let expr = parse(text).map_err(|e| e.to_string())?;
        Bound::new(&expr, batch.schema())?.is_true(&batch, 0).map_err(|e| e.message)
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
            ("n", "not true or false"),
            ("nope = 1", "nope"),
            ("n = ", "expected here at character 5"),
            ("n = 1 1", "left over here at character 7"),
            ("(n = 1", "`)` is expected"),
            ("name = 'x", "not closed"),
            ("f(n)", "no function `f`"),
            ("n / 0 = 1", "no value"),
            ("n # 1", "means nothing"),
            ("and", "double quotes"),
            ("lower(n) = 'a'", "does not take"),
        ] {
            let told = ask(text).unwrap_err();
            assert!(told.contains(says), "{text}: {told}");
        }
        assert!(parse(&"(".repeat(10_000)).is_err());
        assert!(parse(&format!("{}1", "not ".repeat(10_000))).is_err());
    }
}
