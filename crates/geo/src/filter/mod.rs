//! Which features: the one language of conditions, of `--where` and of a pipeline's `filter`.
//!
//! `population > 1000 and not (state in ('sold', 'void') or owner is null)`
//!
//! The words of SQL: comparisons, `and`, `or`, `not`, `in`, `between`, `like`, `ilike`, `is null`,
//! arithmetic and a few functions, over fields, numbers and texts. A field's name may stand bare or in
//! double quotes, a text stands in single quotes. Besides the fields there are `$shape` (`'Polygon'`),
//! `$id` and `$record` (from 0).
//!
//! Logic has three values, as in SQL: what is compared with nothing is unknown, and only what is true
//! is kept. A text beside a number counts as the number it spells, because every field of a CSV file is
//! text. What cannot be compared at all (a word with a number) is unknown as well, and the reason is
//! told if the whole condition comes to nothing else: a conversion leaves the record out, a pipeline
//! sets it aside. Names are looked up once, before the first record, so that a misspelt one is an error
//! and not an empty result.
//!
//! Why our own and not SQLite's: the batch would have to be copied into a table first, and a condition
//! out of a manifest must not reach a whole SQL engine. Depth and length are bounded, and nothing here
//! takes more than the product of the lengths of a text and a pattern.

mod eval;
mod lex;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use tidegate_core::Code;

use crate::error::Problem;
use crate::schema::Schema;

pub use eval::Filter;
pub use parse::parse;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A field, and the byte at which its name stands.
    Field(String, usize),
    /// Something that every record has.
    Own(Own),
    /// A fixed value.
    Literal(Literal),
    /// One operand.
    Unary(Unary, Box<Expr>),
    /// Two operands.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `x in (…)`.
    In(Box<Expr>, Vec<Expr>),
    /// A function.
    Call(Function, Vec<Expr>),
}

impl Expr {
    /// The first field that a schema does not have.
    #[must_use]
    pub fn unknown(&self, schema: &Schema) -> Option<&str> {
        match self {
            Expr::Field(name, _) => Some(name.as_str()).filter(|name| find(name, schema).is_none()),
            Expr::Own(_) | Expr::Literal(_) => None,
            Expr::Unary(_, inner) => inner.unknown(schema),
            Expr::Binary(_, left, right) => left.unknown(schema).or_else(|| right.unknown(schema)),
            Expr::In(left, list) => {
                left.unknown(schema).or_else(|| list.iter().find_map(|item| item.unknown(schema)))
            }
            Expr::Call(_, list) => list.iter().find_map(|item| item.unknown(schema)),
        }
    }
}

/// What every record has besides its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// `$shape`: the name of the geometry's type.
    Shape,
    /// `$id`: the feature's identifier.
    Id,
    /// `$record`: its number in the source, from 0.
    Record,
}

/// A fixed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Real(f64),
    /// A text.
    Text(String),
}

/// What one operand can have done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `not x`
    Not,
    /// `-x`
    Minus,
    /// `x is null`
    IsNull,
}

/// What two operands can have done to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Binary {
    And,
    Or,
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Plus,
    Minus,
    Times,
    Over,
    /// `x like 'a%'`: `%` is any text, `_` any one character.
    Like,
    /// The same, whatever the case.
    AnyLike,
}

/// The functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Function {
    Lower,
    Upper,
    Trim,
    Length,
    Abs,
    /// The first value that is not null.
    Coalesce,
    /// Whether the record has a geometry.
    HasGeometry,
}

impl Function {
    const ALL: [(&'static str, Function); 7] = [
        ("lower", Function::Lower),
        ("upper", Function::Upper),
        ("trim", Function::Trim),
        ("length", Function::Length),
        ("abs", Function::Abs),
        ("coalesce", Function::Coalesce),
        ("has_geometry", Function::HasGeometry),
    ];
}

/// What is wrong with an expression, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The byte at which it shows.
    pub at: usize,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.message, self.at + 1)
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// As a problem of the command.
    fn problem(self) -> Problem {
        Problem::new(Code::SCHEMA_MISMATCH, format!("the condition: {}", self.message)).at(self.at as u64)
    }
}

/// The place of a field of exactly this name, or of the only one that differs in case.
fn find(name: &str, schema: &Schema) -> Option<usize> {
    let alike = || {
        let mut alike = schema.fields().iter().enumerate().filter(|(_, f)| f.name.eq_ignore_ascii_case(name));
        alike.next().filter(|_| alike.next().is_none()).map(|(at, _)| at)
    };
    schema.position(name).or_else(alike)
}

fn no_field(name: &str, at: usize, schema: &Schema) -> Fault {
    let known: Vec<&str> = schema.fields().iter().take(30).map(|field| field.name.as_str()).collect();
    Fault { at, message: format!("no field {name:?}; expected one of {}", known.join(", ")) }
}
