//! From words to a condition.

use super::lex::{Token, lex, wrong};
use super::{Node, Operand, Test};
use crate::error::Problem;
use crate::schema::Schema;

/// How deep a condition may nest.
const DEPTH_MAX: usize = 64;

pub(super) fn parse(text: &str, schema: &Schema) -> Result<Node, Problem> {
    let mut parser = Parser { tokens: lex(text)?, at: 0, end: text.len(), schema, depth: 0 };
    let root = parser.or()?;
    match parser.tokens.get(parser.at) {
        None => Ok(root),
        Some((at, token)) => Err(wrong(*at, format!("{} is not expected here", shown(token)))),
    }
}

fn shown(token: &Token) -> String {
    match token {
        Token::Word(w) | Token::Number(w) => format!("'{w}'"),
        Token::Mark(m) => format!("'{m}'"),
        Token::Name(n) => format!("\"{n}\""),
        Token::Text(t) => format!("the text '{t}'"),
    }
}

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
    schema: &'a Schema,
    depth: usize,
}

impl Parser<'_> {
    /// The place of the next word.
    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(at, _)| *at)
    }

    fn word(&mut self, word: &str) -> bool {
        let found =
            matches!(self.tokens.get(self.at), Some((_, Token::Word(w))) if w.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn mark(&mut self, mark: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some((_, Token::Mark(m))) if *m == mark);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, mark: &str) -> Result<(), Problem> {
        if self.mark(mark) { Ok(()) } else { Err(wrong(self.place(), format!("a {mark} is missing"))) }
    }

    fn or(&mut self) -> Result<Node, Problem> {
        let mut parts = vec![self.and()?];
        while self.word("OR") {
            parts.push(self.and()?);
        }
        Ok(one_or(parts, Node::Or))
    }

    fn and(&mut self) -> Result<Node, Problem> {
        let mut parts = vec![self.not()?];
        while self.word("AND") {
            parts.push(self.not()?);
        }
        Ok(one_or(parts, Node::And))
    }

    fn not(&mut self) -> Result<Node, Problem> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(wrong(self.place(), "it nests too deep"));
        }
        let node = if self.word("NOT") {
            Node::Not(Box::new(self.not()?))
        } else if self.mark("(") {
            let inner = self.or()?;
            self.need(")")?;
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn test(&mut self) -> Result<Node, Problem> {
        let operand = self.operand()?;
        let tests = [
            ("=", Test::Equal),
            ("==", Test::Equal),
            ("<>", Test::NotEqual),
            ("!=", Test::NotEqual),
            ("<=", Test::LessOrEqual),
            (">=", Test::GreaterOrEqual),
            ("<", Test::Less),
            (">", Test::Greater),
        ];
        for (mark, test) in tests {
            if self.mark(mark) {
                return Ok(Node::Compare(operand, test, self.operand()?));
            }
        }
        if self.word("IS") {
            let not = self.word("NOT");
            if !self.word("NULL") {
                return Err(wrong(self.place(), "NULL must follow IS"));
            }
            return Ok(negate(not, Node::IsNull(operand)));
        }
        let not = self.word("NOT");
        if self.word("IN") {
            self.need("(")?;
            let mut list = vec![self.operand()?];
            while self.mark(",") {
                list.push(self.operand()?);
            }
            self.need(")")?;
            return Ok(negate(not, Node::In(operand, list)));
        }
        if self.word("BETWEEN") {
            let low = self.operand()?;
            if !self.word("AND") {
                return Err(wrong(self.place(), "AND must follow the lower bound of BETWEEN"));
            }
            let high = self.operand()?;
            let parts = vec![
                Node::Compare(operand.clone(), Test::GreaterOrEqual, low),
                Node::Compare(operand, Test::LessOrEqual, high),
            ];
            return Ok(negate(not, Node::And(parts)));
        }
        let any_case = self.word("ILIKE");
        if any_case || self.word("LIKE") {
            let place = self.place();
            let Operand::Text(pattern) = self.operand()? else {
                return Err(wrong(place, "the pattern of LIKE must be a text in single quotes"));
            };
            return Ok(negate(not, Node::Like { operand, pattern, any_case }));
        }
        if not {
            return Err(wrong(self.place(), "IN, BETWEEN or LIKE must follow NOT"));
        }
        Ok(Node::Truth(operand))
    }

    fn operand(&mut self) -> Result<Operand, Problem> {
        let place = self.place();
        let Some((_, token)) = self.tokens.get(self.at).cloned() else {
            return Err(wrong(place, "it ends where a field or a value must stand"));
        };
        self.at += 1;
        match token {
            Token::Text(text) => Ok(Operand::Text(text)),
            Token::Number(text) => {
                let int = text.parse().ok().map(Operand::Int);
                int.or_else(|| fast_float2::parse(&text).ok().map(Operand::Real))
                    .ok_or_else(|| wrong(place, format!("'{text}' is not a number")))
            }
            Token::Name(name) => self.field(&name, place),
            Token::Word(word) => match word.to_ascii_uppercase().as_str() {
                "TRUE" => Ok(Operand::Bool(true)),
                "FALSE" => Ok(Operand::Bool(false)),
                "NULL" => Ok(Operand::Null),
                "$SHAPE" => Ok(Operand::Shape),
                "$ID" => Ok(Operand::Id),
                "$RECORD" => Ok(Operand::Record),
                _ => self.field(&word, place),
            },
            Token::Mark(mark) => Err(wrong(place, format!("'{mark}' stands where a value must"))),
        }
    }

    /// A field of exactly this name, or the only one that differs in case.
    fn field(&self, name: &str, place: usize) -> Result<Operand, Problem> {
        if let Some(at) = self.schema.position(name) {
            return Ok(Operand::Field(at));
        }
        let fields = self.schema.fields();
        let alike: Vec<usize> = (0..fields.len())
            .filter(|at| fields.get(*at).is_some_and(|f| f.name.eq_ignore_ascii_case(name)))
            .collect();
        if let [at] = alike.as_slice() {
            return Ok(Operand::Field(*at));
        }
        let known: Vec<String> = fields.iter().take(30).map(|field| field.name.clone()).collect();
        Err(wrong(place, format!("there is no field {name:?}; there are {}", known.join(", "))))
    }
}

fn one_or(mut parts: Vec<Node>, many: impl FnOnce(Vec<Node>) -> Node) -> Node {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            many(parts)
        }
        None => many(parts),
    }
}

fn negate(not: bool, node: Node) -> Node {
    if not { Node::Not(Box::new(node)) } else { node }
}
