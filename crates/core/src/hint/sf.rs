//! Structured fields (RFC 9651, which replaces RFC 8941): Lists and Dictionaries of Items.
//!
//! Parsing only. Every input is accepted: it gives members, or one [`Malformed`] after which the
//! iteration ends. The values borrow from the header. The RFC says that a field with a syntax error
//! is ignored as a whole; the iterators report the error where it occurs, and the caller must
//! discard the field.
//!
//! Strings keep their escapes and byte sequences their base64, because a name is only compared with
//! other names, and each string has exactly one escaped form.

use alloc::vec::Vec;

/// The field is not a structured field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A value without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare<'a> {
    /// An integer of at most fifteen digits.
    Integer(i64),
    /// A decimal, in thousandths.
    Decimal(i64),
    /// The text between the quotes, with its escapes.
    String(&'a [u8]),
    /// A token.
    Token(&'a [u8]),
    /// The base64 text between the colons.
    Bytes(&'a [u8]),
    /// `?0` or `?1`, or a key without a value.
    Boolean(bool),
    /// A date, in seconds since 1970.
    Date(i64),
    /// The text between the quotes, with its percent-encoding.
    Display(&'a [u8]),
    /// The text of an inner list between its parentheses, well-formed.
    Inner(&'a [u8]),
}

/// A value with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructuredItem<'a> {
    /// The value.
    pub bare: Bare<'a>,
    /// The text of the parameters, well-formed.
    params: &'a [u8],
    /// The text of the value and its parameters.
    pub text: &'a [u8],
}

impl<'a> StructuredItem<'a> {
    /// The parameters in order. If a key occurs twice, the later one applies.
    pub fn params(&self) -> impl Iterator<Item = (&'a [u8], Bare<'a>)> + use<'a> {
        let mut at = FieldCursor(self.params);
        core::iter::from_fn(move || at.param().ok().flatten())
    }
}

/// The members of a List.
pub fn list(field: &[u8]) -> impl Iterator<Item = Result<StructuredItem<'_>, Malformed>> {
    members(field, FieldCursor::member)
}

/// The members of a Dictionary. If a key occurs twice, the later one applies.
pub fn dictionary(field: &[u8]) -> impl Iterator<Item = Result<(&[u8], StructuredItem<'_>), Malformed>> {
    members(field, |at| {
        let key = at.key()?;
        if at.eat(b'=') {
            return Ok((key, at.member()?));
        }
        let params = at.params()?;
        Ok((key, StructuredItem { bare: Bare::Boolean(true), params, text: params }))
    })
}

fn members<'a, T>(
    field: &'a [u8],
    mut one: impl FnMut(&mut FieldCursor<'a>) -> Result<T, Malformed>,
) -> impl Iterator<Item = Result<T, Malformed>> {
    let mut at = FieldCursor(field);
    at.spaces();
    let mut over = at.0.is_empty();
    core::iter::from_fn(move || {
        if over {
            return None;
        }
        let member = one(&mut at).and_then(|member| {
            over = at.separator()?;
            Ok(member)
        });
        over |= member.is_err();
        Some(member)
    })
}

/// The unparsed rest of a field.
struct FieldCursor<'a>(&'a [u8]);

impl<'a> FieldCursor<'a> {
    fn eat(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.eat(byte) { Ok(()) } else { Err(Malformed) }
    }

    fn take_while(&mut self, good: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&b| !good(b)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at_checked(end).unwrap_or((self.0, &[]));
        self.0 = rest;
        taken
    }

    fn spaces(&mut self) {
        self.take_while(|b| b == b' ');
    }

    /// The text parsed since `start`.
    fn since(&self, start: &'a [u8]) -> &'a [u8] {
        start.get(..start.len().saturating_sub(self.0.len())).unwrap_or_default()
    }

    /// Parses the comma before the next member. Returns true at the end of the field.
    fn separator(&mut self) -> Result<bool, Malformed> {
        let blank = self.take_while(|b| matches!(b, b' ' | b'\t'));
        if self.0.is_empty() {
            return if blank.contains(&b'\t') { Err(Malformed) } else { Ok(true) };
        }
        self.expect(b',')?;
        self.take_while(|b| matches!(b, b' ' | b'\t'));
        if self.0.is_empty() { Err(Malformed) } else { Ok(false) }
    }

    fn member(&mut self) -> Result<StructuredItem<'a>, Malformed> {
        let start = self.0;
        let bare = if self.eat(b'(') { self.inner()? } else { self.bare()? };
        let params = self.params()?;
        Ok(StructuredItem { bare, params, text: self.since(start) })
    }

    fn inner(&mut self) -> Result<Bare<'a>, Malformed> {
        let start = self.0;
        loop {
            self.spaces();
            let text = self.since(start);
            if self.eat(b')') {
                return Ok(Bare::Inner(text));
            }
            self.bare()?;
            self.params()?;
            if !matches!(self.0, [b' ' | b')', ..]) {
                return Err(Malformed);
            }
        }
    }

    fn params(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.0;
        while self.param()?.is_some() {}
        Ok(self.since(start))
    }

    fn param(&mut self) -> Result<Option<(&'a [u8], Bare<'a>)>, Malformed> {
        if !self.eat(b';') {
            return Ok(None);
        }
        self.spaces();
        let key = self.key()?;
        let value = if self.eat(b'=') { self.bare()? } else { Bare::Boolean(true) };
        Ok(Some((key, value)))
    }

    fn key(&mut self) -> Result<&'a [u8], Malformed> {
        match self.0 {
            [b'a'..=b'z' | b'*', ..] => {
                Ok(self.take_while(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
            }
            _ => Err(Malformed),
        }
    }

    fn bare(&mut self) -> Result<Bare<'a>, Malformed> {
        match self.0 {
            [b'-' | b'0'..=b'9', ..] => self.number(),
            [b'"', rest @ ..] => {
                self.0 = rest;
                self.string().map(Bare::String)
            }
            [b'a'..=b'z' | b'A'..=b'Z' | b'*', ..] => Ok(Bare::Token(self.take_while(is_token))),
            [b':', rest @ ..] => {
                self.0 = rest;
                let text = self.take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='));
                self.expect(b':')?;
                Ok(Bare::Bytes(text))
            }
            [b'?', digit @ (b'0' | b'1'), rest @ ..] => {
                self.0 = rest;
                Ok(Bare::Boolean(*digit == b'1'))
            }
            [b'@', rest @ ..] => {
                self.0 = rest;
                match self.number()? {
                    Bare::Integer(seconds) => Ok(Bare::Date(seconds)),
                    _ => Err(Malformed),
                }
            }
            [b'%', b'"', rest @ ..] => {
                self.0 = rest;
                self.display().map(Bare::Display)
            }
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<Bare<'a>, Malformed> {
        let negative = self.eat(b'-');
        let sign = |n: i64| if negative { -n } else { n };
        let whole = self.take_while(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 15 {
            return Err(Malformed);
        }
        if !self.eat(b'.') {
            return Ok(Bare::Integer(sign(small(whole))));
        }
        let fraction = self.take_while(|b| b.is_ascii_digit());
        let scale = match fraction.len() {
            1 => 100,
            2 => 10,
            3 => 1,
            _ => return Err(Malformed),
        };
        if whole.len() > 12 {
            return Err(Malformed);
        }
        Ok(Bare::Decimal(sign(small(whole) * 1000 + small(fraction) * scale)))
    }

    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.0;
        loop {
            self.take_while(|b| matches!(b, 0x20..=0x7e) && b != b'"' && b != b'\\');
            let text = self.since(start);
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Ok(text);
                }
                [b'\\', b'"' | b'\\', rest @ ..] => self.0 = rest,
                _ => return Err(Malformed),
            }
        }
    }

    fn display(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.0;
        let mut plain = Vec::new();
        loop {
            plain.extend_from_slice(self.take_while(|b| matches!(b, 0x20..=0x7e) && b != b'"' && b != b'%'));
            let text = self.since(start);
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return core::str::from_utf8(&plain).map(|_| text).map_err(|_| Malformed);
                }
                [b'%', high, low, rest @ ..] => {
                    plain.push(hex(*high)? << 4 | hex(*low)?);
                    self.0 = rest;
                }
                _ => return Err(Malformed),
            }
        }
    }
}

/// Parses at most fifteen digits.
fn small(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |n, &d| n * 10 + i64::from(d.wrapping_sub(b'0')))
}

fn hex(digit: u8) -> Result<u8, Malformed> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(Malformed),
    }
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn bares(field: &str) -> Result<Vec<Bare<'_>>, Malformed> {
        list(field.as_bytes()).map(|item| item.map(|i| i.bare)).collect()
    }

    #[test]
    fn every_kind_of_value() {
        assert_eq!(
            bares("1, -2.5,\t\"a \\\"b\\\\\" , tok/en, :aGk=:, ?1, ?0, @7, %\"gr%c3%bc\\n\", (1 \"x\";a );b"),
            Ok(vec![
                Bare::Integer(1),
                Bare::Decimal(-2500),
                Bare::String(b"a \\\"b\\\\"),
                Bare::Token(b"tok/en"),
                Bare::Bytes(b"aGk="),
                Bare::Boolean(true),
                Bare::Boolean(false),
                Bare::Date(7),
                Bare::Display(b"gr%c3%bc\\n"),
                Bare::Inner(b"1 \"x\";a "),
            ])
        );
        assert_eq!(bares("  "), Ok(vec![]));
        assert_eq!(bares("999999999999999"), Ok(vec![Bare::Integer(999_999_999_999_999)]));
    }

    #[test]
    fn parameters_follow_their_item() {
        let item = list(b"\"burst\";q=100; w=60;pk=:aGk=:;on").next().unwrap().unwrap();
        assert_eq!(item.text, b"\"burst\";q=100; w=60;pk=:aGk=:;on");
        assert_eq!(
            item.params().collect::<Vec<_>>(),
            vec![
                (&b"q"[..], Bare::Integer(100)),
                (b"w", Bare::Integer(60)),
                (b"pk", Bare::Bytes(b"aGk=")),
                (b"on", Bare::Boolean(true)),
            ]
        );
    }

    #[test]
    fn dictionaries_have_keys() {
        let members: Result<Vec<_>, _> =
            dictionary(b"limit=20, remaining=19;x=1 ,reset").map(|m| m.map(|(k, i)| (k, i.bare))).collect();
        assert_eq!(
            members,
            Ok(vec![
                (&b"limit"[..], Bare::Integer(20)),
                (b"remaining", Bare::Integer(19)),
                (b"reset", Bare::Boolean(true)),
            ])
        );
    }

    #[test]
    fn malformed_ends_the_iteration() {
        for field in [
            ",",
            "1,",
            "1,,2",
            "1 2",
            "1;",
            "1;=2",
            "1;A=1",
            "--1",
            "-",
            "1.",
            "1.1234",
            "1234567890123.1",
            "1234567890123456",
            "\"a",
            "\"\\a\"",
            "\"\u{e9}\"",
            ":a",
            ":*:",
            "?2",
            "@1.5",
            "%\"%zz\"",
            "%\"%ff\"",
            "%\"%C3\"",
            "(1",
            "(1,2)",
            "((1))",
            "1\t",
            "\t1",
            "é",
            "=1",
            "a=1",
        ] {
            assert_eq!(bares(field).err(), Some(Malformed), "{field}");
            assert!(list(field.as_bytes()).count() <= 2, "{field}");
        }
        assert_eq!(list(b"1, !, 2").collect::<Vec<_>>().len(), 2);
    }
}
