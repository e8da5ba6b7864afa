//! A store that was made before its audit was signed stays readable, and is signed when it is opened.

use crate::letter::bench::{Bench, T0};
use tidegate_ledger::letter::store::{By, LetterPage, Put};
use tidegate_ledger::letter::{LetterFilter, LetterStore};

/// As version 2 made it: failures of a known letter were not counted, and envelopes had no checksums.
const VERSION_2: &str = "DROP INDEX letter_seen; ALTER TABLE letter DROP COLUMN times;
     ALTER TABLE letter DROP COLUMN last_ms; ALTER TABLE letter DROP COLUMN run;
     CREATE INDEX letter_group ON letter (grp, state, failed_ms, first_ms);
     UPDATE body SET envelope = '{' || substr(envelope, 59);
     UPDATE meta SET value = '2' WHERE name = 'version';";

#[test]
fn stores_of_version_2_count_from_now_on() {
    for bench in [Bench::sqlite(), Bench::postgres()] {
        let letters = bench.letters();
        let ids =
            letters.put(&[crate::letter::bench::letter(1), crate::letter::bench::letter(2)]).wait().unwrap();
        letters.close();
        bench.execute(VERSION_2);
        // Letter 1 is of a failed replay, which had a key of its own.
        bench.execute("UPDATE letter SET generation = 1, once = id WHERE seq = 1");
        bench.execute(
            "UPDATE body SET envelope = replace(envelope, '\"generation\":0', '\"generation\":1') WHERE seq = 1",
        );
        let mut store = bench.store();
        let page = LetterPage { limit: 9, newest_first: false, payload: false };
        let seen = |store: &mut LetterStore| -> Vec<(u64, i64)> {
            let rows = store.find(&LetterFilter::default(), page).unwrap();
            rows.iter().map(|row| (row.letter.times, row.letter.last_seen_ms - T0)).collect()
        };
        assert_eq!((ids.len(), seen(&mut store)), (2, vec![(1, 1000), (1, 2000)]));
        let letters = bench.letters();
        let mut later = crate::letter::bench::letter(2);
        (later.failure.failed_ms, later.run) = (T0 + 9000, "2".into());
        for _ in 0..2 {
            assert_eq!(letters.put(&[later.clone()]).wait().unwrap(), [Put::Known]);
        }
        letters.close();
        assert_eq!(seen(&mut store), [(1, 1000), (2, 9000)]);
        let letters = bench.letters();
        let mut first = crate::letter::bench::letter(1);
        (first.failure.failed_ms, first.run) = (T0 + 9500, "3".into());
        assert_eq!(letters.put(&[first]).wait().unwrap(), [Put::Known]);
        letters.close();
        assert_eq!(seen(&mut store), [(2, 9500), (2, 9000)]);
        assert_eq!(store.stats(&LetterFilter::default(), By::Pipeline, T0).unwrap()[0].count, 1);
        assert!(bench.store().audit_verify().is_ok());
    }
}

#[test]
fn a_store_of_version_1_is_brought_up_to_date() {
    let bench = Bench::sqlite();
    let letters = bench.letters();
    letters.put(&[crate::letter::bench::letter(1)]).wait().unwrap();
    letters.close();
    let path = bench.dir().join("letters.db");
    // As version 1 made it; the hash is computed by another program.
    bench.execute(VERSION_2);
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(
        "DROP TABLE audit_head; DROP TABLE audit_checkpoint; DELETE FROM audit;
         ALTER TABLE audit DROP COLUMN key; ALTER TABLE audit DROP COLUMN code; ALTER TABLE audit DROP COLUMN dest;
         INSERT INTO audit (n, at_ms, who, act, detail, hash) VALUES (1, 5, 'ann', 'set', '{}',
             x'848de89454bbb3c48f6d1d13d2d9de93ccba5f6412863f368703cf612c7939be');
         UPDATE meta SET value = '1' WHERE name = 'version'",
    )
    .unwrap();
    drop(old);
    for name in ["letters.db.checkpoints", "audit.key", "audit.pub"] {
        std::fs::remove_file(bench.dir().join(name)).unwrap();
    }
    let mut store = bench.store();
    assert_eq!(store.count(&LetterFilter::default()), Ok(1));
    let entries = store.audit(None, 9).unwrap();
    let told: Vec<_> = entries.iter().map(|e| (e.n, e.who.as_str(), e.act.as_str())).collect();
    assert_eq!((told[0], told.len(), told[1].2), ((1, "ann", "set"), 2, "upgrade"));
    assert_eq!(store.audit_verify().unwrap().0, 2);
    drop(store);
    assert_eq!(bench.store().audit_verify().unwrap().0, 2, "once is enough");
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("UPDATE audit SET who = 'x' WHERE n = 1")
        .unwrap();
    assert!(bench.store().audit_verify().unwrap_err().to_string().contains("entry 1 was edited"));
}
