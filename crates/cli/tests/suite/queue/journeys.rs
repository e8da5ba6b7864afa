//! From `submit` to the sink and back: what was submitted is done once, whatever is repeated.

use serde_json::json;

use crate::common::canned::{self, Canned};
use crate::queue::bench::{Bench, feature};

#[test]
fn what_is_submitted_twice_is_queued_once_and_done_once() {
    let bench = Bench::new();
    let file = bench.features(1200);
    let first = bench.submitted(&[file, "--key", "id"], 0);
    assert_eq!((&first["submitted"], &first["lag"]), (&json!(1200), &json!(1200)));
    let second = bench.submitted(&[file, "--key", "id"], 0);
    assert_eq!((&second["submitted"], &second["known"]["queued"]), (&json!(0), &json!(1200)));
    assert_eq!((bench.lag(), bench.states()), (1200, [1200, 0, 0, 0, 0]));

    let worked = bench.work();
    assert_eq!(worked.code, 0, "{}", worked.stderr);
    assert_eq!((bench.lag(), bench.states()), (0, [0, 0, 1200, 0, 0]));
    let third = bench.submitted(&[file, "--key", "id"], 0);
    assert_eq!((&third["submitted"], &third["known"]["done"]), (&json!(0), &json!(1200)));
    assert_eq!(bench.lag(), 0);

    // Done once more only if asked for.
    let again = bench.submitted(&[file, "--key", "id", "--resubmit"], 0);
    assert_eq!((&again["resubmitted"], &again["submitted"]), (&json!(1200), &json!(0)));
    assert_eq!((bench.lag(), bench.states()), (1200, [1200, 0, 0, 0, 0]));
    assert_eq!(bench.work().code, 0);
    assert_eq!(bench.states(), [0, 0, 1200, 0, 0]);
    let rows = bench.0.command(&["inspect", "out.gpkg", "--format", "json"]).output().unwrap();
    assert!(String::from_utf8_lossy(&rows.stdout).contains("1200"), "{rows:?}");
}

#[test]
fn waiting_ends_when_the_sink_has_the_ends() {
    let bench = Bench::new();
    let worker = bench.worker();
    let file = bench.features(700);
    let waited = bench.submit(&[file, "--key", "id", "--wait", "--timeout", "5m", "--format", "json"]);
    // A task whose record has another field is dead, and says why.
    let bad = json!({ "type": "Feature", "properties": { "id": 1, "colour": "red" }, "geometry": null });
    let dead = bench.pipe(
        &["--wait", "--timeout", "5m", "--format", "json"],
        &format!("{bad}\n{}\n", feature(9000, "b")),
    );
    let again = bench.submit(&[file, "--key", "id", "--wait", "--timeout", "5m"]);
    drop(worker);
    assert_eq!(waited.code, 0, "{}{}", waited.stdout, waited.stderr);
    assert_eq!(
        (&waited.json()["ends"]["done"], &waited.json()["ends"]["unfinished"]),
        (&json!(700), &json!(0))
    );
    assert_eq!(dead.code, 4, "{}{}", dead.stdout, dead.stderr);
    let ends = &dead.json()["ends"];
    assert_eq!((&ends["done"], &ends["dead"]), (&json!(1), &json!(1)));
    assert!(ends["reasons"][0]["reason"].as_str().unwrap().starts_with("SCHEMA_MISMATCH"), "{ends}");
    assert_eq!(again.code, 0);
    assert!(again.stderr.contains("700 done, 0 dead, 0 cancelled, of 700"), "{}", again.stderr);
}

#[test]
fn waiting_without_a_worker_ends_with_75() {
    let bench = Bench::new();
    let file = bench.features(3);
    let ran = bench.submit(&[file, "--wait", "--timeout", "300ms", "--format", "json"]);
    assert_eq!(ran.code, 75, "{}{}", ran.stdout, ran.stderr);
    let ends = &ran.json()["ends"];
    assert_eq!((&ends["tasks"], &ends["unfinished"], &ends["timeout"]), (&json!(3), &json!(3), &json!(true)));
}

#[test]
fn a_cancelled_task_is_not_done() {
    let bench = Bench::new();
    let file = bench.features(3);
    bench.submitted(&[file, "--key", "id"], 0);
    let cancelled = bench.queue("cancel", &["2", "77"]);
    assert_eq!((&cancelled["cancelled"], &cancelled["were"]["unseen"]), (&json!(2), &json!(1)));
    assert_eq!(bench.work().code, 0);
    assert_eq!((bench.lag(), bench.states()), (0, [0, 0, 2, 0, 2]));
    // A task that has ended stays as it is.
    let late = bench.queue("cancel", &["1"]);
    assert_eq!((&late["cancelled"], &late["were"]["done"]), (&json!(0), &json!(1)));
    // Whoever waits for it is told.
    let waited = bench.submit(&[file, "--key", "id", "--wait"]);
    assert_eq!(waited.code, 4, "{}", waited.stderr);
    assert!(waited.stderr.contains("2 done, 0 dead, 1 cancelled, of 3"), "{}", waited.stderr);
}

#[test]
fn a_purged_queue_is_filled_again() {
    let bench = Bench::new();
    let file = bench.features(5);
    bench.submitted(&[file, "--key", "id"], 0);
    let refused = bench.run(&["queue", "purge", "parcels.yaml"]);
    assert_eq!((refused.code, bench.lag()), (2, 5), "{}", refused.stderr);
    assert!(refused.stderr.contains("pass --yes"), "{}", refused.stderr);
    let purged = bench.queue("purge", &["--yes"]);
    assert_eq!((&purged["deleted"], &purged["queued_in_sink"]), (&json!(5), &json!(5)));
    assert_eq!(bench.submitted(&[file, "--key", "id"], 0)["known"]["queued"], 5);
    assert_eq!(bench.lag(), 0);
    assert_eq!(bench.submitted(&[file, "--key", "id", "--republish"], 0)["republished"], 5);
    assert_eq!(bench.work().code, 0);
    assert_eq!(bench.states(), [0, 0, 5, 0, 0]);
}

#[test]
fn a_dry_run_creates_nothing() {
    let bench = Bench::new();
    let file = bench.features(3);
    let mut files = bench.0.files();
    let said = bench.submit(&[file, "--dry-run"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stderr.contains("would submit 3 tasks to"), "{}", said.stderr);
    let mut after = bench.0.files();
    files.sort();
    after.sort();
    assert_eq!(files, after);
    bench.submitted(&[file], 0);
    let known = bench.submitted(&[file, "--dry-run"], 0);
    assert_eq!((&known["submitted"], &known["known"]["queued"]), (&json!(0), &json!(3)));
    assert_eq!(bench.lag(), 3);
}

/// Pub/Sub does not tell how many messages it holds. What was submitted is reported all the same.
#[test]
fn a_queue_that_cannot_count_is_submitted_to() {
    let server = Canned::start(|head| {
        let is_publish = head.contains(":publish ");
        let subscription = r#"{"topic":"projects/tests/topics/tasks","ackDeadlineSeconds":10}"#;
        canned::json("200 OK", if is_publish { r#"{"messageIds":["1","2","3"]}"# } else { subscription })
    });
    let bench = Bench::new();
    let queue = format!("queue: \"pubsub://tests/tasks?endpoint={}\"", server.url());
    bench.0.write("parcels.yaml", &bench.0.read("parcels.yaml").replace("queue: tasks.db", &queue));
    let told = bench.submitted(&[bench.features(3), "--key", "id"], 0);
    assert_eq!((&told["submitted"], &told["lag"]), (&json!(3), &json!(null)));
    assert_eq!(told["tasks_by_state"]["queued"], 3);
    assert_eq!(server.seen().iter().filter(|head| head.contains(":publish ")).count(), 1);
}
