//! What must hold for any bytes at all.
//!
//! The fuzzer and the property tests of the stable toolchain call the same functions. They take
//! bytes, panic on a broken promise and are silent otherwise.

use std::time::Duration;

use tidegate_core::Wall;
use tidegate_core::hint::sf::{self, Bare, Malformed, StructuredItem};
use tidegate_core::hint::{HintProfile, Hints, read};

/// Names that are read, so that no byte is spent on finding them.
pub const NAMES: [&str; 32] = [
    "Retry-After",
    "retry-after-ms",
    "x-amz-retry-after",
    "x-ms-retry-after-ms",
    "X-RateLimit-Retry-After",
    "Date",
    "RateLimit",
    "RateLimit",
    "RateLimit-Policy",
    "RateLimit-Policy",
    "RateLimit-Limit",
    "RateLimit-Remaining",
    "RateLimit-Reset",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Reset-After",
    "X-RateLimit-Used",
    "X-RateLimit-Interval",
    "X-RateLimit-Limit-Minute",
    "X-RateLimit-Remaining-Minute",
    "X-RateLimit-Remaining-Day",
    "x-ratelimit-limit-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "X-Rate-Limit-Limit",
    "X-Rate-Limit-Remaining",
    "X-Rate-Limit-Reset",
    "X-Rate-Limit-Interval",
    "X-Rate-Limit-Action",
    "X-Esri-Org-Request-Units-Per-Min",
    "Content-Type",
];

/// How many of the names, from the first, ask for a wait.
const WAITS: usize = 5;

/// Headers out of bytes: each line is one, its first byte chooses the name.
fn headers(data: &[u8]) -> Vec<(&'static str, &[u8])> {
    let lines = data.split(|&b| b == b'\n').filter_map(<[u8]>::split_first);
    lines.map(|(first, value)| (NAMES[usize::from(*first) % NAMES.len()], value)).collect()
}

fn hints_of(headers: &[(&'static str, &[u8])], wall: Wall) -> Hints {
    read(headers.iter().copied(), wall, &HintProfile::default())
}

/// The first eight bytes are our clock, the rest headers.
pub fn hints(data: &[u8]) {
    let (wall, data) = match data.split_first_chunk::<8>() {
        Some((wall, rest)) => (Wall::from_millis(i64::from_le_bytes(*wall)), rest),
        None => (Wall::from_secs(1_794_718_800), data),
    };
    let headers = headers(data);
    let all = hints_of(&headers, wall);

    let known: Vec<_> = all.quotas.iter().flatten().collect();
    assert!(all.quotas[known.len()..].iter().all(Option::is_none), "the quotas have a gap");
    let left = |i: usize| known.get(i).and_then(|q| q.remaining).unwrap_or(u64::MAX);
    assert!((1..known.len()).all(|i| left(i - 1) <= left(i)), "the tightest is not first");
    for quota in known {
        assert!(quota.window.is_none_or(|w| w > Duration::ZERO));
        assert_eq!(quota.reset.is_some(), quota.reset_step > Duration::ZERO);
    }
    assert!(all.malformed as usize <= headers.len());

    let mut other = headers.clone();
    other.reverse();
    assert_eq!(hints_of(&other, wall), all, "the order of the headers matters");
    other.rotate_left(headers.len() / 3);
    assert_eq!(hints_of(&other, wall), all, "the order of the headers matters");

    let twice: Vec<_> = headers.iter().chain(&headers).copied().collect();
    let doubled = Hints { malformed: all.malformed * 2, ..all };
    assert_eq!(hints_of(&twice, wall), doubled, "a repeated header counts twice");

    // No header takes back what another asks for.
    for asks in headers.iter().filter(|(name, _)| NAMES[..WAITS].contains(name)) {
        let dates = headers.iter().filter(|(name, _)| *name == "Date");
        let alone: Vec<_> = dates.chain([asks]).copied().collect();
        let alone = hints_of(&alone, wall);
        assert!(all.retry_after >= alone.retry_after, "{all:?} is earlier than {alone:?}");
    }
    // Garbage under every name changes nothing but the count.
    let garbage: Vec<_> =
        headers.iter().copied().chain(NAMES.map(|name| (name, &b"\x01 garbage"[..]))).collect();
    let more = hints_of(&garbage, wall);
    assert!(more.malformed > all.malformed);
    assert_eq!(Hints { malformed: all.malformed, ..more }, all, "garbage is not ignored");
}

/// Lists and dictionaries: what is read, written again, reads the same.
pub fn structured_fields(data: &[u8]) {
    if let Ok(items) = sf::list(data).collect::<Result<Vec<StructuredItem<'_>>, Malformed>>() {
        let text = items.iter().map(write).collect::<Vec<_>>().join(&b", "[..]);
        let again: Vec<StructuredItem<'_>> = sf::list(&text).flatten().collect();
        assert_eq!(items.len(), again.len());
        for (item, again) in items.iter().zip(&again) {
            assert_eq!(item.bare, again.bare);
            assert!(item.params().eq(again.params()));
        }
        if !items.is_empty() {
            let joined = [data.trim_ascii_end(), b",\t", data.trim_ascii_start()].concat();
            assert_eq!(sf::list(&joined).filter(Result::is_ok).count(), 2 * items.len());
            let broken = [data.trim_ascii_end(), b","].concat();
            assert_eq!(sf::list(&broken).last(), Some(Err(Malformed)));
        }
    }
    let failures = sf::list(data).filter(Result::is_err).count();
    assert!(failures <= 1, "the iteration goes on after a failure");
    for (key, item) in sf::dictionary(data).flatten() {
        assert!(!key.is_empty());
        assert!(item.text.is_empty() || item.text.starts_with(b";") || sf::list(item.text).eq([Ok(item)]));
    }
}

fn write(item: &StructuredItem<'_>) -> Vec<u8> {
    let mut text = bare(item.bare);
    for (key, value) in item.params() {
        text.push(b';');
        text.extend_from_slice(key);
        text.push(b'=');
        text.extend(bare(value));
    }
    text
}

fn bare(value: Bare<'_>) -> Vec<u8> {
    match value {
        Bare::Integer(n) => n.to_string().into_bytes(),
        Bare::Decimal(n) => {
            let sign = if n < 0 { "-" } else { "" };
            format!("{sign}{}.{:03}", n.unsigned_abs() / 1000, n.unsigned_abs() % 1000).into_bytes()
        }
        Bare::String(text) => [b"\"", text, b"\""].concat(),
        Bare::Token(text) => text.to_vec(),
        Bare::Bytes(text) => [b":", text, b":"].concat(),
        Bare::Boolean(yes) => if yes { b"?1" } else { b"?0" }.to_vec(),
        Bare::Date(n) => format!("@{n}").into_bytes(),
        Bare::Display(text) => [b"%\"", text, b"\""].concat(),
        Bare::Inner(text) => [b"(", text, b")"].concat(),
    }
}
