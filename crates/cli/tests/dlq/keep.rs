//! Archive, purge, hold, retention.

use crate::desk::Desk;
use tidegate_ledger::letter::{DAY_MS, LetterStoreLocation, Letters, now_ms};

#[test]
fn an_archive_is_verified_before_anything_is_purged() {
    let desk = Desk::parcels();
    let early = desk.dlq(&["purge", "--archived", "--all", "--format", "json"]).json();
    assert_eq!(early["purged"], 0, "nothing is in an archive");
    let ran = desk.dlq(&["archive", "--all", "--to", "cold", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told = ran.json();
    assert_eq!(told["content"]["letters"], 5);
    let file = desk.path("cold").join(told["content"]["files"][0]["name"].as_str().unwrap());
    let packed = std::fs::read(&file).unwrap();
    assert_eq!(packed[..4], [0x28, 0xb5, 0x2f, 0xfd], "zstd");
    assert_eq!(desk.letters()[0]["archive"], told["manifest"]);
    assert_eq!(desk.states(), ["captured"; 5], "open letters stay open");
    let again = desk.dlq(&["archive", "--all", "--to", "cold"]);
    assert!(again.stderr.contains("nothing to archive"), "{}", again.stderr);
    let dry = desk.dlq(&["purge", "--archived", "--all", "--dry-run", "--format", "json"]).json();
    assert_eq!((&dry["purged"], desk.letters().len()), (&5.into(), 5));
    let id = desk.id("UNCLOSED_RING");
    assert_eq!(desk.dlq(&["hold", "--id", &id, "--why", "case 12"]).code, 0);
    let purged = desk.dlq(&["purge", "--archived", "--all", "--format", "json"]).json();
    assert_eq!((&purged["purged"], &purged["held"]), (&4.into(), &1.into()));
    let left = desk.letters();
    assert_eq!((left.len(), &left[0]["hold"]), (1, &"case 12".into()));
    assert_eq!(desk.dlq(&["release", "--all"]).code, 0);
    assert_eq!(desk.dlq(&["purge", "--all", "--format", "json"]).json()["purged"], 1);
    let gone = desk.dlq(&["show", &id]);
    assert!(gone.code == 2 && gone.stderr.contains("was purged"), "{}", gone.stderr);
    assert_eq!(desk.audited(), 1 + 1 + 1 + 4 + 1 + 1, "capture, archive, hold, four purges, release, purge");
}

#[test]
fn dismissed_letters_are_closed_and_named_as_archived() {
    let desk = Desk::parcels();
    assert_eq!(desk.dlq(&["dismiss", "--code", "OUT_OF_BOUNDS", "--why", "test data"]).code, 0);
    assert_eq!(desk.dlq(&["archive", "--state", "dismissed", "--to", "cold"]).code, 0);
    let states = desk.states();
    assert_eq!(states.iter().filter(|s| *s == "archived").count(), 1);
    assert_eq!(desk.dlq(&["purge"]).code, 2, "an empty filter is refused");
    assert_eq!(desk.dlq(&["archive", "--to", "cold"]).code, 2);
}

#[test]
fn every_command_lets_the_retention_run() {
    let desk = Desk::parcels();
    let place = LetterStoreLocation::File(desk.path("letters.db"));
    let letters = Letters::open(&place).unwrap();
    let old = |n: u64, days: i64| {
        let mut letter =
            tidegate_ledger::letter::Letter { idempotency_key: format!("old:{n}"), ..Default::default() };
        letter.failure.failed_ms = now_ms() - days * DAY_MS;
        letter.lineage.first_failed_ms = letter.failure.failed_ms;
        letter.hold = (n == 3).then(|| "court".into());
        letter.retained_for(60)
    };
    letters.put(&[old(1, 61), old(2, 59), old(3, 90)]).wait().unwrap();
    letters.close();
    let ran = desk.dlq(&["ls", "--format", "json"]);
    assert!(ran.stderr.contains("purged 1 letter past the retention period"), "{}", ran.stderr);
    assert_eq!(ran.json().as_array().unwrap().len(), 5 + 2, "59 days and the one that is held stay");
}
