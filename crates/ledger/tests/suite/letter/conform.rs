//! What every store must do. Each check runs over SQLite and over PostgreSQL.

use crate::letter::bench::{Bench, T0, letter};
use tidegate_core::letter::{FailureClass, LetterId, LetterState};
use tidegate_ledger::audit::AuditEvent;
use tidegate_ledger::letter::seal::{Keyring, SecretKey};
use tidegate_ledger::letter::store::{
    Amend, ArchivePlace, By, FinishedReplay, Incident, Leased, LetterPage, ReplayOutcome,
};
use tidegate_ledger::letter::{DAY_MS, Letter, LetterError, LetterFilter, LetterStore, Put};

macro_rules! conform {
    ($($name:ident)*) => {
        mod sqlite { $(#[test] fn $name() { super::$name(&super::Bench::sqlite()); })* }
        mod postgres { $(#[test] fn $name() { super::$name(&super::Bench::postgres()); })* }
    };
}

conform! {
    many_open_a_new_store_at_once
    what_was_put_is_found
    the_same_failure_is_one_letter_while_it_is_open
    large_payloads_are_blobs_and_shared
    filters
    stats_by_everything
    an_amendment_is_fenced_and_audited
    a_plan_freezes_its_members
    a_stale_lease_cannot_finish
    a_second_death_is_a_child
    a_cancelled_plan_gives_back
    a_plan_without_letters_is_done
    a_repaired_record_is_known_by_its_content
    workers_never_share_a_letter
    purge_leaves_tombstones_and_obeys_holds
    retention_counts_from_the_first_failure
    open_letters_are_archived_where_a_person_said
    definitions_and_settings_are_vouched_for
    the_audit_shows_changes
    incidents_open_once_and_close
    a_full_store_says_so
    sixty_four_producers_share_commits
    archived_letters_say_where
    sealed_letters_are_wrapped_anew
}

const ALL: LetterPage = LetterPage { limit: 100_000, newest_first: false, payload: true };

fn put(bench: &Bench, n: std::ops::Range<u64>) -> Vec<LetterId> {
    let letters: Vec<Letter> = n.map(letter).collect();
    let handle = bench.letters();
    let ids = handle.put(&letters).wait().unwrap().into_iter().map(|put| match put {
        Put::New(id) => id,
        Put::Known => panic!("new letters are new"),
    });
    let ids = ids.collect();
    handle.close();
    ids
}

fn many_open_a_new_store_at_once(bench: &Bench) {
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(bench.store().count(&LetterFilter::default()), Ok(0));
            });
        }
    });
    assert_eq!(put(bench, 0..3).len(), 3);
}

fn what_was_put_is_found(bench: &Bench) {
    let ids = put(bench, 0..100);
    assert!(ids.is_sorted());
    let mut store = bench.store();
    let rows = store.find(&LetterFilter::default(), ALL).unwrap();
    assert_eq!(rows.len(), 100);
    for (n, (row, id)) in rows.iter().zip(&ids).enumerate() {
        let want = letter(n as u64);
        let got = &row.letter;
        assert_eq!((got.id, got.lineage.root, got.lineage.generation), (*id, *id, 0));
        assert_eq!(got.lineage.first_failed_ms, want.failure.failed_ms);
        assert_eq!(
            (&got.payload, &got.failure, &got.spatial, &got.pipeline, got.retain_until_ms),
            (&want.payload, &want.failure, &want.spatial, &want.pipeline, want.retain_until_ms)
        );
    }
    let one = store.get(ids[7]).unwrap().unwrap();
    assert_eq!(one.letter.idempotency_key, letter(7).idempotency_key);
    assert!(store.get(LetterId(1)).unwrap().is_none());
    let end = &ids[9].to_string()[24..];
    assert_eq!(store.ids_ending(end).unwrap(), [ids[9]]);
    assert_eq!(store.audit_verify().unwrap().0, 1, "one commit, one entry");
}

fn the_same_failure_is_one_letter_while_it_is_open(bench: &Bench) {
    let handle = bench.letters();
    let first = handle.put(&[letter(1), letter(2), letter(1)]).wait().unwrap();
    assert!(matches!(first[..], [Put::New(_), Put::New(_), Put::Known]));
    assert_eq!(handle.put(&[letter(1)]).wait(), Ok(vec![Put::Known]));
    let mut store = bench.store();
    let row = store.find(&LetterFilter::default(), ALL).unwrap().remove(0);
    let dismissed = Letter { state: LetterState::Dismissed, ..row.letter.clone() };
    let amend = Amend { row, letter: dismissed, payload: None, act: "dismiss", detail: "seen".into() };
    store.amend(&amend, T0).unwrap();
    assert!(
        matches!(handle.put(&[letter(1)]).wait().unwrap()[..], [Put::New(_)]),
        "closed: it is news again"
    );
    assert_eq!(store.count(&LetterFilter::default()), Ok(3));
}

fn large_payloads_are_blobs_and_shared(bench: &Bench) {
    let handle = bench.letters();
    let big = |n: u64, size: usize| {
        let mut letter = letter(n);
        letter.payload.received = vec![b'x'; size];
        letter.payload.current = Some(vec![b'y'; size]);
        letter
    };
    let sizes = [64 * 1024, 64 * 1024 + 1, 300_000, 300_000];
    let letters: Vec<Letter> = sizes.iter().enumerate().map(|(n, size)| big(n as u64, *size)).collect();
    let puts = handle.put(&letters).wait().unwrap();
    let mut store = bench.store();
    for (put, size) in puts.iter().zip(sizes) {
        let Put::New(id) = put else { panic!("new") };
        let row = store.get(*id).unwrap().unwrap();
        assert_eq!(row.letter.payload.received, vec![b'x'; size]);
        assert_eq!(row.letter.payload.current(), vec![b'y'; size]);
    }
    let Put::New(third) = puts[2] else { panic!("new") };
    store.purge(&LetterFilter::of_ids([third]), "test", false, T0).unwrap();
    let Put::New(fourth) = puts[3] else { panic!("new") };
    assert_eq!(
        store.get(fourth).unwrap().unwrap().letter.payload.received.len(),
        300_000,
        "its twin has gone"
    );
}

fn filters(bench: &Bench) {
    let ids = put(bench, 0..720);
    let mut store = bench.store();
    let mut count = |filter: LetterFilter| store.count(&filter).unwrap();
    let f = LetterFilter::default;
    assert_eq!(count(f()), 720);
    assert_eq!(count(LetterFilter { codes: vec!["INVALID_GEOMETRY".into()], ..f() }), 240);
    assert_eq!(count(LetterFilter { codes: vec!["INVALID_GEOMETRY".into(), "TIMEOUT".into()], ..f() }), 720);
    assert_eq!(count(LetterFilter { classes: vec![FailureClass::Transient], ..f() }), 480);
    assert_eq!(
        count(LetterFilter { pipeline: Some("roads".into()), codes: vec!["TIMEOUT".into()], ..f() }),
        240
    );
    assert_eq!(count(LetterFilter { service: Some("geo.example".into()), ..f() }), 480);
    assert_eq!(count(LetterFilter { stage: Some("gate".into()), ..f() }), 240);
    assert_eq!(count(LetterFilter { since_ms: Some(T0 + 700_000), ..f() }), 20);
    assert_eq!(count(LetterFilter { until_ms: Some(T0 + 700_000), ..f() }), 700);
    assert_eq!(count(LetterFilter { crs: Some("EPSG:31256".into()), ..f() }), 240);
    assert_eq!(
        count(LetterFilter { bbox: Some([0.5, -81.0, 2.5, -78.0]), ..f() }),
        4,
        "1 and 2 degrees east, twice"
    );
    assert_eq!(count(LetterFilter { bbox: Some([500.0, 0.0, 501.0, 1.0]), ..f() }), 0);
    assert_eq!(
        count(LetterFilter { text: Some("PARCEL 699".into()), ..f() }),
        1,
        "words, not parts of words"
    );
    assert_eq!(count(LetterFilter { text: Some("self-intersection".into()), ..f() }), 240);
    assert_eq!(count(LetterFilter { text: Some("\" OR ?* (".into()), ..f() }), 0, "no word of it is there");
    assert_eq!(count(LetterFilter { states: vec![LetterState::Resolved], ..f() }), 0);
    assert_eq!(count(LetterFilter { generation_min: Some(1), ..f() }), 0);
    assert_eq!(count(LetterFilter { generation_max: Some(0), ..f() }), 720);
    assert_eq!(count(LetterFilter::of_ids(ids[..3].iter().copied())), 3);
    let fingerprint = letter(0).fingerprint();
    assert_eq!(count(LetterFilter { fingerprints: vec![fingerprint], ..f() }), 240);
    let newest = store.find(&f(), LetterPage { limit: 2, newest_first: true, payload: false }).unwrap();
    assert_eq!(newest.iter().map(|r| r.letter.id).collect::<Vec<_>>(), [ids[719], ids[718]]);
}

fn stats_by_everything(bench: &Bench) {
    put(bench, 0..90);
    let mut store = bench.store();
    let now = T0 + 10 * DAY_MS;
    let mut by = |by| -> Vec<(String, u64, u64)> {
        let groups = store.stats(&LetterFilter::default(), by, now).unwrap();
        groups.into_iter().map(|g| (g.name, g.count, g.open)).collect()
    };
    assert_eq!(by(By::Code), [("TIMEOUT".into(), 60, 60), ("INVALID_GEOMETRY".into(), 30, 30)]);
    assert_eq!(by(By::Class), [("transient".into(), 60, 60), ("fatal".into(), 30, 30)]);
    assert_eq!(by(By::Pipeline), [("parcels".into(), 45, 45), ("roads".into(), 45, 45)]);
    assert_eq!(by(By::Age), [("7 to 30 days".into(), 90, 90)]);
    assert_eq!(by(By::State), [("captured".into(), 90, 90)]);
    assert_eq!(by(By::Service), [("geo.example".into(), 60, 60), (String::new(), 30, 30)]);
    let groups = store.stats(&LetterFilter::default(), By::Fingerprint, now).unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0].message, "no answer within <n> s for row <n>");
    assert_eq!((groups[0].first_ms, groups[0].last_ms), (T0 + 1000, T0 + 89_000));
    let health = store.health(now).unwrap();
    assert_eq!((health.letters, health.open, health.oldest_ms, health.spatial), (90, 90, Some(T0), 30));
    assert!(health.bytes > 0 && health.capacity == 5_000_000);
}

fn an_amendment_is_fenced_and_audited(bench: &Bench) {
    let ids = put(bench, 0..1);
    let mut store = bench.store();
    let row = store.get(ids[0]).unwrap().unwrap();
    let mut fixed = Letter { state: LetterState::Validated, ..row.letter.clone() };
    fixed.spatial.as_mut().unwrap().bbox = Some([10.0, 10.0, 11.0, 11.0]);
    let payload = Some(b"{\"fixed\":true}".to_vec());
    let amend = Amend { row, letter: fixed, payload, act: "fix", detail: "make_valid/1".into() };
    store.amend(&amend, T0 + 5).unwrap();
    let again = store.amend(&amend, T0 + 6);
    assert!(matches!(again, Err(LetterError::Fenced(_))), "{again:?}");
    let now = store.get(ids[0]).unwrap().unwrap().letter;
    assert_eq!((now.state, now.payload.current()), (LetterState::Validated, &b"{\"fixed\":true}"[..]));
    assert_eq!(now.payload.received, b"{\"n\":0}");
    assert_eq!(
        store.count(&LetterFilter { bbox: Some([10.2, 10.2, 10.3, 10.3]), ..LetterFilter::default() }),
        Ok(1)
    );
    assert_eq!(
        store.count(&LetterFilter { bbox: Some([-180.0, -80.0, -179.9, -79.9]), ..LetterFilter::default() }),
        Ok(0)
    );
    let story = store.audit(Some(ids[0]), 10).unwrap();
    assert_eq!(story.iter().map(|e| (e.act.as_str(), e.at_ms)).collect::<Vec<_>>(), [("fix", T0 + 5)]);
    let row = store.get(ids[0]).unwrap().unwrap();
    let resolved = Letter { state: LetterState::Resolved, ..row.letter.clone() };
    let jump = Amend { row, letter: resolved, payload: None, act: "x", detail: "".into() };
    assert!(matches!(store.amend(&jump, T0), Err(LetterError::Refused(_))), "only a replay resolves");
}

fn a_plan_freezes_its_members(bench: &Bench) {
    put(bench, 0..30);
    let mut store = bench.store();
    let timeouts = LetterFilter { codes: vec!["TIMEOUT".into()], ..LetterFilter::default() };
    let dry = store.plan_dry(&timeouts, 3, T0).unwrap();
    assert_eq!(dry, [("parcels".to_string(), 10), ("roads".to_string(), 10)]);
    assert_eq!(
        store.count(&LetterFilter { states: vec![LetterState::Planned], ..LetterFilter::default() }),
        Ok(0),
        "dry"
    );
    let plan = store.plan("roads", &timeouts, 3, "{}", T0).unwrap();
    assert_eq!((plan.members, plan.left, plan.state.as_str()), (10, 10, "running"));
    put(bench, 30..60);
    assert_eq!(store.plan_get(plan.plan).unwrap().unwrap().members, 10, "later letters are not its");
    assert_eq!(store.plan("roads", &timeouts, 3, "{}", T0).unwrap().members, 10, "the first ten are taken");
    let dry = store.plan_dry(&LetterFilter::default(), 0, T0).unwrap();
    assert_eq!(dry, [], "a generation of 0 and a cap of 0");
}

fn a_stale_lease_cannot_finish(bench: &Bench) {
    put(bench, 0..2);
    let (mut store, handle) = (bench.store(), bench.letters());
    let plan = store.plan("parcels", &LetterFilter::default(), 3, "{}", T0).unwrap();
    let first = store.lease(plan.plan, 10, T0 + 100, T0 + 1).unwrap();
    assert_eq!(first.len(), 1);
    assert!(store.lease(plan.plan, 10, T0 + 200, T0 + 50).unwrap().is_empty(), "it is leased");
    let second = store.lease(plan.plan, 10, T0 + 300, T0 + 101).unwrap();
    assert!(second[0].token > first[0].token);
    let done = |leased: &Leased| {
        let outcome = ReplayOutcome::Resolved { note: "row 1".into() };
        vec![FinishedReplay { leased: leased.clone(), outcome }]
    };
    assert_eq!(store.finish(&handle, &done(&first[0]), T0 + 110), Ok(vec![false]), "fenced");
    assert_eq!(store.finish(&handle, &done(&second[0]), T0 + 120), Ok(vec![true]));
    assert_eq!(store.finish(&handle, &done(&second[0]), T0 + 130), Ok(vec![false]), "twice is once");
    let plan = store.plan_get(plan.plan).unwrap().unwrap();
    assert_eq!((plan.resolved, plan.left, plan.state.as_str()), (1, 0, "done"));
    let story = store.audit(Some(first[0].row.letter.id), 10).unwrap();
    assert_eq!(story.iter().filter(|e| e.act == "replay").count(), 1);
}

fn a_second_death_is_a_child(bench: &Bench) {
    let ids = put(bench, 0..1);
    let (mut store, handle) = (bench.store(), bench.letters());
    for generation in 0..3u32 {
        let plan = store.plan("parcels", &LetterFilter::default(), 3, "{}", T0).unwrap();
        let leased = store.lease(plan.plan, 1, T0 + 9, T0 + 1).unwrap().remove(0);
        assert_eq!(leased.row.letter.lineage.generation, generation);
        let mut child = leased.row.letter.clone();
        child.failure.failed_ms = T0 + 1_000_000;
        child.state = LetterState::Captured;
        let ended = [FinishedReplay { leased, outcome: ReplayOutcome::Dead(Box::new(child)) }];
        assert_eq!(store.finish(&handle, &ended, T0 + 2), Ok(vec![true]));
    }
    let rows = store.find(&LetterFilter::default(), ALL).unwrap();
    let line: Vec<_> =
        rows.iter().map(|r| (r.letter.lineage.generation, r.letter.state, r.letter.lineage.root)).collect();
    let root = ids[0];
    assert_eq!(
        line,
        [
            (0, LetterState::Dead, root),
            (1, LetterState::Dead, root),
            (2, LetterState::Dead, root),
            (3, LetterState::Captured, root)
        ]
    );
    assert_eq!(rows[3].letter.lineage.parent, Some(rows[2].letter.id));
    assert_eq!(rows[3].letter.lineage.first_failed_ms, T0, "never reset");
    assert_eq!(rows[3].letter.retain_until_ms, rows[0].letter.retain_until_ms);
    assert_eq!(store.children(root).unwrap(), [rows[1].letter.id]);
    assert_eq!(store.plan_dry(&LetterFilter::default(), 3, T0).unwrap(), [], "the cap stops the loop");
}

fn a_cancelled_plan_gives_back(bench: &Bench) {
    put(bench, 0..10);
    let (mut store, handle) = (bench.store(), bench.letters());
    let plan = store.plan("parcels", &LetterFilter::default(), 3, "{}", T0).unwrap();
    let leased = store.lease(plan.plan, 2, T0 + 1000, T0).unwrap();
    let resolved = |leased: &Leased| {
        let outcome = ReplayOutcome::Resolved { note: String::new() };
        [FinishedReplay { leased: leased.clone(), outcome }]
    };
    let ended = resolved(&leased[0]);
    store.finish(&handle, &ended, T0).unwrap();
    assert_eq!(store.plan_cancel(plan.plan, T0 + 5), Ok(4));
    assert_eq!(
        store.count(&LetterFilter { states: vec![LetterState::Captured], ..LetterFilter::default() }),
        Ok(9)
    );
    let late = resolved(&leased[1]);
    assert_eq!(store.finish(&handle, &late, T0), Ok(vec![false]), "a cancelled lease is stale");
    assert!(store.plan_cancel(plan.plan, T0).is_err());
    let plan = store.plan_get(plan.plan).unwrap().unwrap();
    assert_eq!(
        (plan.members, plan.resolved, plan.back, plan.left, plan.state.as_str()),
        (5, 1, 4, 0, "cancelled")
    );
}

fn a_plan_without_letters_is_done(bench: &Bench) {
    put(bench, 0..4);
    let mut store = bench.store();
    let all = LetterFilter::default();
    let first = store.plan("parcels", &all, 3, "{}", T0).unwrap();
    assert_eq!((first.members, first.state.as_str()), (2, "running"));
    // Another replay at the same time finds nothing left.
    let second = store.plan("parcels", &all, 3, "{}", T0).unwrap();
    assert_eq!((second.members, second.state.as_str()), (0, "done"));
    assert_eq!(store.plans_running().unwrap().len(), 1);
    // Nothing is taken from a plan whose letters are there.
    store.plans_settle(T0).unwrap();
    assert_eq!(store.plan_get(first.plan).unwrap().unwrap().left, 2);
}

fn a_repaired_record_is_known_by_its_content(bench: &Bench) {
    put(bench, 0..6);
    let mut store = bench.store();
    let parcels = LetterFilter { pipeline: Some("parcels".into()), ..LetterFilter::default() };
    let rows = store.find(&parcels, ALL).unwrap();
    // The first is repaired, the second is only replayed.
    let mut repaired = rows[0].letter.clone();
    (repaired.state, repaired.idempotency_key) = (LetterState::Validated, "another key".into());
    let amend = Amend {
        row: rows[0].clone(),
        letter: repaired,
        payload: None,
        act: "fix",
        detail: serde_json::Value::Null,
    };
    store.amend(&amend, T0).unwrap();
    let ids = LetterFilter::of_ids(rows.iter().take(2).map(|row| row.letter.id));
    let plan = store.plan(&rows[0].letter.pipeline, &ids, 3, "{}", T0).unwrap();
    let ended: Vec<FinishedReplay> = store
        .lease(plan.plan, 10, T0 + 1000, T0)
        .unwrap()
        .into_iter()
        .map(|leased| FinishedReplay { leased, outcome: ReplayOutcome::Resolved { note: String::new() } })
        .collect();
    let letters = bench.letters();
    store.finish(&letters, &ended, T0).unwrap();
    letters.close();
    let known = store.repaired(&rows[0].letter.pipeline).unwrap();
    let found: Vec<bool> = rows.iter().map(|row| store.is_repaired(&known, &row.letter).unwrap()).collect();
    assert_eq!(found, [true, false, false]);
    let mut other = rows[0].letter.clone();
    other.failure.code = tidegate_core::Code::TIMEOUT;
    assert_eq!(store.is_repaired(&known, &other), Ok(false), "it fails in another way");
}

fn workers_never_share_a_letter(bench: &Bench) {
    put(bench, 0..400);
    let plan = bench.store().plan("parcels", &LetterFilter::default(), 3, "{}", T0).unwrap().plan;
    let seen = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut store = bench.store();
                    let mut mine = Vec::new();
                    loop {
                        let leased = store.lease(plan, 7, T0 + 1_000_000, T0).unwrap();
                        if leased.is_empty() {
                            return mine;
                        }
                        mine.extend(leased.iter().map(|l| l.row.letter.id));
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|w| w.join().unwrap()).collect::<Vec<_>>()
    });
    let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), distinct.len()), (200, 200));
}

fn purge_leaves_tombstones_and_obeys_holds(bench: &Bench) {
    let ids = put(bench, 0..10);
    let mut store = bench.store();
    let row = store.get(ids[3]).unwrap().unwrap();
    let held = Letter { hold: Some("court".into()), ..row.letter.clone() };
    store
        .amend(&Amend { row, letter: held, payload: None, act: "hold", detail: "court".into() }, T0)
        .unwrap();
    let archived_only = store.purge(&LetterFilter::default(), "test", true, T0).unwrap();
    assert_eq!(archived_only.purged, 0, "nothing is in an archive");
    let purged = store.purge(&LetterFilter::default(), "test", false, T0 + 7).unwrap();
    assert_eq!((purged.purged, purged.held), (9, 1));
    assert_eq!(store.count(&LetterFilter::default()), Ok(1));
    assert_eq!(store.tombstone(ids[0]).unwrap(), Some((T0 + 7, "test".into())));
    assert_eq!(store.tombstone(ids[3]).unwrap(), None);
    assert_eq!(
        store.count(&LetterFilter { bbox: Some([-180.0, -90.0, 180.0, 90.0]), ..LetterFilter::default() }),
        Ok(1)
    );
    assert_eq!(store.audit(Some(ids[0]), 9).unwrap().iter().filter(|e| e.act == "purge").count(), 1);
    assert_eq!(store.audit_verify().unwrap().0, 1 + 1 + 9);
}

fn retention_counts_from_the_first_failure(bench: &Bench) {
    let letters: Vec<Letter> =
        (0..10).map(|n| Letter { state: LetterState::Dismissed, ..letter(n) }).collect();
    let handle = bench.letters();
    handle.put(&letters).wait().unwrap();
    handle.close();
    let mut store = bench.store();
    let end = T0 + 60 * DAY_MS;
    assert_eq!(store.retain(end, &[]).unwrap().purged, 0);
    assert_eq!(store.retain(end + 4_001, &[]).unwrap().purged, 5, "one a second");
    assert_eq!(store.count(&LetterFilter::default()), Ok(5));
}

fn the_audit_shows_changes(bench: &Bench) {
    put(bench, 0..3);
    let mut store = bench.store();
    for n in 0..5 {
        store.enter(AuditEvent::new(T0 + n, "reveal", "why".into())).unwrap();
    }
    let (n, hash) = store.audit_verify().unwrap();
    assert_eq!((n, hash.len()), (6, 64));
    let entries = store.audit(None, 2).unwrap();
    assert_eq!(entries.iter().map(|e| e.n).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(entries[1].hash, hash);
}

fn incidents_open_once_and_close(bench: &Bench) {
    let letters: Vec<Letter> = (0..60).map(|n| letter(n * 3)).collect();
    let threshold = tidegate_core::letter::incident::Threshold::default();
    assert!(tidegate_ledger::letter::flood(&letters, 200, &threshold).is_none());
    let incident: Incident = tidegate_ledger::letter::flood(&letters, 100, &threshold).unwrap();
    assert_eq!((incident.failed, incident.batch, incident.code.as_str()), (60, 100, "INVALID_GEOMETRY"));
    let mut store = bench.store();
    let number = store.incident_open(&incident).unwrap();
    assert_eq!(store.incident_open(&incident).unwrap(), number, "the same story is one incident");
    let open = store.incidents(Some("parcels")).unwrap();
    assert_eq!((open.len(), open[0].failed, open[0].batch), (1, 120, 200));
    assert!(store.incidents(Some("other")).unwrap().is_empty());
    store.incident_close(number, T0).unwrap();
    assert!(store.incidents(None).unwrap().is_empty() && store.incident_close(number, T0).is_err());
}

fn a_full_store_says_so(bench: &Bench) {
    bench.store().set("capacity", "10", T0).unwrap();
    let handle = bench.letters();
    let letters: Vec<Letter> = (0..8).map(letter).collect();
    assert_eq!(handle.put(&letters).wait().unwrap().len(), 8);
    let more: Vec<Letter> = (8..11).map(letter).collect();
    assert!(matches!(handle.put(&more).wait(), Err(LetterError::Full(_))));
    assert!(handle.put(&[letter(20)]).wait().is_err(), "nothing more is taken until a person acts");
    assert_eq!(bench.store().count(&LetterFilter::default()), Ok(8), "all of a batch or none");
    assert!(bench.letters().warning().is_some_and(|w| w.contains("8 of 10")));
}

fn archived_letters_say_where(bench: &Bench) {
    let ids = put(bench, 0..3);
    let mut store = bench.store();
    let row = store.get(ids[0]).unwrap().unwrap();
    let dismissed = Letter { state: LetterState::Dismissed, ..row.letter.clone() };
    store
        .amend(&Amend { row, letter: dismissed, payload: None, act: "dismiss", detail: "".into() }, T0)
        .unwrap();
    let seqs: Vec<i64> =
        store.find(&LetterFilter::default(), ALL).unwrap().iter().take(2).map(|r| r.seq).collect();
    store.archived(&seqs, "manifest-1", "x".into(), T0).unwrap();
    let rows = store.find(&LetterFilter::default(), ALL).unwrap();
    let told: Vec<_> = rows.iter().map(|r| (r.letter.state, r.letter.archive.as_deref())).collect();
    let (archived, open) = (LetterState::Archived, LetterState::Captured);
    assert_eq!(told, [(archived, Some("manifest-1")), (open, Some("manifest-1")), (open, None)]);
    assert_eq!(store.purge(&LetterFilter::default(), "test", true, T0).unwrap().purged, 2);
}

fn open_letters_are_archived_where_a_person_said(bench: &Bench) {
    put(bench, 0..2);
    let (mut store, dir) = (bench.store(), tempfile::tempdir().unwrap());
    let to = dir.path().join("cold").display().to_string();
    let of = |pipeline: &str| [ArchivePlace { pipeline: pipeline.into(), to: to.clone() }];
    let late = T0 + 1000 * DAY_MS;
    for archives in [&[][..], &of("another pipeline")] {
        let done = store.retain(late, archives).unwrap();
        assert_eq!((done.purged, done.unarchived, done.fault), (0, 2, None));
        assert!(!dir.path().join("cold").exists());
    }
    // One of them is of another pipeline.
    let done = store.retain(late, &of("parcels")).unwrap();
    assert_eq!((done.purged, done.unarchived, done.fault), (1, 1, None));
    assert!(std::fs::read_dir(dir.path().join("cold")).unwrap().count() >= 2, "letters and a manifest");
}

fn definitions_and_settings_are_vouched_for(bench: &Bench) {
    let mut store = bench.store();
    assert_eq!(store.check_signed(), Ok(Vec::new()));
    for definition in ["{}", "{\"kind\":\"manifest\"}"] {
        store.define("parcels", definition).unwrap();
        store.set("capacity", "10", T0).unwrap();
        assert_eq!(store.check_signed(), Ok(Vec::new()));
    }
    assert_eq!(store.pipelines(), Ok(vec!["parcels".to_owned()]));
    let acts: Vec<String> = store.audit(None, 10).unwrap().into_iter().map(|entry| entry.act).collect();
    assert_eq!(acts, ["define", "set", "define", "set"]);
    assert_eq!(store.audit_verify().unwrap().0, 4);
    bench.execute("UPDATE pipeline SET spec = 'x'; UPDATE meta SET value = '1' WHERE name = 'capacity'");
    bench.execute("INSERT INTO pipeline (pipeline, spec) VALUES ('roads', '{}')");
    let found = store.check_signed().unwrap();
    assert!(found[0].contains("parcels was changed after it was signed with entry 3"), "{found:?}");
    assert!(found[1].contains("roads was signed by nobody"), "{found:?}");
    assert!(found[2].contains("capacity was changed after it was signed with entry 4"), "{found:?}");
    bench.execute("DELETE FROM pipeline; DELETE FROM meta WHERE name = 'capacity'");
    let found = store.check_signed().unwrap();
    assert!(found.len() == 2 && found.iter().all(|what| what.ends_with("is missing")), "{found:?}");
}

fn sealed_letters_are_wrapped_anew(bench: &Bench) {
    let (old, new) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
    let mut store = bench.store();
    store.set("recipient", &old.recipient().to_text(), T0).unwrap();
    let ids = put(bench, 0..2);
    let sealed = |store: &mut LetterStore| store.get(ids[1]).unwrap().unwrap().sealed.unwrap();
    let (old_keys, new_keys) = (Keyring(vec![old.clone()]), Keyring(vec![new.clone()]));
    assert_eq!(old_keys.open(&sealed(&mut store)).unwrap().received, b"{\"n\":1}");
    let held = store.wrapped_to_others(&new.key_id, -1).unwrap();
    assert_eq!(held.len(), 2);
    let wrapped: Vec<_> = held.iter().map(|key| old_keys.rewrap(key, &new.recipient()).unwrap()).collect();
    assert_eq!(store.rewrap(&wrapped, "x".into(), T0), Ok(2));
    assert_eq!(
        store.rewrap(&wrapped, "x".into(), T0),
        Ok(0),
        "what was wrapped by somebody else meanwhile stays"
    );
    assert!(store.wrapped_to_others(&new.key_id, -1).unwrap().is_empty());
    assert_eq!(new_keys.open(&sealed(&mut store)).unwrap().received, b"{\"n\":1}");
    assert!(old_keys.open(&sealed(&mut store)).is_err());
}

fn sixty_four_producers_share_commits(bench: &Bench) {
    let handle = bench.letters();
    let barrier = std::sync::Barrier::new(64);
    std::thread::scope(|scope| {
        for producer in 0..64u64 {
            let (handle, barrier) = (&handle, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for n in 0..20 {
                    let put = handle.put(&[letter(producer * 20 + n)]).wait().unwrap();
                    assert!(matches!(put[..], [Put::New(_)]));
                }
            });
        }
    });
    handle.close();
    let mut store = bench.store();
    assert_eq!(store.count(&LetterFilter::default()), Ok(1280));
    let (commits, _) = store.audit_verify().unwrap();
    assert!(commits < 640, "1280 letters in {commits} commits");
}
