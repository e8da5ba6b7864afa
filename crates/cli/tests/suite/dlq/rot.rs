//! Bits that flipped on the disk: a damaged letter is named, and the others are not lost with it.

use crate::dlq::desk::Desk;

/// Flips a bit in the middle of a column of the letter's body. The second time it is as it was.
fn flip(desk: &Desk, id: &str, column: &str) {
    let db = rusqlite::Connection::open(desk.path("letters.db")).unwrap();
    let which = "FROM letter l JOIN body b ON b.seq = l.seq WHERE lower(hex(l.id)) = ?1";
    let hex = id.replace('-', "").to_lowercase();
    let sql = format!("SELECT b.seq, CAST(b.{column} AS BLOB) {which}");
    let (seq, mut bytes): (i64, Vec<u8>) =
        db.query_row(&sql, [&hex], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    // A letter or a digit that becomes another, so that the JSON stays valid.
    let middle = bytes.len() / 2;
    let at = (middle..bytes.len()).find(|at| bytes[*at].is_ascii_digit()).unwrap();
    bytes[at] ^= 1;
    let kind = if column == "envelope" { "TEXT" } else { "BLOB" };
    db.execute(&format!("UPDATE body SET {column} = CAST(?1 AS {kind}) WHERE seq = ?2"), (bytes, seq))
        .unwrap();
}

#[test]
fn a_damaged_payload_is_named_and_the_others_are_exported_and_replayed() {
    let desk = Desk::parcels();
    let id = desk.id("INVALID_GEOMETRY");
    assert_eq!(desk.audited(), 2, "the definition and the capture");
    let fixed = desk.dlq(&["fix", "--rule", "make_valid", "--all", "--format", "json"]);
    assert_eq!(fixed.json()[0]["count"]["validated"], 1, "{}", fixed.stderr);
    let ids = desk.letters();
    let ids: Vec<&str> = ids.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    flip(&desk, &id, "current");
    let said = format!("letter {id} is damaged and was left out: its payload does not match its checksum");

    let verified = desk.dlq(&["audit", "--verify"]);
    assert_eq!(verified.code, 1, "{}", verified.stderr);
    assert_eq!(
        (&verified.json()["letters"]["checked"], &verified.json()["letters"]["damaged"][0]),
        (&5.into(), &id.as_str().into())
    );
    assert!(verified.stderr.contains(&said), "{}", verified.stderr);
    let verified = desk.run(&["audit", "verify", "--store", "letters.db"]);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    assert!(verified.stdout.contains("letters.db: intact:"), "{}", verified.stdout);
    assert!(verified.stdout.contains(&format!("letters.db: DAMAGED: letter {id}:")), "{}", verified.stdout);

    let shown = desk.dlq(&["show", &id, "--reveal", "why"]);
    assert!(shown.code == 1 && shown.stderr.contains(&format!("letter {id} is damaged")), "{}", shown.stderr);
    let exported = desk.dlq(&["export", "-o", "dead.ndjson"]);
    assert_eq!(exported.code, 1, "{}", exported.stderr);
    assert!(exported.stderr.contains(&said), "{}", exported.stderr);
    let dead = desk.read("dead.ndjson");
    assert_eq!(ids.iter().filter(|id| dead.contains(**id)).count(), 4);
    assert!(!dead.contains(&id));

    let before = desk.read("out.geojson");
    let replayed = desk.dlq(&["replay", "--into", "out.geojson", "--state", "validated", "--format", "json"]);
    assert_ne!(replayed.code, 0, "{}", replayed.stdout);
    assert!(replayed.stderr.contains(&said), "{}", replayed.stderr);
    assert_eq!(desk.read("out.geojson"), before, "nothing wrong was written");
    // Nothing is lost: as soon as the bit is right, the letter is replayed.
    flip(&desk, &id, "current");
    let replayed = desk.dlq(&["replay", "--into", "out.geojson", "--state", "validated", "--format", "json"]);
    assert_eq!((replayed.code, &replayed.json()[0]["resolved"]), (0, &1.into()), "{}", replayed.stderr);
    assert_eq!(desk.out().len(), 3);
    assert_eq!(desk.dlq(&["audit", "--verify"]).code, 0);
}

#[test]
fn a_damaged_envelope_is_named_and_one_of_an_older_version_is_accepted() {
    let desk = Desk::parcels();
    let id = desk.id("INVALID_GEOMETRY");
    flip(&desk, &id, "envelope");
    let listed = desk.dlq(&["ls", "--format", "json"]);
    assert_eq!((listed.code, listed.json().as_array().unwrap().len()), (1, 4), "{}", listed.stderr);
    let said = format!("letter {id} is damaged and was left out: its envelope does not match its checksum");
    assert!(listed.stderr.contains(&said), "{}", listed.stderr);
    // An older version wrote no checksums.
    let db = rusqlite::Connection::open(desk.path("letters.db")).unwrap();
    db.execute("UPDATE body SET envelope = '{' || substr(envelope, 59)", []).unwrap();
    assert_eq!(desk.letters().len(), 5);
    let fixed = desk.dlq(&["fix", "--rule", "make_valid", "--all", "--format", "json"]);
    assert_eq!(fixed.json()[0]["count"]["validated"], 1, "{}", fixed.stderr);
    assert_eq!(desk.dlq(&["audit", "--verify"]).code, 0);
}
