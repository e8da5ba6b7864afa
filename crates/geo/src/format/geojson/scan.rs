//! A scanner over JSON text in memory.
//!
//! It returns tokens as ranges and builds no values. Why our own: on a million polygons it takes a third of
//! the time of typed parsers, because coordinates are never built as values; and it knows its offset, so
//! every problem has one.
//!
//! The text may be part of a stream. Its end is therefore not an error but [`Stop::More`]; only the reader
//! knows whether there is more.

/// Deepest nesting. Skipping needs no stack; this bounds what later parsers of the text must handle.
pub(crate) const DEPTH_MAX: usize = 128;

/// Why a scan stopped.
#[derive(Debug, PartialEq)]
pub(crate) enum Stop {
    /// The text ends within the value.
    More,
    /// The text is not JSON here.
    Bad(usize, &'static str),
}

type Scanned<T> = Result<T, Stop>;

/// A text token: its bytes between the quotes, and whether they hold escapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) escaped: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Scan<'a> {
        Scan { bytes, at }
    }

    /// The next byte that is not white space.
    #[inline]
    pub(crate) fn peek(&mut self) -> Scanned<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(*byte),
                None => return Err(Stop::More),
            }
        }
    }

    /// Takes this byte if it is next.
    #[inline]
    pub(crate) fn eat(&mut self, byte: u8) -> Scanned<bool> {
        let found = self.peek()? == byte;
        self.at += usize::from(found);
        Ok(found)
    }

    #[inline]
    pub(crate) fn expect(&mut self, byte: u8, message: &'static str) -> Scanned<()> {
        if self.eat(byte)? { Ok(()) } else { Err(Stop::Bad(self.at, message)) }
    }

    /// After a member or element: whether another follows before `close`.
    #[inline]
    pub(crate) fn comma_or(&mut self, close: u8) -> Scanned<bool> {
        match self.peek()? {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(Stop::Bad(self.at, "expected a comma or the end of the array or object")),
        }
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Scanned<Text> {
        self.expect(b'"', "expected text in quotes")?;
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'"', b'\\', rest) else { return Err(Stop::More) };
            self.at += found + 1;
            if rest.get(found) == Some(&b'"') {
                return Ok(Text { start, end: self.at - 1, escaped });
            }
            escaped = true;
            if self.at >= self.bytes.len() {
                return Err(Stop::More);
            }
            self.at += 1;
        }
    }

    /// A member's name and its colon.
    #[inline]
    pub(crate) fn key(&mut self) -> Scanned<Text> {
        let key = self.text()?;
        self.expect(b':', "expected a colon")?;
        Ok(key)
    }

    /// A number. It must be followed by something, since a stream may cut it.
    #[inline]
    pub(crate) fn number(&mut self) -> Scanned<f64> {
        let first = self.peek()?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let digit = if first == b'-' { rest.get(1) } else { Some(&first) };
        match digit {
            Some(b'1'..=b'9') => {}
            Some(b'0') => {
                if rest.get(if first == b'-' { 2 } else { 1 }).is_some_and(u8::is_ascii_digit) {
                    return Err(Stop::Bad(self.at, "the number is not valid JSON"));
                }
            }
            None => return Err(Stop::More),
            Some(_) => return Err(Stop::Bad(self.at, "expected a number")),
        }
        let Ok((number, len)) = fast_float2::parse_partial::<f64, _>(rest) else {
            return Err(Stop::Bad(self.at, "expected a number"));
        };
        match rest.get(len) {
            None => return Err(Stop::More),
            Some(b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t') if rest.get(len - 1) != Some(&b'.') => {}
            Some(_) => {
                let whole = rest.iter().any(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
                let bad = Stop::Bad(self.at, "the number is not valid JSON");
                return Err(if whole { bad } else { Stop::More });
            }
        }
        if !number.is_finite() {
            return Err(Stop::Bad(self.at, "the number exceeds double precision"));
        }
        self.at += len;
        Ok(number)
    }

    /// A whole number of 64 bits; `None`, and nothing taken, if the next number is another.
    pub(crate) fn int(&mut self) -> Scanned<Option<i64>> {
        let from = self.at;
        self.number()?;
        let token = self.bytes.get(from..self.at).unwrap_or_default();
        let int = std::str::from_utf8(token).ok().and_then(|token| token.trim_ascii_start().parse().ok());
        if int.is_none() {
            self.at = from;
        }
        Ok(int)
    }

    pub(crate) fn word(&mut self, word: &'static [u8]) -> Scanned<()> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        if word.starts_with(rest) {
            Err(Stop::More)
        } else {
            Err(Stop::Bad(self.at, "expected a JSON value"))
        }
    }

    /// Skips any value. It keeps one bit per level to tell arrays from objects.
    pub(crate) fn skip(&mut self) -> Scanned<()> {
        let mut in_object = 0u128;
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'{' | b'[' if depth == DEPTH_MAX => {
                    return Err(Stop::Bad(self.at, "values nest too deep"));
                }
                open @ (b'{' | b'[') => {
                    self.at += 1;
                    let close = if open == b'{' { b'}' } else { b']' };
                    if !self.eat(close)? {
                        depth += 1;
                        in_object = in_object << 1 | u128::from(open == b'{');
                        if open == b'{' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b'"' => {
                    self.text()?;
                }
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => {
                    self.number()?;
                }
            }
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let object = in_object & 1 == 1;
                if self.comma_or(if object { b'}' } else { b']' })? {
                    if object {
                        self.key()?;
                    }
                    break;
                }
                depth -= 1;
                in_object >>= 1;
            }
        }
    }
}

/// The text that a token stands for, with escapes resolved, appended to `out`. Half of a
/// surrogate pair, which no Unicode text can hold, becomes U+FFFD.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', raw.get(at..).unwrap_or_default()) {
        out.extend_from_slice(raw.get(at..at + found).unwrap_or_default());
        at += found + 2;
        out.push(match raw.get(at - 1) {
            Some(b'"') => b'"',
            Some(b'\\') => b'\\',
            Some(b'/') => b'/',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let (c, len) =
                    unicode(raw.get(at..).unwrap_or_default()).ok_or("the \\u escape is not valid")?;
                at += len;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err("the escape is not valid JSON"),
        });
    }
    out.extend_from_slice(raw.get(at..).unwrap_or_default());
    Ok(())
}

fn unicode(raw: &[u8]) -> Option<(char, usize)> {
    let first = hex4(raw)?;
    if (0xD800..0xDC00).contains(&first)
        && raw.get(4..6) == Some(b"\\u")
        && let Some(second) = raw.get(6..).and_then(hex4)
        && (0xDC00..0xE000).contains(&second)
    {
        let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 10));
    }
    Some((char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 4))
}

fn hex4(raw: &[u8]) -> Option<u32> {
    raw.get(..4)?.iter().try_fold(0, |sum, b| Some(sum << 4 | char::from(*b).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(text: &str) -> Scanned<usize> {
        let mut scan = Scan::new(text.as_bytes(), 0);
        scan.skip().map(|()| scan.at)
    }

    #[test]
    fn skipping_ends_after_the_value_and_nowhere_else() {
        for text in [
            "{}",
            "[]",
            "null",
            "true",
            "\"a\\\"b\\\\\"",
            "[1,2.5e-3,-0]",
            "{\"a\":[{},[],{\"b\":{\"c\":null}}],\"d\":\"]}\"}",
            " [ [ 1 ] , [ ] ] ",
        ] {
            let whole = format!("{text} x");
            assert_eq!(skipped(&whole), Ok(text.trim_end().len()), "{text}");
            for cut in 0..text.trim().len().saturating_sub(1) {
                let part = &text.trim()[..cut];
                assert_eq!(skipped(part), Err(Stop::More), "{part}");
            }
        }
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        for (text, at) in [
            ("[1 2]", 3),
            ("{1:2}", 1),
            ("[1,]", 3),
            ("{\"a\" 1}", 5),
            ("[nul]", 1),
            ("[+1]", 1),
            ("[.5]", 1),
            ("[1.]", 1),
            ("[01]", 1),
            ("[1e999]", 1),
            ("[NaN]", 1),
            ("{\"a\":1]", 6),
            ("}", 0),
        ] {
            assert!(
                matches!(skipped(text), Err(Stop::Bad(place, _)) if place == at),
                "{text} {:?}",
                skipped(text)
            );
        }
        assert!(matches!(skipped(&"[".repeat(200_000)), Err(Stop::Bad(128, _))));
    }

    #[test]
    fn escapes_resolve() {
        let resolved = |raw: &str| {
            let mut out = Vec::new();
            unescape(raw.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(resolved(r#"a\"\\\/\n\t\u00e9\ud83d\ude00"#).unwrap(), "a\"\\/\n\té😀");
        assert_eq!(resolved(r"\ud83d!").unwrap(), "\u{fffd}!");
        for bad in [r"\x", r"\u12", "\\"] {
            assert!(resolved(bad).is_err(), "{bad}");
        }
    }
}
