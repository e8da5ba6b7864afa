//! From text to expression: a tokenizer and precedence climbing.

use super::{Binary, Expr, Fault, Function, Literal, Unary};

/// The deepest nesting.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Text(String),
    Number(f64),
    Sign(&'static str),
    End,
}

/// The expression of a text.
///
/// # Errors
/// The first thing that does not fit, with its place.
pub fn parse(text: &str) -> Result<Expr, Fault> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens, at: 0 };
    let expr = parser.expr(0, 0)?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(parser.fault("something is left over here")),
    }
}

const SIGNS: [&str; 14] = ["<=", ">=", "<>", "!=", "==", "(", ")", ",", "=", "<", ">", "+", "-", "*"];

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        let start = at;
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if c == '\'' || c == '"' {
            let (value, len) =
                quoted(rest, c).ok_or_else(|| Fault { at, message: "a quote is not closed".into() })?;
            at += len;
            out.push((start, if c == '"' { Token::Quoted(value) } else { Token::Text(value) }));
        } else if c.is_ascii_digit() || (c == '.' && rest.chars().nth(1).is_some_and(|d| d.is_ascii_digit()))
        {
            let mut len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            let exponent = rest.get(len..).unwrap_or_default();
            if exponent.starts_with(['e', 'E']) {
                let sign = usize::from(exponent.get(1..2).is_some_and(|s| s == "+" || s == "-"));
                let digits = exponent.bytes().skip(1 + sign).take_while(u8::is_ascii_digit).count();
                if digits > 0 {
                    len += 1 + sign + digits;
                }
            }
            let number = rest.get(..len).unwrap_or_default().parse();
            at += len;
            out.push((
                start,
                Token::Number(
                    number.map_err(|_| Fault { at: start, message: "this is not a number".into() })?,
                ),
            ));
        } else if c.is_alphabetic() || c == '_' {
            let len: usize = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
                .map(char::len_utf8)
                .sum();
            at += len;
            out.push((start, Token::Word(rest.get(..len).unwrap_or_default().to_owned())));
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            at += sign.len();
            out.push((start, Token::Sign(sign)));
        } else if c == '/' {
            at += 1;
            out.push((start, Token::Sign("/")));
        } else {
            return Err(Fault { at, message: format!("`{}` means nothing here", c.escape_debug()) });
        }
    }
    out.push((text.len(), Token::End));
    Ok(out)
}

/// What stands between quotes, which are doubled inside, and how long it is with them.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            value.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
            value.push(c);
            chars.next();
        } else {
            return Some((value, at + 1));
        }
    }
    None
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn fault(&self, message: &str) -> Fault {
        let at = self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |(at, _)| *at);
        Fault { at, message: message.into() }
    }

    fn word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let there = self.word(word);
        self.at += usize::from(there);
        there
    }

    fn eat(&mut self, sign: &str) -> bool {
        let there = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.at += usize::from(there);
        there
    }

    fn want(&mut self, sign: &str) -> Result<(), Fault> {
        if self.eat(sign) { Ok(()) } else { Err(self.fault(&format!("`{sign}` is expected here"))) }
    }

    /// The operator that stands here, with its rank.
    fn operator(&self) -> Option<(Binary, u8)> {
        Some(match self.peek() {
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "or" => (Binary::Or, 1),
                "and" => (Binary::And, 2),
                "like" => (Binary::Like, 4),
                _ => return None,
            },
            Token::Sign(sign) => match *sign {
                "=" | "==" => (Binary::Equal, 4),
                "!=" | "<>" => (Binary::Unequal, 4),
                "<" => (Binary::Less, 4),
                "<=" => (Binary::AtMost, 4),
                ">" => (Binary::More, 4),
                ">=" => (Binary::AtLeast, 4),
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
        loop {
            if rank_min <= 4 && (self.word("is") || self.word("in") || self.word("not")) {
                left = self.after(left, depth)?;
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

    /// `is null`, `is not null`, `in (…)`, `not in (…)`, `not like …`.
    fn after(&mut self, left: Expr, depth: usize) -> Result<Expr, Fault> {
        let not = |expr| Expr::Unary(Unary::Not, Box::new(expr));
        if self.eat_word("is") {
            let negated = self.eat_word("not");
            if !self.eat_word("null") {
                return Err(self.fault("`null` is expected here"));
            }
            let is_null = Expr::Unary(Unary::IsNull, Box::new(left));
            return Ok(if negated { not(is_null) } else { is_null });
        }
        let negated = self.eat_word("not");
        if self.eat_word("in") {
            self.want("(")?;
            let found = Expr::In(Box::new(left), self.list(depth)?);
            return Ok(if negated { not(found) } else { found });
        }
        if negated && self.eat_word("like") {
            let pattern = self.expr(5, depth + 1)?;
            return Ok(not(Expr::Binary(Binary::Like, Box::new(left), Box::new(pattern))));
        }
        Err(self.fault("`in` or `like` is expected here"))
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
        let fault = self.fault("a field, a number or a text in single quotes is expected here");
        match self.next() {
            Token::Number(number) => Ok(Expr::Literal(Literal::Number(number))),
            Token::Text(text) => Ok(Expr::Literal(Literal::Text(text))),
            Token::Quoted(name) => Ok(Expr::Field(name)),
            Token::Word(word) => self.named(word, depth),
            Token::Sign(_) | Token::End => Err(fault),
        }
    }

    fn named(&mut self, word: String, depth: usize) -> Result<Expr, Fault> {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "true" | "false" => return Ok(Expr::Literal(Literal::Bool(lower == "true"))),
            "null" => return Ok(Expr::Literal(Literal::Null)),
            "and" | "or" | "in" | "is" | "like" => {
                self.at -= 1;
                return Err(self.fault(&format!(
                    "`{word}` cannot stand here; a field of that name needs double quotes"
                )));
            }
            _ => {}
        }
        if !self.eat("(") {
            return Ok(Expr::Field(word));
        }
        let Some((_, function)) = Function::ALL.iter().find(|(name, _)| *name == lower) else {
            self.at -= 2;
            let names: Vec<_> = Function::ALL.iter().map(|(name, _)| *name).collect();
            return Err(self.fault(&format!("there is no function `{word}`; there are {}", names.join(", "))));
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
            Err(self.fault("the function takes another number of values"))
        }
    }
}
