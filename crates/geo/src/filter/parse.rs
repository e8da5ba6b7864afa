//! From words to an expression, by precedence climbing.

use super::lex::{Token, lex};
use super::{Binary, Expr, Fault, Function, Literal, Own, Unary};

/// The deepest nesting, and the longest row of operators.
const DEPTH_MAX: usize = 64;
const LENGTH_MAX: usize = 1000;

/// The expression of a text.
///
/// # Errors
/// The first thing that does not fit, with its place.
pub fn parse(text: &str) -> Result<Expr, Fault> {
    let mut parser = Parser { tokens: lex(text)?, at: 0 };
    let expr = parser.expr(0, 0)?;
    match parser.peek() {
        Token::End => Ok(expr),
        token => Err(parser.fault(&format!("unexpected {}", shown(token)))),
    }
}

fn shown(token: &Token) -> String {
    match token {
        Token::Word(word) | Token::Number(word) => format!("'{word}'"),
        Token::Mark(mark) => format!("'{mark}'"),
        Token::Name(name) => format!("\"{name}\""),
        Token::Text(text) => format!("the string '{text}'"),
        Token::End => "the end".into(),
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

/// How tightly comparisons bind; what is tighter is arithmetic.
const COMPARES: u8 = 4;

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |(at, _)| *at)
    }

    fn fault(&self, message: &str) -> Fault {
        Fault { at: self.place(), message: message.into() }
    }

    fn word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let there = self.word(word);
        self.at += usize::from(there);
        there
    }

    fn eat(&mut self, mark: &str) -> bool {
        let there = matches!(self.peek(), Token::Mark(found) if *found == mark);
        self.at += usize::from(there);
        there
    }

    fn want(&mut self, mark: &str) -> Result<(), Fault> {
        if self.eat(mark) { Ok(()) } else { Err(self.fault(&format!("expected `{mark}`"))) }
    }

    /// The operator that stands here, with its rank.
    fn operator(&self) -> Option<(Binary, u8)> {
        Some(match self.peek() {
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "or" => (Binary::Or, 1),
                "and" => (Binary::And, 2),
                _ => return None,
            },
            Token::Mark(mark) => match *mark {
                "=" | "==" => (Binary::Equal, COMPARES),
                "!=" | "<>" => (Binary::Unequal, COMPARES),
                "<" => (Binary::Less, COMPARES),
                "<=" => (Binary::AtMost, COMPARES),
                ">" => (Binary::More, COMPARES),
                ">=" => (Binary::AtLeast, COMPARES),
                "+" => (Binary::Plus, 5),
                "-" => (Binary::Minus, 5),
                "*" => (Binary::Times, 6),
                "/" => (Binary::Over, 6),
                _ => return None,
            },
            _ => return None,
        })
    }

    fn expr(&mut self, rank_min: u8, depth: usize) -> Result<Expr, Fault> {
        if depth > DEPTH_MAX {
            return Err(self.fault("the expression is nested too deeply"));
        }
        let mut left = self.unary(depth)?;
        let mut length = 0;
        loop {
            // Each adds a level to the tree, which is walked by recursion.
            length += 1;
            if length > LENGTH_MAX {
                return Err(self.fault("the expression is too long"));
            }
            let test = ["is", "in", "not", "between", "like", "ilike"].iter().any(|word| self.word(word));
            if rank_min <= COMPARES && test {
                left = self.test(left, depth)?;
                continue;
            }
            let Some((operator, rank)) = self.operator().filter(|(_, rank)| *rank >= rank_min) else {
                return Ok(left);
            };
            self.at += 1;
            let right = self.expr(rank + 1, depth + 1)?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    /// `is [not] null`, `[not] in (…)`, `[not] between … and …`, `[not] like …`.
    fn test(&mut self, left: Expr, depth: usize) -> Result<Expr, Fault> {
        let negate = |negated, expr| if negated { Expr::Unary(Unary::Not, Box::new(expr)) } else { expr };
        let binary = |operator, left, right| Expr::Binary(operator, Box::new(left), Box::new(right));
        if self.eat_word("is") {
            let negated = self.eat_word("not");
            if !self.eat_word("null") {
                return Err(self.fault("expected `null`"));
            }
            return Ok(negate(negated, Expr::Unary(Unary::IsNull, Box::new(left))));
        }
        let negated = self.eat_word("not");
        if self.eat_word("in") {
            self.want("(")?;
            return Ok(negate(negated, Expr::In(Box::new(left), self.list(depth)?)));
        }
        if self.eat_word("between") {
            let low = self.expr(COMPARES + 1, depth + 1)?;
            if !self.eat_word("and") {
                return Err(self.fault("expected `and` and the upper bound of `between`"));
            }
            let high = self.expr(COMPARES + 1, depth + 1)?;
            let (low, high) =
                (binary(Binary::AtLeast, left.clone(), low), binary(Binary::AtMost, left, high));
            return Ok(negate(negated, binary(Binary::And, low, high)));
        }
        for (word, operator) in [("like", Binary::Like), ("ilike", Binary::AnyLike)] {
            if self.eat_word(word) {
                let place = self.place();
                let pattern = self.expr(COMPARES + 1, depth + 1)?;
                if matches!(pattern, Expr::Literal(Literal::Int(_) | Literal::Real(_) | Literal::Bool(_))) {
                    let message = format!("the pattern of `{word}` must be a string in single quotes");
                    return Err(Fault { at: place, message });
                }
                return Ok(negate(negated, binary(operator, left, pattern)));
            }
        }
        Err(self.fault("expected `in`, `between` or `like`"))
    }

    /// Expressions up to the closing bracket.
    fn list(&mut self, depth: usize) -> Result<Vec<Expr>, Fault> {
        let mut list = Vec::new();
        if self.eat(")") {
            return Ok(list);
        }
        loop {
            list.push(self.expr(0, depth + 1)?);
            if self.eat(")") {
                return Ok(list);
            }
            self.want(",")?;
        }
    }

    fn unary(&mut self, depth: usize) -> Result<Expr, Fault> {
        if self.eat_word("not") {
            return Ok(Expr::Unary(Unary::Not, Box::new(self.expr(3, depth + 1)?)));
        }
        if self.eat("-") {
            return Ok(Expr::Unary(Unary::Minus, Box::new(self.expr(7, depth + 1)?)));
        }
        if self.eat("(") {
            let inner = self.expr(0, depth + 1)?;
            self.want(")")?;
            return Ok(inner);
        }
        let place = self.place();
        let token = self.peek().clone();
        self.at += 1;
        match token {
            Token::Number(text) => number(&text, place).map(Expr::Literal),
            Token::Text(text) => Ok(Expr::Literal(Literal::Text(text))),
            Token::Name(name) => Ok(Expr::Field(name, place)),
            Token::Word(word) => self.named(word, place, depth),
            Token::Mark(_) | Token::End => {
                let ends = if token == Token::End { "unexpected end; " } else { "" };
                let message = format!("{ends}expected a field, a number or a string in single quotes");
                Err(Fault { at: place, message })
            }
        }
    }

    /// A word that is no operator.
    fn named(&mut self, word: String, place: usize, depth: usize) -> Result<Expr, Fault> {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "true" | "false" => return Ok(Expr::Literal(Literal::Bool(lower == "true"))),
            "null" => return Ok(Expr::Literal(Literal::Null)),
            "$shape" => return Ok(Expr::Own(Own::Shape)),
            "$id" => return Ok(Expr::Own(Own::Id)),
            "$record" => return Ok(Expr::Own(Own::Record)),
            "and" | "or" | "in" | "is" | "like" | "ilike" | "between" => {
                let message = format!("unexpected `{word}`; put a field of that name in double quotes");
                return Err(Fault { at: place, message });
            }
            _ => {}
        }
        if !self.eat("(") {
            return Ok(Expr::Field(word, place));
        }
        let Some((_, function)) = Function::ALL.iter().find(|(name, _)| *name == lower) else {
            let names: Vec<_> = Function::ALL.iter().map(|(name, _)| *name).collect();
            let message = format!("unknown function `{word}`; expected one of {}", names.join(", "));
            return Err(Fault { at: place, message });
        };
        let arguments = self.list(depth)?;
        let count = match function {
            Function::HasGeometry => arguments.is_empty(),
            Function::Coalesce => !arguments.is_empty(),
            _ => arguments.len() == 1,
        };
        if count {
            Ok(Expr::Call(*function, arguments))
        } else {
            Err(Fault { at: place, message: format!("wrong number of arguments for `{word}`") })
        }
    }
}

fn number(text: &str, at: usize) -> Result<Literal, Fault> {
    let int = text.parse().ok().map(Literal::Int);
    let number = int.or_else(|| fast_float2::parse(text).ok().map(Literal::Real));
    number.ok_or_else(|| Fault { at, message: format!("'{text}' is not a number") })
}
