//! The promises of the fuzz target `manifest`, on the stable toolchain: any bytes give a manifest
//! or a rejection that can be shown.

#[path = "../../../../fuzz/src/manifest.rs"]
#[allow(unreachable_pub)]
mod promise;

use proptest::prelude::*;
use tidegate_pipeline::manifest::from_bytes;

/// A manifest to mutilate.
const WHOLE: &str = "\
version: 1
pipeline:
  id: \"müniçipal\"
  retry_policy: &r
    max_attempts: 3
    base_delay: 1m30s
    max_delay_seconds: 2.5e2
    jitter: equal
    retryable_status_codes: [429, 502, 503]
    terminal_status_codes: [400, 0x191]
  tolerance: {max_null_rate: .5, halt_on_geometry_invalid: true}
  circuit_breaker:
    probes: 2
";

/// Pieces that matter to YAML or to us.
const PIECES: [&str; 32] = [
    "\n",
    "\n  ",
    "\n    ",
    "\t",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&a ",
    "*a",
    "<<: *a",
    "? ",
    "|\n",
    ">-\n",
    "'",
    "\"",
    "\\u0000",
    "# ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "!!str ",
    "!x ",
    "\u{feff}",
    "\u{2028}",
    ".nan",
    "-1e999",
    "pipeline",
    "max_attempts",
];

proptest! {
    #[test]
    fn bytes_of_any_kind(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        promise::check(&bytes);
    }

    #[test]
    fn text_made_of_what_matters(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..60)) {
        promise::check(pieces.concat().as_bytes());
    }

    #[test]
    fn a_manifest_with_a_piece_replaced(
        at in 0..WHOLE.len(),
        cut in 0..20usize,
        piece in proptest::sample::select(&PIECES[..]),
    ) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, piece.bytes());
        promise::check(&bytes);
    }
}

#[test]
fn the_whole_manifest_is_valid() {
    if let Err(rejection) = from_bytes("test", WHOLE.as_bytes()) {
        panic!("{}", rejection.render(false));
    }
}
