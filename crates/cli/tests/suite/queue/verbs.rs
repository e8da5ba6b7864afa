//! `queue ls`, `lag`, `peek` and `drain`.

use serde_json::{Value, json};

use crate::queue::bench::Bench;

#[test]
fn a_queue_that_nobody_used_is_empty() {
    let bench = Bench::new();
    let list = bench.queue("ls", &[]);
    assert_eq!((&list["tasks"], &list["next"]), (&json!([]), &Value::Null));
    assert_eq!(bench.states(), [0; 5]);
    assert_eq!(bench.queue("peek", &[]), json!([]));
    assert_eq!(bench.queue("drain", &[])["empty"], true);
    // Looking at it has not made a sink.
    assert!(!bench.0.path("out.gpkg").exists());
}

#[test]
fn the_list_goes_on_page_by_page() {
    let bench = Bench::new();
    bench.submitted(&[bench.features(25), "--key", "id"], 0);
    bench.queue("cancel", &["3", "7"]);
    let (mut seen, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let mut args = vec!["-n", "10"];
        if let Some(key) = &after {
            args.extend(["--after", key]);
        }
        let page = bench.queue("ls", &args);
        assert_eq!(
            (&page["tasks_by_state"]["queued"], &page["tasks_by_state"]["cancelled"]),
            (&json!(23), &json!(2))
        );
        let tasks = page["tasks"].as_array().unwrap();
        assert!(tasks.len() <= 10);
        seen.extend(tasks.iter().map(|task| task["key"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(key) => after = Some(key.to_owned()),
            None => break,
        }
    }
    let mut all: Vec<String> = (1..=25).map(|id| id.to_string()).collect();
    all.sort();
    assert_eq!(seen, all);
    let cancelled = bench.queue("ls", &["--state", "cancelled"]);
    assert_eq!(cancelled["tasks"].as_array().unwrap().len(), 2);
    let lines = bench.run(&["queue", "ls", "parcels.yaml", "-n", "0", "--format", "ndjson"]);
    assert_eq!(lines.stdout.lines().count(), 25);
    let table = bench.run(&["queue", "ls", "parcels.yaml", "-n", "2"]);
    assert!(table.stdout.starts_with("key  state   attempts"), "{}", table.stdout);
    assert!(table.stderr.contains("23 queued, 0 running, 0 done, 0 dead, 2 cancelled"), "{}", table.stderr);
    assert!(table.stderr.contains("go on with --after 10"), "{}", table.stderr);
    let wrong = bench.run(&["queue", "ls", "parcels.yaml", "--state", "lost"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("expected one of queued, running"), "{}", wrong.stderr);
}

#[test]
fn all_queued_tasks_are_cancelled_at_once() {
    let bench = Bench::new();
    bench.submitted(&[bench.features(1500), "--key", "id"], 0);
    assert_eq!(bench.queue("cancel", &["--all"])["cancelled"], 1500);
    assert_eq!(bench.states(), [0, 0, 0, 0, 1500]);
}

#[test]
fn lag_tells_what_waits_and_peek_shows_it() {
    let bench = Bench::new();
    bench.submitted(&[bench.features(2), "--key", "id"], 0);
    let later = bench.pipe(&["--not-before", "1h"], "{\"key\":\"later\",\"payload\":{}}\n");
    assert_eq!(later.code, 0, "{}", later.stderr);
    let lag = bench.queue("lag", &[]);
    assert_eq!((&lag["ready"], &lag["waiting"], &lag["leased"]), (&json!(2), &json!(1), &json!(0)));
    assert!(lag["oldest_seconds"].as_f64().is_some(), "{lag}");
    let text = bench.run(&["queue", "lag", "parcels.yaml"]);
    assert!(
        text.stdout.contains("ready     2\n") && text.stdout.contains("queued    3\n"),
        "{}",
        text.stdout
    );
    let shown = bench.run(&["queue", "peek", "parcels.yaml", "-n", "1"]);
    assert!(shown.stdout.contains("parcels") && shown.stdout.lines().count() == 2, "{}", shown.stdout);
    // What waits for its time keeps the queue from being empty.
    let drain = bench.run(&["queue", "drain", "parcels.yaml", "--timeout", "200ms", "--format", "json"]);
    assert_eq!((drain.code, &drain.json()["empty"]), (75, &json!(false)), "{}", drain.stderr);
}

#[test]
fn drain_ends_when_the_worker_is_done() {
    let bench = Bench::new();
    bench.submitted(&[bench.features(300), "--key", "id"], 0);
    let worker = bench.worker();
    let drained = bench.run(&["queue", "drain", "parcels.yaml", "--timeout", "5m", "--format", "json"]);
    drop(worker);
    assert_eq!(
        (drained.code, &drained.json()["tasks_by_state"]["done"]),
        (0, &json!(300)),
        "{}",
        drained.stderr
    );
}
