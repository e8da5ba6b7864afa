//! Every way to touch an audit, at every entry: the first entry that was touched is named.
//!
//! The chain is computed here a second time, as somebody would who knows the form and has no key.

use std::fs;
use std::path::PathBuf;

use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use tidegate_ledger::audit::{
    AuditEvent, AuditLog, Checkpoint, Copies, Signer, TamperFinding, TamperKind, TrustAnchors, VerifiedLog,
};

const ENTRIES: i64 = 24;

struct Bench {
    dir: tempfile::TempDir,
    signer: Signer,
}

fn act(n: i64) -> AuditEvent {
    let act = AuditEvent::new(n * 150, "route", serde_json::json!({ "n": n })).key(format!("record {n}"));
    act.code("TIMEOUT").to("dead_letters")
}

impl Bench {
    /// A log of several checkpoints over several entries each.
    fn new() -> Bench {
        let bench = Bench { dir: tempfile::tempdir().unwrap(), signer: Signer::generate().unwrap() };
        let mut book = bench.open();
        for n in 1..=ENTRIES {
            book.enter(vec![act(n)]).unwrap();
        }
        book.close(ENTRIES * 150).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> AuditLog {
        let signer = Signer::from_text(&self.signer.to_text()).unwrap();
        AuditLog::open(&self.path("audit.db"), "test", Some(signer), &self.path("copies")).unwrap()
    }

    fn trust(&self) -> TrustAnchors {
        let copies = Copies::new(&self.path("copies"), "test").read().unwrap().checkpoints;
        TrustAnchors { keys: vec![self.signer.public()], copies }
    }

    /// What is found when the log has been touched so; the log itself stays as it is.
    fn touched(
        &self,
        trust: &TrustAnchors,
        touch: impl Fn(&Connection),
    ) -> Result<VerifiedLog, TamperFinding> {
        let copy = self.path("touched.db");
        fs::copy(self.path("audit.db"), &copy).unwrap();
        let db = Connection::open(&copy).unwrap();
        db.pragma_update(None, "synchronous", "off").unwrap();
        db.execute_batch("BEGIN").unwrap();
        touch(&db);
        db.execute_batch("COMMIT").unwrap();
        drop(db);
        AuditLog::look(&copy, "test").unwrap().verify(trust).unwrap()
    }

    fn names(&self, n: i64, fault: TamperKind, touch: impl Fn(&Connection)) {
        let trust = self.trust();
        // Without the copies the database's own checkpoints tell the same, as long as they are there.
        let alone = TrustAnchors { copies: Vec::new(), ..trust.clone() };
        for trust in [trust, alone] {
            let finding = self.touched(&trust, &touch).unwrap_err();
            assert_eq!((finding.n, finding.fault), (n, fault), "{finding}");
        }
    }
}

fn run(db: &Connection, sql: &str) {
    db.execute_batch(sql).unwrap();
}

fn shift(db: &Connection, from: i64, by: i64) {
    run(
        db,
        &format!("UPDATE audit SET n = -(n + {by}) WHERE n >= {from}; UPDATE audit SET n = -n WHERE n < 0"),
    );
}

/// Computes the hashes anew from an entry to another.
fn relink(db: &Connection, from: i64, to: i64) {
    let before = "SELECT hash FROM audit WHERE n = ?1";
    let mut before: Vec<u8> = db.query_row(before, [from - 1], |row| row.get(0)).unwrap_or_default();
    let columns = "SELECT n, at_ms, who, act, letter, key, code, dest, detail FROM audit WHERE n >= ?1 AND n <= ?2 ORDER BY n";
    let mut statement = db.prepare(columns).unwrap();
    let mut rows = statement.query([from, to]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let mut hash = Sha256::new();
        hash.update(b"tidegate-audit-2\n");
        hash.update(&before);
        let n: i64 = row.get(0).unwrap();
        hash.update(n.to_le_bytes());
        hash.update(row.get::<_, i64>(1).unwrap().to_le_bytes());
        for column in 2..9 {
            let part = match row.get_ref(column).unwrap() {
                rusqlite::types::ValueRef::Null => None,
                other => Some(other.as_bytes().unwrap().to_vec()),
            };
            hash.update(part.as_ref().map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
            hash.update(part.unwrap_or_default());
        }
        before = hash.finalize().to_vec();
        db.execute("UPDATE audit SET hash = ?1 WHERE n = ?2", params![before, n]).unwrap();
    }
}

#[test]
fn an_untouched_log_is_whole_and_the_form_is_the_one_that_is_written_down() {
    let bench = Bench::new();
    for touch in [0, 1] {
        let whole = bench
            .touched(&bench.trust(), |db| {
                if touch == 1 {
                    relink(db, 1, ENTRIES);
                }
            })
            .unwrap();
        let key = Some(bench.signer.key_id.clone());
        assert_eq!((whole.entries, whole.copied, whole.key), (ENTRIES, ENTRIES, key));
        assert!(whole.checkpoints >= 4, "{}", whole.checkpoints);
    }
    let chain_only = bench.touched(&TrustAnchors::default(), |_| ()).unwrap();
    assert_eq!((chain_only.entries, chain_only.key), (ENTRIES, None));
}

#[test]
fn an_edited_entry_is_named() {
    let bench = Bench::new();
    for n in 1..=ENTRIES {
        for set in
            ["detail = '{}'", "who = 'x'", "act = 'x'", "key = 'x'", "code = NULL", "dest = ''", "at_ms = 1"]
        {
            bench
                .names(n, TamperKind::Edited, |db| run(db, &format!("UPDATE audit SET {set} WHERE n = {n}")));
        }
        // With its hash made to fit, or the whole chain after it.
        for to in [n, ENTRIES] {
            bench.names(n, TamperKind::Forged, |db| {
                run(db, &format!("UPDATE audit SET who = 'x' WHERE n = {n}"));
                relink(db, n, to);
            });
        }
    }
}

#[test]
fn a_deleted_or_cut_entry_is_named() {
    let bench = Bench::new();
    for n in 1..=ENTRIES {
        let gone = if n == ENTRIES { TamperKind::Truncated } else { TamperKind::Deleted };
        bench.names(n, gone, |db| run(db, &format!("DELETE FROM audit WHERE n = {n}")));
        bench.names(n, gone, |db| {
            run(db, &format!("DELETE FROM audit WHERE n = {n}"));
            shift(db, n + 1, -1);
        });
        bench.names(n, TamperKind::Truncated, |db| run(db, &format!("DELETE FROM audit WHERE n >= {n}")));
    }
}

#[test]
fn a_reordered_entry_is_named() {
    let bench = Bench::new();
    for n in 1..ENTRIES {
        for other in (n + 1..=ENTRIES).step_by(3) {
            bench.names(n, TamperKind::Reordered, |db| {
                run(
                    db,
                    &format!(
                        "UPDATE audit SET n = -1 WHERE n = {n}; UPDATE audit SET n = {n} WHERE n = {other};
                         UPDATE audit SET n = {other} WHERE n = -1"
                    ),
                );
            });
        }
    }
}

#[test]
fn a_forged_entry_is_named() {
    let bench = Bench::new();
    for n in 1..=ENTRIES + 1 {
        for relinked in [false, true] {
            bench.names(n, TamperKind::Forged, |db| {
                shift(db, n, 1);
                let sql = "INSERT INTO audit (n, at_ms, who, act, detail, hash) VALUES (?1, 1, 'x', 'x', '{}', zeroblob(32))";
                db.execute(sql, [n]).unwrap();
                if relinked {
                    relink(db, n, ENTRIES + 1);
                }
            });
        }
    }
    for head in ["UPDATE audit_head SET signature = NULL", "DELETE FROM audit_head"] {
        bench.names(ENTRIES, TamperKind::Forged, |db| run(db, head));
    }
}

#[test]
fn an_entry_of_another_key_is_forged() {
    let bench = Bench::new();
    let trust = bench.trust();
    let other = Signer::generate().unwrap();
    let mut book =
        AuditLog::open(&bench.path("audit.db"), "test", Some(other), &bench.path("copies")).unwrap();
    book.enter(vec![act(ENTRIES + 1)]).unwrap();
    drop(book);
    let finding = bench.touched(&trust, |_| ()).unwrap_err();
    assert_eq!((finding.n, finding.fault), (ENTRIES + 1, TamperKind::Forged), "{finding}");
    let stranger = TrustAnchors { keys: vec![Signer::generate().unwrap().public()], ..trust };
    assert_eq!(bench.touched(&stranger, |_| ()).unwrap_err().fault, TamperKind::Forged);
}

#[test]
fn an_older_state_put_back_is_cut_by_the_copies() {
    let bench = Bench::new();
    let older = bench.path("older.db");
    fs::copy(bench.path("audit.db"), &older).unwrap();
    let mut book = bench.open();
    for n in ENTRIES + 1..ENTRIES + 9 {
        book.enter(vec![act(n)]).unwrap();
    }
    book.close(9_999_999).unwrap();
    drop(book);
    let verify = |trust: &TrustAnchors| AuditLog::look(&older, "test").unwrap().verify(trust).unwrap();
    let trust = bench.trust();
    let finding = verify(&trust).unwrap_err();
    assert_eq!((finding.n, finding.fault), (ENTRIES + 1, TamperKind::Truncated), "{finding}");
    // This is what the copies are for.
    assert!(verify(&TrustAnchors { copies: Vec::new(), ..trust }).is_ok());
}

#[test]
fn a_touched_checkpoint_is_found() {
    let bench = Bench::new();
    for touch in [
        "UPDATE audit_checkpoint SET root = x'00' WHERE k = 2",
        "UPDATE audit_checkpoint SET marks = x'00' WHERE k = 2",
        "UPDATE audit_checkpoint SET signature = x'00' WHERE k = (SELECT max(k) FROM audit_checkpoint)",
        "DELETE FROM audit_checkpoint WHERE k = 2",
        "DELETE FROM audit_checkpoint",
    ] {
        let finding = bench.touched(&bench.trust(), |db| run(db, touch)).unwrap_err();
        assert_eq!(finding.fault, TamperKind::Forged, "{touch}: {finding}");
    }
}

#[test]
fn nothing_is_added_to_a_touched_end() {
    let refused = |touch: &str| {
        let bench = Bench::new();
        run(&Connection::open(bench.path("audit.db")).unwrap(), touch);
        bench.open().enter(vec![act(99)]).unwrap_err().to_string()
    };
    assert!(refused("DELETE FROM audit WHERE n = 24").contains("modified by another program"));
    assert!(refused("UPDATE audit_head SET signature = x'00'").contains("signature"));
    assert!(refused("DELETE FROM audit_head").contains("head is missing"));
    let bench = Bench::new();
    let copies = bench.path("copies");
    let text = fs::read_to_string(&copies).unwrap();
    let mut known: Checkpoint = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    (known.k, known.last) = (known.k + 1, known.last + 5);
    fs::write(&copies, format!("{text}{}\n", serde_json::to_string(&known).unwrap())).unwrap();
    assert!(bench.open().enter(vec![act(99)]).unwrap_err().to_string().contains("truncated or restored"));
    // A line that a crash cut off is written again.
    fs::write(&copies, format!("{text}{{\"log\":\"te")).unwrap();
    let mut book = bench.open();
    book.enter(vec![act(99)]).unwrap();
    book.close(10_000_000).unwrap();
    drop(book);
    assert_eq!(bench.touched(&bench.trust(), |_| ()).unwrap().copied, ENTRIES + 1);
}

#[test]
fn many_open_a_new_log_at_once() {
    let bench = Bench { dir: tempfile::tempdir().unwrap(), signer: Signer::generate().unwrap() };
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for n in 1..=8 {
            let (bench, barrier) = (&bench, &barrier);
            scope.spawn(move || {
                barrier.wait();
                bench.open().enter(vec![act(n)]).unwrap();
            });
        }
    });
    assert_eq!(bench.touched(&bench.trust(), |_| ()).unwrap().entries, 8);
}
