//! Archive, purge, hold, retention.

use std::io::{Read, Write};

use crate::dlq::desk::{Desk, end};
use tidegate_core::letter::LetterState;
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
    let purged = desk.dlq(&["purge", "--archived", "--all", "--yes", "--format", "json"]).json();
    assert_eq!((&purged["purged"], &purged["held"]), (&4.into(), &1.into()));
    let left = desk.letters();
    assert_eq!((left.len(), &left[0]["hold"]), (1, &"case 12".into()));
    assert_eq!(desk.dlq(&["release", "--all"]).code, 0);
    assert_eq!(desk.dlq(&["purge", "--all", "-y", "--format", "json"]).json()["purged"], 1);
    let gone = desk.dlq(&["show", &id]);
    assert!(gone.code == 2 && gone.stderr.contains("was purged"), "{}", gone.stderr);
    assert_eq!(
        desk.audited(),
        1 + 1 + 1 + 1 + 4 + 1 + 1,
        "definition, capture, archive, hold, four purges, release, purge"
    );
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
        letter.state = LetterState::Dismissed;
        letter.retained_for(60)
    };
    letters.put(&[old(1, 61), old(2, 59), old(3, 90)]).wait().unwrap();
    letters.close();
    let ran = desk.dlq(&["ls", "--closed", "--format", "json"]);
    assert!(ran.stderr.contains("purged 1 letter past the retention period"), "{}", ran.stderr);
    assert_eq!(ran.json().as_array().unwrap().len(), 5 + 2, "59 days and the one that is held stay");
}

/// Retention deletes an open letter only after it was archived, and says so in the audit.
#[test]
fn an_open_letter_is_archived_before_retention_deletes_it() {
    let desk = Desk::at(".tidegate/letters.db");
    desk.write("m.yaml", crate::dlq::nightly::MANIFEST);
    let record = |v: &str| {
        format!(
            "{{\"type\":\"Feature\",\"properties\":{{\"code\":\"A\",\"v\":\"{v}\"}},\"geometry\":null}}\n"
        )
    };
    desk.write("in.geojsonl", &record("x"));
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 4);
    let expire = || {
        let db = rusqlite::Connection::open(desk.path(".tidegate/letters.db")).unwrap();
        db.execute("UPDATE letter SET retain_ms = 1", []).unwrap();
    };
    expire();
    let ran = desk.dlq(&["ls", "--format", "json"]);
    assert_eq!(ran.json().as_array().unwrap().len(), 1, "it is the only trace of its record");
    assert!(
        ran.stderr.contains("1 open letter past the retention period stay: they are not archived"),
        "{}",
        ran.stderr
    );
    let acts = |desk: &Desk| {
        let text =
            desk.run(&["audit", "show", "--store", ".tidegate/letters.db", "--format", "ndjson"]).stdout;
        let act = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["act"].as_str().unwrap().to_owned()
        };
        text.lines().map(act).filter(|act| act == "archive" || act == "purge").collect::<Vec<_>>()
    };
    assert_eq!(acts(&desk), [""; 0]);
    // A place that cannot be written keeps the letter, too.
    desk.write("blocked", "a file");
    let manifest = |to: &str| {
        crate::dlq::nightly::MANIFEST
            .replace("dead_letters: {}", &format!("dead_letters: {{ archive: {to} }}"))
    };
    desk.write("m.yaml", &manifest("blocked"));
    desk.write("in.geojsonl", &record("1"));
    let ran = desk.run(&["run", "m.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot be archived to"), "{}", ran.stderr);
    expire();
    desk.write("m.yaml", &manifest("cold"));
    // Where to, only a manifest says, and this command has none.
    let ran = desk.dlq(&["ls", "--format", "json"]);
    assert_eq!(ran.json().as_array().unwrap().len(), 1);
    assert!(!desk.path("cold").exists(), "{}", ran.stderr);
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 0);
    let ran = desk.dlq(&["ls", "--closed", "--format", "json"]);
    assert_eq!(ran.json().as_array().unwrap().len(), 0, "{}", ran.stderr);
    assert_eq!(acts(&desk), ["archive", "purge"]);
    let names: Vec<String> = std::fs::read_dir(desk.path("cold"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().any(|name| name.ends_with(".ndjson.zst")), "{names:?}");
    desk.audited();
}

/// The bucket of the misbehaving provider does not return what was written to it.
#[test]
fn a_bucket_that_does_not_return_the_archive_purges_nothing() {
    let server = tidegate_chaos::Chaos::start(tidegate_chaos::Config::default()).unwrap();
    let endpoint = format!("{}/s3", server.url());
    let desk = Desk::at(".tidegate/letters.db");
    let to = "dead_letters: { archive: \"s3://cold/letters\" }";
    desk.write("m.yaml", &crate::dlq::nightly::MANIFEST.replace("dead_letters: {}", to));
    desk.write(
        "in.geojsonl",
        "{\"type\":\"Feature\",\"properties\":{\"code\":\"A\",\"v\":\"x\"},\"geometry\":null}\n",
    );
    assert_eq!(desk.run(&["run", "m.yaml"]).code, 4);
    let db = rusqlite::Connection::open(desk.path(".tidegate/letters.db")).unwrap();
    assert_eq!(db.execute("UPDATE letter SET retain_ms = 1", []).unwrap(), 1);
    let mut command = desk.command(&["run", "m.yaml"]);
    let ran = end(command.env("AWS_ENDPOINT_URL", &endpoint).spawn().unwrap());
    assert!(ran.stderr.contains("the archive is incomplete"), "{}", ran.stderr);
    assert_eq!(desk.letters().len(), 1);
    let listed =
        desk.run(&["store", "ls", "s3://cold", "letters", "--format", "ndjson", "--endpoint", &endpoint]);
    assert_eq!(listed.stdout.lines().count(), 2, "letters and manifest: {}", listed.stdout);
}

#[test]
fn open_letters_are_purged_only_when_a_person_says_so() {
    let desk = Desk::parcels();
    assert_eq!(desk.dlq(&["dismiss", "--code", "OUT_OF_BOUNDS", "--why", "test data"]).code, 0);
    let refused = desk.dlq(&["purge", "--all"]);
    assert_eq!((refused.code, desk.letters().len()), (2, 5), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("4 letters are open") && refused.stderr.contains("pass --yes"),
        "{}",
        refused.stderr
    );
    let closed = desk.dlq(&["purge", "--state", "dismissed"]);
    assert_eq!(closed.code, 0, "{}", closed.stderr);
    assert!(closed.stderr.contains("purged 1 letter (1 dismissed); 0 on hold kept"), "{}", closed.stderr);
    // On a terminal it asks: anything but yes leaves everything as it is.
    let (no, asked) = at_terminal(&desk, &["purge", "--all"], "n\n");
    assert_eq!((no, desk.letters().len()), (1, 4), "{asked}");
    assert!(asked.contains("Purge 4 letters (4 captured) for good? [y/N]"), "{asked}");
    let (yes, told) = at_terminal(&desk, &["purge", "--code", "UNCLOSED_RING"], "y\n");
    assert_eq!((yes, desk.letters().len()), (0, 3), "{told}");
    assert!(told.contains("purged 1 letter (1 captured)"), "{told}");
    let json = desk.dlq(&["purge", "--all", "--yes", "--format", "json"]).json();
    assert_eq!((&json["purged"], &json["states"]["captured"]), (&3.into(), &3.into()), "{json}");
}

/// Runs a command with a terminal on standard input and error, on which this is typed.
fn at_terminal(desk: &Desk, args: &[&str], typed: &str) -> (i32, String) {
    let pty = nix::pty::openpty(None, None).unwrap();
    let slave = |fd: &std::os::fd::OwnedFd| std::process::Stdio::from(fd.try_clone().unwrap());
    let mut command = desk.command(&[&["dlq", "--store", "letters.db"], args].concat());
    let mut child = command.stdin(slave(&pty.slave)).stderr(slave(&pty.slave)).spawn().unwrap();
    drop((command, pty.slave));
    let mut master = std::fs::File::from(pty.master);
    master.write_all(typed.as_bytes()).unwrap();
    let mut told = Vec::new();
    // The terminal ends with an error when nobody has it open any more.
    let _ = master.read_to_end(&mut told);
    (child.wait().unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn the_audit_names_the_number_of_a_user_without_a_name() {
    let desk = Desk::parcels();
    let mut command = desk.command(&["dlq", "--store", "letters.db", "hold", "--all", "--why", "case 12"]);
    for name in ["TIDEGATE_USER", "USER", "LOGNAME", "USERNAME"] {
        command.env_remove(name);
    }
    assert_eq!(end(command.spawn().unwrap()).code, 0);
    let audit = desk.dlq(&["audit", "--format", "json"]).json();
    let held = audit.as_array().unwrap().iter().find(|e| e["act"] == "hold").unwrap();
    assert_eq!(held["who"], format!("uid {}", nix::unistd::getuid()));
}
