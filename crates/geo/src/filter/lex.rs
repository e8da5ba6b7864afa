//! The words of a condition, each with its place.

use tidegate_core::Code;

use crate::error::Problem;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A bare word: a field or a word of the language.
    Word(String),
    /// A name in double quotes.
    Name(String),
    /// A text in single quotes.
    Text(String),
    /// A number, as written.
    Number(String),
    /// A mark: `( ) , = <> != < <= > >=`.
    Mark(&'static str),
}

pub(super) fn wrong(at: usize, message: impl Into<String>) -> Problem {
    Problem::new(Code::SCHEMA_MISMATCH, format!("the condition: {}", message.into())).at(at as u64)
}

const MARKS: [&str; 11] = ["<>", "!=", "<=", ">=", "==", "=", "<", ">", "(", ")", ","];

/// The words in order, with the byte at which each begins.
pub(super) fn lex(text: &str) -> Result<Vec<(usize, Token)>, Problem> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(first) = rest.chars().next() else { break };
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, len) = if first == '\'' || first == '"' {
            let (inner, len) = quoted(rest, first)
                .ok_or_else(|| wrong(at, format!("the quote {first} is opened and not closed")))?;
            (if first == '"' { Token::Name(inner) } else { Token::Text(inner) }, len)
        } else if first.is_ascii_digit() || first == '-' || first == '+' || first == '.' {
            let end = rest
                .char_indices()
                .find(|(i, c)| {
                    let after_e = rest.as_bytes().get(i.wrapping_sub(1)).is_some_and(|b| b | 32 == b'e');
                    !(c.is_ascii_digit()
                        || matches!(c, '.' | 'e' | 'E')
                        || (matches!(c, '-' | '+') && (*i == 0 || after_e)))
                })
                .map_or(rest.len(), |(i, _)| i);
            (Token::Number(rest.get(..end).unwrap_or_default().to_owned()), end)
        } else if first.is_alphanumeric() || first == '_' || first == '$' {
            let end = rest
                .char_indices()
                .find(|(_, c)| !(c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | ':')))
                .map_or(rest.len(), |(i, _)| i);
            (Token::Word(rest.get(..end).unwrap_or_default().to_owned()), end)
        } else {
            let mark = MARKS.into_iter().find(|mark| rest.starts_with(mark));
            let mark = mark.ok_or_else(|| wrong(at, format!("{first:?} means nothing here")))?;
            (Token::Mark(mark), mark.len())
        };
        out.push((at, token));
        at += len;
    }
    Ok(out)
}

/// The text within quotes, a doubled quote standing for one, and the length of all.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut inner = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            inner.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
            chars.next();
            inner.push(quote);
        } else {
            return Some((inner, at + 1));
        }
    }
    None
}
