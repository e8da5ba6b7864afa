//! One suite for every sink that has a table of tasks: a GeoPackage in a temporary directory, and a
//! schema of a real PostgreSQL (`TIDEGATE_TEST_DATABASE`, or the server on the standard port).

mod place;

use self::place::{Place, geopackage, spec};
#[cfg(feature = "postgres")]
use self::place::{execute, table};
use super::{Claim, TaskEnd, TaskState, TaskTable};
use crate::manifest::WriteMode;
use crate::sink::{SinkError, SinkTarget, Spec};

fn keys<const N: usize>(keys: [&str; N]) -> Vec<String> {
    keys.map(str::to_owned).to_vec()
}

fn token(claim: Claim) -> i64 {
    match claim {
        Claim::Granted { token, .. } => token,
        other => panic!("expected a grant, found {other:?}"),
    }
}

fn attempts(claim: Claim) -> u32 {
    match claim {
        Claim::Granted { attempts, .. } => attempts,
        other => panic!("expected a grant, found {other:?}"),
    }
}

fn done(key: &str, token: i64) -> TaskEnd {
    TaskEnd { key: key.into(), token, state: TaskState::Done, reason: None, dead_records: 0 }
}

fn states(tasks: &mut dyn TaskTable, names: &[String]) -> Vec<Option<TaskState>> {
    tasks.rows(names).unwrap().into_iter().map(|row| row.map(|row| row.state)).collect()
}

/// Submit, claim, finish: the usual way. Submitting again changes nothing.
fn goes_the_usual_way(place: &Place) {
    let mut tasks = place.tasks();
    let all = keys(["a", "b", "a"]);
    assert_eq!(tasks.submit(&all).unwrap(), [None, None, None]);
    let row = tasks.rows(&all[..1]).unwrap().remove(0).unwrap();
    assert_eq!((row.state, row.token, row.attempts), (TaskState::Queued, 0, 0));
    let claims = tasks.claim(&all[..2], "w1").unwrap();
    assert_eq!((attempts(claims[0]), attempts(claims[1])), (1, 1));
    assert_eq!(tasks.submit(&all[..1]).unwrap(), [Some(TaskState::Running)]);
    let dead =
        TaskEnd { state: TaskState::Dead, reason: Some("X: no\0tes".into()), ..done("b", token(claims[1])) };
    assert_eq!(tasks.finish(&[done("a", token(claims[0])), dead]).unwrap(), Vec::<String>::new());
    let rows: Vec<_> = tasks.rows(&all).unwrap().into_iter().map(Option::unwrap).collect();
    assert_eq!(
        (rows[0].state, rows[0].worker.as_str(), rows[0].reason.as_deref()),
        (TaskState::Done, "w1", None)
    );
    assert!(rows[1].state == TaskState::Dead && rows[1].reason.as_ref().unwrap().starts_with("X: no"));
    assert_eq!(rows[0], rows[2]);
    let again = tasks.claim(&all[..2], "w2").unwrap();
    assert_eq!(again, [Claim::Ended(TaskState::Done), Claim::Ended(TaskState::Dead)]);
    // What was never submitted can be claimed.
    assert_eq!(attempts(tasks.claim(&keys(["new"]), "w2").unwrap()[0]), 1);
    assert_eq!(tasks.rows(&keys(["none"])).unwrap(), [None]);
    assert_eq!(tasks.submit(&[]).unwrap(), []);
    assert_eq!(tasks.claim(&[], "w").unwrap(), []);
    assert_eq!(tasks.finish(&[]).unwrap(), Vec::<String>::new());
}

/// Two messages of one task in one batch: it is worked on once.
fn grants_a_key_once_in_a_call(place: &Place) {
    let mut tasks = place.tasks();
    let claims = tasks.claim(&keys(["b", "a", "b", "b"]), "w").unwrap();
    assert_eq!((attempts(claims[0]), attempts(claims[1])), (1, 1));
    assert_eq!(claims[2..], [Claim::Repeated, Claim::Repeated]);
    let ends = [done("b", token(claims[0])), done("b", token(claims[0]))];
    assert_eq!(tasks.finish(&ends).unwrap(), Vec::<String>::new());
    let again = tasks.claim(&keys(["b", "b"]), "w").unwrap();
    assert_eq!(again, [Claim::Ended(TaskState::Done), Claim::Ended(TaskState::Done)]);
}

/// A worker that was stopped and wakes cannot finish what another has claimed since, nor release it.
fn fences_a_stale_token(place: &Place) {
    let (mut first, mut second) = (place.tasks(), place.tasks());
    let key = keys(["a"]);
    let stale = token(first.claim(&key, "w1").unwrap()[0]);
    let claim = second.claim(&key, "w2").unwrap()[0];
    assert!(token(claim) > stale);
    assert_eq!(attempts(claim), 2);
    assert_eq!(first.finish(&[done("a", stale)]).unwrap(), ["a"]);
    first.release(&[("a".into(), stale)]).unwrap();
    let row = first.rows(&key).unwrap().remove(0).unwrap();
    // Its worker lives, so its attempt was no crash.
    assert_eq!((row.state, row.worker.as_str(), row.attempts), (TaskState::Running, "w2", 1));
    let mut sink = place.sink("w1");
    sink.put(&place.batch(&["a"])).unwrap();
    assert_eq!(sink.finish_tasks(&[done("a", stale), done("none", 1)]).unwrap(), ["a", "none"]);
    sink.rollback();
    assert_eq!(second.finish(&[done("a", token(claim))]).unwrap(), Vec::<String>::new());
    // Once is enough.
    assert_eq!(second.finish(&[done("a", token(claim))]).unwrap(), ["a"]);
}

/// What is released is queued, and the attempt does not count; what is reopened begins again.
fn releases_and_reopens(place: &Place) {
    let mut tasks = place.tasks();
    let key = keys(["a"]);
    let first = token(tasks.claim(&key, "w").unwrap()[0]);
    tasks.release(&[("a".into(), first)]).unwrap();
    assert_eq!(states(tasks.as_mut(), &key), [Some(TaskState::Queued)]);
    assert_eq!(tasks.finish(&[done("a", first)]).unwrap(), ["a"]);
    let second = tasks.claim(&key, "w").unwrap()[0];
    assert!(token(second) > first);
    assert_eq!(attempts(second), 1);
    assert_eq!(tasks.reopen(&key).unwrap(), 0);
    tasks.finish(&[done("a", token(second))]).unwrap();
    assert_eq!(tasks.reopen(&keys(["a", "a", "none"])).unwrap(), 1);
    let third = tasks.claim(&key, "w").unwrap()[0];
    assert!(token(third) > token(second));
    assert_eq!(attempts(third), 1);
}

/// A cancelled task cannot be finished or claimed, also one that was never seen.
fn cancels(place: &Place) {
    let mut tasks = place.tasks();
    tasks.submit(&keys(["queued"])).unwrap();
    let claims = tasks.claim(&keys(["running", "done"]), "w").unwrap();
    tasks.finish(&[done("done", token(claims[1]))]).unwrap();
    let all = keys(["queued", "running", "done", "unseen", "queued"]);
    let before = tasks.cancel(&all).unwrap();
    let (queued, running) = (Some(TaskState::Queued), Some(TaskState::Running));
    assert_eq!(before, [queued, running, Some(TaskState::Done), None, queued]);
    let cancelled = Some(TaskState::Cancelled);
    assert_eq!(
        states(tasks.as_mut(), &all),
        [cancelled, cancelled, Some(TaskState::Done), cancelled, cancelled]
    );
    let mut sink = place.sink("w1");
    sink.put(&place.batch(&["running"])).unwrap();
    assert_eq!(sink.finish_tasks(&[done("running", token(claims[0]))]).unwrap(), ["running"]);
    sink.rollback();
    let claims = tasks.claim(&keys(["unseen", "queued"]), "w").unwrap();
    assert_eq!(claims, [Claim::Ended(TaskState::Cancelled), Claim::Ended(TaskState::Cancelled)]);
}

/// Rows and ends are one transaction: both or neither.
fn commits_rows_and_ends_together(place: &Place) {
    let mut tasks = place.tasks();
    let all = keys(["a", "b"]);
    let claims = tasks.claim(&all, "w").unwrap();
    let ends = [done("a", token(claims[0])), done("b", token(claims[1]))];
    let mut sink = place.sink("w1");
    sink.put(&place.batch(&["a", "b"])).unwrap();
    assert_eq!(sink.finish_tasks(&ends).unwrap(), Vec::<String>::new());
    sink.rollback();
    assert_eq!(sink.standing().unwrap().rows, Some(0));
    assert_eq!(states(tasks.as_mut(), &all), [Some(TaskState::Running); 2]);
    let put = sink.put(&place.batch(&["a", "b"])).unwrap();
    assert_eq!((put.inserted, sink.finish_tasks(&ends).unwrap()), (2, Vec::new()));
    sink.commit("{}", &[]).unwrap();
    assert_eq!(sink.standing().unwrap().rows, Some(2));
    assert_eq!(states(tasks.as_mut(), &all), [Some(TaskState::Done); 2]);
    assert_eq!(sink.saved().unwrap().unwrap().checkpoint, "{}");
    // A worker that ends leaves no checkpoint; others find the rows and the tasks.
    sink.finish().unwrap();
    drop(sink);
    assert_eq!(place.tasks().counts().unwrap(), [0, 0, 2, 0, 0]);
    let mut sink = place.sink("w1");
    assert_eq!((sink.saved().unwrap(), sink.standing().unwrap().rows), (None, Some(2)));
}

/// A task is done when all its dead records were replayed, in the transaction of their rows.
fn is_done_when_its_dead_records_were_replayed(place: &Place) {
    use TaskState::{Dead, Done};
    let mut tasks = place.tasks();
    let all = keys(["one", "two", "done"]);
    let claims = tasks.claim(&all, "w").unwrap();
    let dead = |key: &str, at: usize, dead_records: u32| TaskEnd {
        state: Dead,
        reason: Some("X: no".into()),
        dead_records,
        ..done(key, token(claims[at]))
    };
    tasks.finish(&[dead("one", 0, 1), dead("two", 1, 2), done("done", token(claims[2]))]).unwrap();
    let mut sink = place.sink("replay");
    let mut replay = |keys: &[String], is_committed: bool| {
        sink.put(&place.batch(&["a"])).unwrap();
        sink.resolve_tasks(keys).unwrap();
        if is_committed {
            sink.commit("{}", &[]).unwrap();
        } else {
            sink.rollback();
        }
        tasks.rows(&all).unwrap().into_iter().map(|row| row.unwrap().state).collect::<Vec<_>>()
    };
    let first = keys(["one", "two", "done", "none"]);
    assert_eq!(replay(&first, false), [Dead, Dead, Done]);
    assert_eq!(replay(&first, true), [Done, Dead, Done]);
    assert_eq!(replay(&keys(["two"]), true), [Done, Done, Done]);
    assert_eq!(tasks.rows(&all).unwrap().remove(1).unwrap().reason, None);
}

/// A worker that was killed leaves a checkpoint, which another removes; those of a replay stay.
fn forgets_the_checkpoints_of_killed_workers(place: &Place) {
    for name in ["killed", "replay"] {
        let mut sink = place.sink(name);
        sink.put(&place.batch(&[name])).unwrap();
        sink.commit("{}", &[]).unwrap();
    }
    #[cfg(feature = "postgres")]
    if let Some(schema) = &place.schema {
        execute(&format!("UPDATE {schema}.tidegate_checkpoint SET changed = now() - interval '2 days'"));
    }
    drop(place.sink("next"));
    assert_eq!(place.sink("killed").saved().unwrap(), None);
    assert!(place.sink("replay").saved().unwrap().is_some());
}

/// Two workers write to one sink in turn, each its own tasks.
fn two_workers_share_a_sink(place: &Place) {
    let mut tasks = place.tasks();
    let (mut first, mut second) = (place.sink("w1"), place.sink("w2"));
    let claims = tasks.claim(&keys(["a", "b"]), "w").unwrap();
    for (sink, key, claim) in [(&mut first, "a", claims[0]), (&mut second, "b", claims[1])] {
        sink.put(&place.batch(&[key])).unwrap();
        assert_eq!(sink.finish_tasks(&[done(key, token(claim))]).unwrap(), Vec::<String>::new());
        sink.commit("{}", &[]).unwrap();
    }
    assert_eq!(second.standing().unwrap().rows, Some(2));
}

/// A claim whose answer was lost is repeated by the same worker: that is no crash.
fn charges_a_living_worker_once(place: &Place) {
    let (mut tasks, key) = (place.tasks(), keys(["a"]));
    let first = tasks.claim(&key, "w").unwrap()[0];
    let second = tasks.claim(&key, "w").unwrap()[0];
    assert!(token(second) > token(first));
    assert_eq!((attempts(second), attempts(tasks.claim(&key, "other").unwrap()[0])), (1, 2));
}

/// Workers on several connections claim the same keys at once, in different orders: every task has one
/// current token, which is the highest, and only that one finishes it.
fn serialises_claims_of_the_same_keys(place: &Place) {
    let all: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (mut tasks, mut mine) = (place.tasks(), all.clone());
            if worker % 2 == 1 {
                mine.reverse();
            }
            std::thread::spawn(move || {
                let mut ends = Vec::new();
                for round in 0..5 {
                    let claims = tasks.claim(&mine, &format!("w{worker}-{round}")).unwrap();
                    ends.extend(mine.iter().zip(claims).map(|(key, claim)| done(key, token(claim))));
                }
                ends
            })
        })
        .collect();
    let ends: Vec<TaskEnd> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    let mut tasks = place.tasks();
    let rows: Vec<_> = tasks.rows(&all).unwrap().into_iter().map(Option::unwrap).collect();
    for row in &rows {
        let mut tokens: Vec<i64> =
            ends.iter().filter(|end| end.key == row.key).map(|end| end.token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!((tokens.len(), tokens.last(), row.attempts), (20, Some(&row.token), 20));
    }
    assert_eq!(tasks.finish(&ends).unwrap().len(), 50 * 19);
    assert_eq!(tasks.counts().unwrap(), [0, 0, 50, 0, 0]);
}

/// Counts, lists in pages, and forgets what has ended.
fn counts_lists_and_forgets(place: &Place) {
    let mut tasks = place.tasks();
    let all: Vec<String> = (0..7).map(|n| format!("k{n}")).collect();
    tasks.submit(&all).unwrap();
    let claims = tasks.claim(&all[..4], "w").unwrap();
    tasks.finish(&[done("k0", token(claims[0])), done("k2", token(claims[2]))]).unwrap();
    tasks.cancel(&all[6..]).unwrap();
    assert_eq!(tasks.counts().unwrap(), [2, 2, 2, 0, 1]);
    let names = |rows: Vec<super::TaskRow>| rows.into_iter().map(|row| row.key).collect::<Vec<_>>();
    assert_eq!(names(tasks.list(None, None, 3).unwrap()), ["k0", "k1", "k2"]);
    assert_eq!(names(tasks.list(None, Some("k2"), 3).unwrap()), ["k3", "k4", "k5"]);
    assert_eq!(names(tasks.list(Some(TaskState::Running), Some("k1"), 3).unwrap()), ["k3"]);
    assert_eq!(names(tasks.list(Some(TaskState::Dead), None, 3).unwrap()), Vec::<String>::new());
    // Another pipeline of the same sink has tasks of its own.
    let mut other = Spec { pipeline: "roads".into(), ..place.spec.clone() }.open_tasks().unwrap();
    assert_eq!(other.counts().unwrap(), [0; 5]);
    assert_eq!(other.submit(&all[..1]).unwrap(), [None]);
    assert_eq!(tasks.forget(0).unwrap(), 0);
    assert_eq!(tasks.forget(i64::MAX).unwrap(), 3);
    assert_eq!(tasks.counts().unwrap(), [2, 2, 0, 0, 0]);
    assert_eq!(other.counts().unwrap(), [1, 0, 0, 0, 0]);
    // A token of a task that was forgotten does not fit a new claim of its key.
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(token(tasks.claim(&all[..1], "w").unwrap()[0]) > token(claims[0]));
}

/// Thousands of keys in one call.
fn takes_large_batches(place: &Place) {
    let mut tasks = place.tasks();
    let all: Vec<String> = (0..5000).map(|n| format!("tile/{n}")).collect();
    let ends: Vec<TaskEnd> = tasks
        .claim(&all, "w")
        .unwrap()
        .into_iter()
        .zip(&all)
        .map(|(claim, key)| done(key, token(claim)))
        .collect();
    assert_eq!(tasks.finish(&ends).unwrap(), Vec::<String>::new());
    assert_eq!(tasks.counts().unwrap(), [0, 0, 5000, 0, 0]);
}

/// A key comes from outside: whatever it is, it is a task, and never the end of a worker.
fn holds_any_key(place: &Place) {
    let mut tasks = place.tasks();
    let all = vec![String::new(), "a\0b".into(), "ä'\"\\%".into(), "x".repeat(1024), "y".repeat(100_000)];
    let claims = tasks.claim(&all, "w").unwrap();
    let stale = claims.iter().zip(&all).map(|(claim, key)| done(key, token(*claim) - 1)).collect::<Vec<_>>();
    let mut lost = tasks.finish(&stale).unwrap();
    lost.sort_by_key(|key| all.iter().position(|one| one == key));
    assert_eq!(lost, all);
    let ends = claims.iter().zip(&all).map(|(claim, key)| done(key, token(*claim))).collect::<Vec<_>>();
    assert_eq!(tasks.finish(&ends[..4]).unwrap(), Vec::<String>::new());
    tasks.release(&[(all[4].clone(), ends[4].token)]).unwrap();
    let rows: Vec<_> = tasks.rows(&all).unwrap().into_iter().map(Option::unwrap).collect();
    assert_eq!(rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), all);
    assert_eq!(tasks.counts().unwrap(), [1, 0, 4, 0, 0]);
    assert_eq!(tasks.list(None, None, 9).unwrap().len(), 5);
    assert_eq!(tasks.reopen(&all[..2]).unwrap(), 2);
}

macro_rules! suite {
    ($($case:ident),* $(,)?) => {
        mod in_a_geopackage {
            $(#[test] fn $case() { super::$case(&super::geopackage()); })*
        }
        #[cfg(feature = "postgres")]
        mod in_postgresql {
            $(#[test] fn $case() { super::$case(&super::table()); })*
        }
    };
}

suite!(
    goes_the_usual_way,
    grants_a_key_once_in_a_call,
    fences_a_stale_token,
    charges_a_living_worker_once,
    releases_and_reopens,
    cancels,
    commits_rows_and_ends_together,
    is_done_when_its_dead_records_were_replayed,
    forgets_the_checkpoints_of_killed_workers,
    two_workers_share_a_sink,
    serialises_claims_of_the_same_keys,
    counts_lists_and_forgets,
    takes_large_batches,
    holds_any_key,
);

/// Ends the connection of the sink, which holds a transaction on this schema; the sink notices.
#[cfg(feature = "postgres")]
fn cut(place: &Place, sink: &mut dyn crate::sink::Sink) {
    let schema = place.schema.clone().unwrap();
    let ended = execute(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity a WHERE state = 'idle in transaction'
         AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                     WHERE l.pid = a.pid AND c.relnamespace = '{schema}'::regnamespace)"
    ));
    assert_eq!(ended, 1);
    assert!(sink.standing().is_err());
}

/// A connection that is lost during the transaction: nothing is committed without the rows.
#[cfg(feature = "postgres")]
#[test]
fn a_lost_connection_commits_nothing() {
    let place = table();
    let mut tasks = place.tasks();
    let claim = tasks.claim(&keys(["a"]), "w").unwrap()[0];
    let ends = [done("a", token(claim))];
    let mut sink = place.sink("w1");
    sink.put(&place.batch(&["a"])).unwrap();
    cut(&place, sink.as_mut());
    assert!(matches!(sink.finish_tasks(&ends), Err(SinkError::Transient { .. })));
    sink.rollback();
    sink.put(&place.batch(&["a"])).unwrap();
    assert_eq!(sink.finish_tasks(&ends).unwrap(), Vec::<String>::new());
    cut(&place, sink.as_mut());
    assert!(matches!(sink.commit("{}", &[]), Err(SinkError::Transient { .. })));
    sink.rollback();
    assert_eq!((sink.saved().unwrap(), sink.standing().unwrap().rows), (None, Some(0)));
    assert_eq!(states(tasks.as_mut(), &keys(["a"])), [Some(TaskState::Running)]);
    sink.put(&place.batch(&["a"])).unwrap();
    assert_eq!(sink.finish_tasks(&ends).unwrap(), Vec::<String>::new());
    sink.commit("{}", &[]).unwrap();
    assert_eq!(sink.standing().unwrap().rows, Some(1));
}

#[test]
fn sinks_without_transactions_are_refused() {
    let file = spec(SinkTarget::File("out.geojson".into(), tidegate_geo::format::Format::GeoJson));
    let why = file.open_tasks().err().unwrap().to_string();
    assert!(why.contains("out.geojson cannot be used with a queue"), "{why}");
    let place = geopackage();
    let replaced = Spec { mode: WriteMode::Replace, ..place.spec.clone() };
    let why = replaced.open_tasks().err().unwrap().to_string();
    assert!(why.contains("use `mode: upsert`"), "{why}");
}
