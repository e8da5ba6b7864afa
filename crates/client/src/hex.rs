//! Bytes as hexadecimal text, in lower case.

fn digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|half| if half < 10 { b'0' + half } else { b'a' + half - 10 })
}

/// Bytes as text.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = vec![0; bytes.len() * 2];
    write_hex(bytes, &mut out);
    // Digits are text.
    String::from_utf8(out).unwrap_or_default()
}

/// The same into two places for each byte, without asking for memory.
pub fn write_hex(bytes: &[u8], out: &mut [u8]) {
    for (byte, place) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        place.copy_from_slice(&digits(*byte));
    }
}

/// So many bytes from text.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    unhex_all(text)?.try_into().ok()
}

/// Bytes from text.
pub fn unhex_all(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?))
        .collect()
}
