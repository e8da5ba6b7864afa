//! Hexadecimal encoding, in lower case.

use alloc::string::String;
use alloc::vec::Vec;

const fn digit(half: u8) -> u8 {
    if half < 10 { b'0' + half } else { b'a' + half - 10 }
}

/// Encodes bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    push_hex(bytes, &mut out);
    out
}

/// Encodes bytes and appends the digits to `out`.
pub fn push_hex(bytes: &[u8], out: &mut String) {
    // In blocks, because a string that grows by one character checks its capacity at each.
    let mut block = [0; 128];
    out.reserve(bytes.len() * 2);
    for part in bytes.chunks(block.len() / 2) {
        let text = &mut block[..part.len() * 2];
        write_hex(part, text);
        out.push_str(core::str::from_utf8(text).unwrap_or_default());
    }
}

/// Encodes bytes into a buffer, without allocation.
pub fn write_hex(bytes: &[u8], out: &mut [u8]) {
    for (byte, place) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

/// Decodes two digits of either case.
#[must_use]
pub fn unhex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Decodes exactly `N` bytes.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    unhex_all(text)?.try_into().ok()
}

/// Decodes text; `None` if it has an odd length or another character.
#[must_use]
pub fn unhex_all(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => unhex_byte(*high, *low),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = hex(&bytes);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"));
        assert_eq!(unhex_all(&text), Some(bytes.clone()));
        assert_eq!(unhex_all(&text.to_uppercase()), Some(bytes));
        assert_eq!((unhex_all("0"), unhex_all("0g"), unhex_all("+1")), (None, None, None));
        assert_eq!((unhex::<2>("00ff"), unhex::<2>("00")), (Some([0, 255]), None));
    }
}
