//! The words of a condition, each with its place.

use super::Fault;

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
    /// A mark.
    Mark(&'static str),
    End,
}

const MARKS: [&str; 15] = ["<>", "!=", "<=", ">=", "==", "=", "<", ">", "(", ")", ",", "+", "-", "*", "/"];

/// The words in order, with the byte at which each begins, and the end.
pub(super) fn lex(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(first) = rest.chars().next() else { break };
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let second_is_digit = || rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        let (token, len) = if first == '\'' || first == '"' {
            let (inner, len) =
                quoted(rest, first).ok_or_else(|| Fault { at, message: "unclosed quote".into() })?;
            (if first == '"' { Token::Name(inner) } else { Token::Text(inner) }, len)
        } else if first.is_ascii_digit() || (first == '.' && second_is_digit()) {
            let len = number(rest);
            (Token::Number(rest.get(..len).unwrap_or_default().to_owned()), len)
        } else if first.is_alphanumeric() || first == '_' || first == '$' {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | ':')));
            let len = end.unwrap_or(rest.len());
            (Token::Word(rest.get(..len).unwrap_or_default().to_owned()), len)
        } else {
            let mark = MARKS.into_iter().find(|mark| rest.starts_with(mark));
            let message = || format!("unexpected '{}'", first.escape_debug());
            let mark = mark.ok_or_else(|| Fault { at, message: message() })?;
            (Token::Mark(mark), mark.len())
        };
        out.push((at, token));
        at += len;
    }
    out.push((text.len(), Token::End));
    Ok(out)
}

/// How long the number at the start is: digits, and an exponent if there are digits in it.
fn number(rest: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let len = digits(rest);
    let exponent = rest.get(len..).and_then(|rest| rest.strip_prefix(['e', 'E'])).unwrap_or_default();
    let sign = usize::from(exponent.starts_with(['+', '-']));
    match exponent.bytes().skip(sign).take_while(u8::is_ascii_digit).count() {
        0 => len,
        digits => len + 1 + sign + digits,
    }
}

/// What stands between quotes, which are doubled inside, and how long it is with them.
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
