//! The expressions of `filter`: small, total, without side effects.
//!
//! `population > 1000 and not (state in ('sold', 'void') or owner is null)`
//!
//! A name is a field (`"in quotes"` if it is not a plain word), a text stands in single quotes.
//! As in SQL, a comparison with null is null, and null is not true. Unlike SQL nothing is
//! converted behind one's back: a text is not compared with a number, the record is refused
//! instead, with the place. Nothing here allocates per record but `lower`, `upper` and arithmetic
//! on nothing; depth and length are bounded, so that no manifest can exhaust the stack.

mod eval;
mod parse;

use std::fmt;

pub use eval::Bound;
pub use parse::parse;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A field.
    Field(String),
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

/// A fixed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(f64),
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
