//! Writing JSON text, RFC 8259.

use tidegate_core::hex;

use crate::column::Value;
use crate::number;

/// Appends a value. A number that is not finite becomes `null`, as in GDAL;
/// bytes become lower-case hexadecimal text.
pub(crate) fn write_value<E>(out: &mut Vec<u8>, value: Value<'_>) -> Result<(), E> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(i) => number::int(out, i),
        Value::Real(x) if x.is_finite() => number::real(out, x),
        Value::Real(_) => out.extend_from_slice(b"null"),
        Value::Text(text) => write_text(out, text),
        Value::Json(json) => write_json(out, json),
        Value::Bytes(bytes) => {
            out.push(b'"');
            write_hex(out, bytes);
            out.push(b'"');
        }
    }
    Ok(())
}

/// Appends JSON text in one line, because a line may be a record. Line breaks in JSON occur only between
/// tokens; within strings they are escaped.
pub(crate) fn write_json(out: &mut Vec<u8>, json: &str) {
    let from = out.len();
    out.extend_from_slice(json.as_bytes());
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_some() {
        let written = out.get_mut(from..).unwrap_or_default();
        written.iter_mut().filter(|b| matches!(b, b'\n' | b'\r')).for_each(|b| *b = b' ');
    }
}

/// Appends bytes as lower-case hexadecimal.
pub(crate) fn write_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len() * 2, 0);
    hex::write_hex(bytes, out.get_mut(start..).unwrap_or_default());
}

/// Appends a quoted string with escapes.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(text.as_bytes().get(from..at).unwrap_or_default());
        from = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => {
                out.extend_from_slice(b"\\u00");
                write_hex(out, &[other]);
            }
        }
    }
    out.extend_from_slice(text.as_bytes().get(from..).unwrap_or_default());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_where_the_standard_says_so() {
        let mut out = Vec::new();
        write_text(&mut out, "a\"b\\c\nd\u{1}é\u{7f}");
        assert_eq!(std::str::from_utf8(&out).unwrap(), "\"a\\\"b\\\\c\\nd\\u0001é\u{7f}\"");
    }

    #[test]
    fn what_json_cannot_spell_is_null_or_hexadecimal() {
        let mut out = Vec::new();
        write_value::<()>(&mut out, Value::Real(f64::NAN)).unwrap();
        write_value::<()>(&mut out, Value::Bytes(&[0, 255])).unwrap();
        assert_eq!(out, b"null\"00ff\"");
    }

    #[test]
    fn json_stays_in_one_line() {
        let mut out = Vec::new();
        write_value::<()>(&mut out, Value::Json("{\n \"a\":\r\n [1,\n2]}")).unwrap();
        assert_eq!(out, b"{  \"a\":   [1, 2]}");
    }
}
