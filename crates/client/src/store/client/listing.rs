//! Keys in a page of a listing that are not paths.
//!
//! A bucket may hold keys such as `a//b` or `../x`. The library takes keys for paths and refuses the
//! whole page. So such a key is replaced in the page, before the library reads it, by one segment:
//! a mark and the bytes of the key in hexadecimal. It is undone where the page is shown.

use bytes::Bytes;
use object_store::path::Path;
use quick_xml::escape::{escape, unescape};
use std::borrow::Cow;
use tidegate_core::hex;

/// Starts a replaced key. The character is for private use; a key that begins with it is replaced
/// as well.
const MARK: char = '\u{f8fe}';
/// The elements that hold a key: of S3 and Google, and of Azure.
const ELEMENTS: [(&str, &str); 2] = [("<Key>", "</Key>"), ("<Name>", "</Name>")];

/// The page with every key as a path.
pub(super) fn readable(page: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&page) else { return page };
    let mut changed = Cow::Borrowed(text);
    for (open, close) in ELEMENTS {
        if let Some(new) = replaced(&changed, open, close) {
            changed = Cow::Owned(new);
        }
    }
    match changed {
        Cow::Borrowed(_) => page,
        Cow::Owned(new) => new.into(),
    }
}

/// The page with the keys in one kind of element replaced; `None` if all are paths.
fn replaced(page: &str, open: &str, close: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(open) {
        let Some((raw, after)) = after.split_once(close) else { break };
        let key = unescape(raw).unwrap_or(Cow::Borrowed(raw));
        if key.starts_with(MARK) || !is_path(&key) {
            out.push_str(before);
            out.push_str(open);
            out.push_str(&escape(format!("{MARK}{}", hex::hex(key.as_bytes()))));
        } else {
            out.push_str(before);
            out.push_str(open);
            out.push_str(raw);
        }
        out.push_str(close);
        rest = after;
    }
    out.push_str(rest);
    (out != page).then_some(out)
}

fn is_path(key: &str) -> bool {
    !key.split('/').any(|segment| matches!(segment, "" | "." | "..")) && Path::parse(key).is_ok()
}

/// The key as it is in the bucket.
pub(super) fn original(listed: &str) -> Cow<'_, str> {
    let undone = || String::from_utf8(hex::unhex_all(listed.strip_prefix(MARK)?)?).ok();
    undone().map_or(Cow::Borrowed(listed), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_paths_are_shown_as_they_are() {
        let page =
            "<L><Key>a/b</Key><Key>a//b</Key><Key>/a</Key><Key>x&amp;&amp;/</Key><Name>../y</Name></L>";
        let read = readable(page.into());
        let read = std::str::from_utf8(&read).unwrap_or_default();
        let keys: Vec<&str> = read.split(['<', '>']).filter(|t| t.starts_with(MARK) || *t == "a/b").collect();
        assert!(keys.iter().all(|key| Path::parse(key).is_ok()), "{read}");
        let keys: Vec<_> = keys.into_iter().map(original).collect();
        assert_eq!(keys, ["a/b", "a//b", "/a", "x&&/", "../y"]);
        assert_eq!(readable("<Key>a</Key>".into()), "<Key>a</Key>");
        assert_eq!(
            readable(Bytes::from_static(b"\xff<Key>//</Key>")),
            Bytes::from_static(b"\xff<Key>//</Key>")
        );
        let odd = format!("{MARK}00");
        assert_eq!(original(&odd.replace("00", &hex::hex(odd.as_bytes()))), odd.as_str());
    }
}
