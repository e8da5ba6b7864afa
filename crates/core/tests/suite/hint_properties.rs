//! The properties of the fuzz targets, as property tests.

#[path = "../../../../fuzz/src/checks.rs"]
#[allow(unreachable_pub)]
mod checks;

use proptest::prelude::*;
use tidegate_core::Wall;
use tidegate_core::hint::date;

/// Header values made of valid tokens, because random bytes rarely pass the first checks of a parser.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "0",
        "1",
        "30",
        "120",
        "1.5",
        "1794718830",
        "1794718830500",
        "99999999999999999999",
        "1m30s",
        "500ms",
        "-1",
        ", ",
        ";",
        ";q=",
        ";w=60",
        ";r=",
        ";t=",
        "\"a\"",
        "\"b\";r=0;t=5",
        "\"a\";q=10;w=1",
        "limit=",
        "remaining=3",
        "reset=7",
        "usage=1;max=9",
        "Sun, 15 Nov 2026 05:02:00 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "2026-11-15T05:02:00Z",
        " ",
        "x",
    ];
    let word = prop_oneof![
        8 => prop::sample::select(words.to_vec()).prop_map(|w| w.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(word, 0..5).prop_map(|words| words.concat())
}

/// The input of the target `hints`: eight bytes of wall clock, then lines whose first byte selects a
/// header name.
fn response() -> impl Strategy<Value = Vec<u8>> {
    let wall = prop_oneof![Just(1_794_718_800_000_i64), any::<i64>()];
    let line = (any::<u8>(), value()).prop_map(|(name, value)| [&[name][..], &value, b"\n"].concat());
    (wall, prop::collection::vec(line, 0..8))
        .prop_map(|(wall, lines)| [wall.to_le_bytes().to_vec(), lines.concat()].concat())
}

proptest! {
    #[test]
    fn hints_of_likely_headers(data in response()) {
        checks::hints(&data);
    }

    #[test]
    fn hints_of_any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        checks::hints(&data);
    }

    #[test]
    fn structured_fields_of_likely_text(data in value()) {
        checks::structured_fields(&data);
    }

    #[test]
    fn structured_fields_of_any_bytes(data in prop::collection::vec(any::<u8>(), 0..60)) {
        checks::structured_fields(&data);
    }

    #[test]
    fn dates_are_read_as_written(seconds in -62_135_596_800_i64..253_402_300_800) {
        let wall = Wall::from_secs(seconds);
        prop_assert_eq!(date::parse(date::imf_fixdate(wall).as_bytes(), Wall::from_secs(0)), Some(wall));
    }
}
