//! The walk of `pull` for documents without anything unusual, which are almost all.
//!
//! A general parser looks at each byte for every case that JSON knows; of the work of reading an
//! answer that is three quarters. Here strings have no escapes and nothing is deep. Whatever is
//! otherwise, and whatever is wrong, is `None`: then the general parser decides, so that there is
//! one place that says what an error is.

use super::pull::{ITEMS_MAX, Item, Leaf, Node, Walk};
use std::borrow::Cow;
use std::fmt::Write;

/// Nothing deeper is usual.
const DEPTH_MAX: u32 = 16;

/// Walks through a whole document; `None` if it is not a usual one.
pub(super) fn walk<'a>(text: &'a str, walk: Walk<'_, '_, 'a>) -> Option<()> {
    let mut rest = Rest { text, at: 0 };
    rest.value(walk, DEPTH_MAX)?;
    rest.space();
    (rest.at == text.len()).then_some(())
}

const TENS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// How many bytes come before a quote, a backslash or a control character; eight at a time.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (i, chunk) in chunks.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk);
        // The lowest byte below `limit` has its high bit set; those above it may by mistake.
        let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGH;
        let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let found = is(b'"') | is(b'\\') | below(word, 0x20);
        if found != 0 {
            return i * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let tail = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
    chunks.len() * 8 + tail
}

/// A document from a place on.
struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Rest<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// This word, if it comes now.
    fn word(&mut self, word: &str) -> Option<()> {
        let is = self.text.as_bytes().get(self.at..)?.starts_with(word.as_bytes());
        self.at += word.len();
        is.then_some(())
    }

    /// A string without escapes, behind its first quote.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let bytes = self.text.as_bytes().get(start..)?;
        let end = plain(bytes);
        if bytes.get(end) != Some(&b'"') {
            return None;
        }
        self.at = start + end + 1;
        self.text.get(start..start + end)
    }

    /// Digits, added to those of `number`; how many there are.
    fn digits(&mut self, number: &mut u64) -> usize {
        let start = self.at;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            *number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Option<f64> {
        let start = self.at;
        let minus = self.peek() == Some(b'-');
        self.at += usize::from(minus);
        let (zero, mut number, mut behind) = (self.peek() == Some(b'0'), 0, 0);
        let whole = self.digits(&mut number);
        if whole == 0 || (zero && whole > 1) {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            behind = self.digits(&mut number);
            (behind > 0).then_some(())?;
        }
        let exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            (self.digits(&mut 0) > 0).then_some(())?;
        }
        // Both are exact, so their quotient is rounded once: it is the nearest number there is.
        if let (true, Some(power)) = (whole + behind <= 15 && !exponent, TENS.get(behind)) {
            let number = number as f64 / power;
            return Some(if minus { -number } else { number });
        }
        self.text.get(start..self.at)?.parse().ok().filter(|n: &f64| n.is_finite())
    }

    /// The key of a member and the colon behind it.
    fn key(&mut self) -> Option<&'a str> {
        self.space();
        (self.next()? == b'"').then_some(())?;
        let key = self.string()?;
        self.space();
        (self.next()? == b':').then_some(key)
    }

    /// Whether another element comes, or else the list or object ends here.
    fn more(&mut self, end: u8) -> Option<bool> {
        self.space();
        match self.next()? {
            b',' => Some(true),
            byte => (byte == end).then_some(false),
        }
    }

    /// Whether a list or an object that has just begun is over.
    fn empty(&mut self, end: u8) -> bool {
        self.space();
        let empty = self.peek() == Some(end);
        self.at += usize::from(empty);
        empty
    }

    /// A value that is wanted, or that something in it is wanted of.
    fn value(&mut self, mut walk: Walk<'_, '_, 'a>, depth: u32) -> Option<()> {
        self.space();
        let leaf = match self.peek()? {
            b'"' => {
                self.at += 1;
                Leaf::Text(Cow::Borrowed(self.string()?))
            }
            b'{' => {
                self.at += 1;
                Leaf::Many(self.members(&mut walk, depth.checked_sub(1)?)?)
            }
            b'[' => {
                self.at += 1;
                Leaf::Many(self.elements(&mut walk, depth.checked_sub(1)?)?)
            }
            b't' => self.word("true").map(|()| Leaf::Bool(true))?,
            b'f' => self.word("false").map(|()| Leaf::Bool(false))?,
            b'n' => self.word("null").map(|()| Leaf::Null)?,
            _ => Leaf::Number(self.number()?),
        };
        walk.keep(leaf);
        Some(())
    }

    fn members(&mut self, walk: &mut Walk<'_, '_, 'a>, depth: u32) -> Option<usize> {
        let mut count = 0;
        let mut more = !self.empty(b'}');
        while more {
            let key = self.key()?;
            match walk.node.child(key) {
                Some(node) => self.value(walk.below(node), depth)?,
                None => self.skip(depth)?,
            }
            count += 1;
            more = self.more(b'}')?;
        }
        Some(count)
    }

    fn elements(&mut self, walk: &mut Walk<'_, '_, 'a>, depth: u32) -> Option<usize> {
        let mut count = 0;
        let mut more = !self.empty(b']');
        let node = walk.node;
        if let Some((number, node)) = &node.list {
            let mut items = Vec::new();
            while more {
                if items.len() < ITEMS_MAX {
                    items.push(self.item(node, depth)?);
                } else {
                    self.skip(depth)?;
                }
                count += 1;
                more = self.more(b']')?;
            }
            *walk.lists.get_mut(*number)? = Some(items);
            return Some(count);
        }
        let mut name = String::new();
        while more {
            let child = if node.children.is_empty() {
                None
            } else {
                name.clear();
                let _ = write!(name, "{count}");
                node.child(&name)
            };
            match child {
                Some(node) => self.value(walk.below(node), depth)?,
                None => self.skip(depth)?,
            }
            count += 1;
            more = self.more(b']')?;
        }
        Some(count)
    }

    fn item(&mut self, node: &Node, depth: u32) -> Option<Item<'a>> {
        let mut item = Item::default();
        self.value(Walk { node, leaves: &mut item, lists: &mut [] }, depth)?;
        Some(item)
    }

    /// A value of which nothing is wanted.
    fn skip(&mut self, depth: u32) -> Option<()> {
        self.space();
        match self.peek()? {
            b'"' => {
                self.at += 1;
                self.string().map(|_| ())
            }
            b'{' => {
                self.at += 1;
                let (mut more, depth) = (!self.empty(b'}'), depth.checked_sub(1)?);
                while more {
                    self.key()?;
                    self.skip(depth)?;
                    more = self.more(b'}')?;
                }
                Some(())
            }
            b'[' => {
                self.at += 1;
                let (mut more, depth) = (!self.empty(b']'), depth.checked_sub(1)?);
                while more {
                    self.skip(depth)?;
                    more = self.more(b']')?;
                }
                Some(())
            }
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number().map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_end_where_they_end(text in "[a-c\u{e9}\u{1}\u{1f} \"\\\\~\u{7f}\u{ff}]{0,40}") {
            let end = text.bytes().position(|b| matches!(b, b'"' | b'\\' | 0..0x20)).unwrap_or(text.len());
            prop_assert_eq!(plain(text.as_bytes()), end);
        }

        #[test]
        fn numbers_are_the_nearest_there_are(text in "-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?") {
            let mut rest = Rest { text: &text, at: 0 };
            prop_assert_eq!(rest.number().map(f64::to_bits), text.parse().ok().map(f64::to_bits));
            prop_assert_eq!(rest.at, text.len());
        }
    }
}
