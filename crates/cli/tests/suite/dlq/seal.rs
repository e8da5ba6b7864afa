//! Payloads that only the holder of a key can read.

use crate::common::canned::{Canned, json};
use crate::dlq::desk::{Desk, PARCELS};

fn sealed() -> Desk {
    let desk = Desk::new();
    desk.write("parcels.geojson", PARCELS);
    let made = desk.run(&["keys", "generate", "--key", "a.key", "--store", "letters.db"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(desk.dlq(&["capture", "parcels.geojson", "--into", "out.geojson"]).code, 4);
    desk
}

#[test]
fn what_lies_on_disk_says_nothing() {
    let desk = sealed();
    for name in ["letters.db", "letters.db-wal"] {
        let bytes = std::fs::read(desk.path(name)).unwrap_or_default();
        assert!(!bytes.windows(7).any(|w| w == b"bow tie"), "{name} holds a payload in clear");
    }
    let id = desk.id("INVALID_GEOMETRY");
    let without = desk.dlq(&["show", &id, "--reveal", "x"]);
    assert!(without.code == 1 && without.stderr.contains("which was not given"), "{}", without.stderr);
    desk.run(&["keys", "generate", "--key", "b.key", "--store", "other.db"]);
    assert_eq!(desk.dlq(&["show", &id, "--reveal", "x", "--key", "b.key"]).code, 1, "another key");
    let shown = desk.dlq(&["show", &id, "--reveal", "x", "--key", "a.key"]);
    assert!(shown.stdout.contains("bow tie"), "{}", shown.stderr);
    assert_eq!(
        desk.run(&["keys", "generate", "--key", "c.key", "--store", "letters.db"]).code,
        2,
        "there is one"
    );
}

#[test]
fn sealed_letters_are_fixed_and_replayed_with_the_key_only() {
    let desk = sealed();
    let fix = ["fix", "--rule", "make_valid", "--all", "--format", "json"];
    assert_eq!(desk.dlq(&fix).code, 1, "no key");
    let fixed = desk.dlq(&[&fix[..], &["--key", "a.key"]].concat());
    assert_eq!(fixed.json()[0]["count"]["validated"], 1);
    let replay = desk.dlq(&["replay", "--into", "out.geojson", "--state", "validated", "--key", "a.key"]);
    assert_eq!(replay.code, 0, "{}", replay.stderr);
    assert_eq!(desk.out().len(), 3);
}

#[test]
fn a_rotation_rewraps_and_leaves_the_old_key_out() {
    let desk = sealed();
    let id = desk.id("INVALID_GEOMETRY");
    let old = std::fs::read_to_string(desk.path("a.key")).unwrap();
    let ran = desk.run(&["keys", "rotate", "--key", "a.key", "--store", "letters.db"]);
    assert!(ran.code == 0 && ran.stderr.contains("re-encrypted 5 letters"), "{}", ran.stderr);
    desk.write("old.key", &old);
    assert_eq!(desk.dlq(&["show", &id, "--reveal", "x", "--key", "old.key"]).code, 1);
    assert_eq!(desk.dlq(&["show", &id, "--reveal", "x", "--key", "a.key"]).code, 0);
    let db = rusqlite::Connection::open(desk.path("letters.db")).unwrap();
    db.execute_batch(
        "CREATE TEMP TABLE t AS SELECT seq, received FROM body;
         UPDATE body SET received = (SELECT received FROM t WHERE t.seq = 6 - body.seq) WHERE seq IN (1, 5);
         UPDATE body SET envelope = '{' || substr(envelope, 59);",
    )
    .unwrap();
    drop(db);
    let swapped = desk.dlq(&["show", &id, "--reveal", "x", "--key", "a.key"]);
    assert!(
        swapped.code == 1 && swapped.stderr.contains("changed after it was sealed"),
        "{}",
        swapped.stderr
    );
}

#[test]
fn the_messages_of_sealed_letters_quote_no_value() {
    let server = Canned::start(|head| {
        let street = head.lines().next().unwrap_or_default().to_owned();
        json("422 Unprocessable Content", &format!("{{\"error\":\"cannot find {street}\"}}"))
    });
    for sealed in [true, false] {
        let desk = Desk::new();
        desk.write("in.csv", "id,address\n1,Hauptplatz 4711\n2,Neugasse 12\n");
        if sealed {
            let made = desk.run(&["keys", "generate", "--key", "a.key", "--store", "letters.db"]);
            assert_eq!(made.code, 0, "{}", made.stderr);
        }
        let args = ["geocode", "in.csv", "--address", "address", "--url", &server.url(), "-o", "out.csv"];
        let ran = desk.run(&[&args[..], &["--dead-letters", "letters.db"]].concat());
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        let listed = desk.dlq(&["ls", "--format", "json"]).stdout;
        let table = desk.dlq(&["ls"]).stdout;
        let shown = desk.dlq(&["show", &desk.id("UNPROCESSABLE")]).stdout;
        let exported = desk.dlq(&["export", "-o", "dead.csv"]);
        assert_eq!(exported.code, 0, "{}", exported.stderr);
        for text in [listed, table, shown, desk.read("dead.csv")] {
            assert_eq!(text.contains("Hauptplatz"), !sealed, "sealed: {sealed}: {text}");
        }
        for name in ["letters.db", "letters.db-wal"] {
            let bytes = std::fs::read(desk.path(name)).unwrap_or_default();
            let found = bytes.windows(10).any(|w| w == b"Hauptplatz");
            assert!(!sealed || !found, "{name} holds a value in clear");
        }
        let letters = desk.letters();
        let message = letters[0]["failure"]["message"].as_str().unwrap();
        assert_eq!(message.contains("the service said <s>"), sealed, "{message}");
        // What a service said is readable, without the escapes of a program.
        assert_eq!(message.contains("said “cannot find GET /geocode?q=Hauptplatz"), !sealed, "{message}");
    }
}
