//! Several pipelines in one worker, and manifests that do not fit.

use super::{Message, POLICY, depth, each_once, letters, manifest, parcels, publish, rows, task};
use crate::common::running::Ran;

#[test]
fn a_worker_serves_several_manifests_from_one_queue() {
    let dir = parcels();
    dir.write("roads.yaml", &manifest("roads", "kinds: [roads, paths]"));
    let mut messages: Vec<Message> = (0..50).map(|n| task("parcels", n)).collect();
    messages.extend((50..80).map(|n| task("roads", n)));
    messages.extend((80..100).map(|n| task("paths", n)));
    messages.push(Message::new("odd", r#"{"kind":"rivers","key":"odd","payload":{"id":1}}"#));
    publish(&dir, &messages);
    let args = ["worker", "parcels.yaml", "roads.yaml", "--once", "--format", "json"];
    let ran: Ran = dir.command(&args).output().unwrap().into();
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(rows(&dir, "parcels"), each_once(0..50));
    assert_eq!(rows(&dir, "roads"), each_once(50..100));
    assert_eq!(letters(&dir), [("TASK_KIND_UNKNOWN".to_owned(), 1)].into());
}

#[test]
fn a_run_of_a_queue_ends_when_it_is_empty() {
    let dir = parcels();
    publish(&dir, &(0..100).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let ran: Ran = dir.command(&["run", "parcels.yaml", "--format", "json"]).output().unwrap().into();
    assert_eq!((ran.code, ran.count("read")), (0, 100), "{}", ran.stderr);
    assert_eq!(rows(&dir, "parcels"), each_once(0..100));
    assert_eq!(depth(&dir).lag(), 0);
}

#[test]
fn manifests_that_do_not_fit_are_refused_before_anything_is_received() {
    let dir = parcels();
    publish(&dir, &[task("parcels", 1)]);
    let sink = |sink: &str| {
        format!(
            "pipeline:\n  id: x\n{POLICY}  source: {{ queue: tasks.db, tasks: {{ fields: {{ id: int }} }} }}\n  sink: {sink}\n"
        )
    };
    for (text, says) in [
        (sink("{ file: out.gpkg, mode: replace }"), "sink.mode: append"),
        (sink("{ file: out.geojson, mode: append }"), "written as a whole"),
        (
            sink("{ file: out.gpkg, mode: append }").replace(", tasks: { fields: { id: int } }", ""),
            "requires `tasks`",
        ),
        (
            sink("{ file: out.gpkg, mode: append }").replace("queue: tasks.db", "file: a.geojson"),
            "require a `queue`",
        ),
        (
            sink("{ file: out.gpkg, mode: append }").replace("tasks.db", "gopher://x/y"),
            "unknown kind of queue",
        ),
    ] {
        dir.write("bad.yaml", &text);
        let ran: Ran = dir.command(&["worker", "bad.yaml", "--once"]).output().unwrap().into();
        assert_eq!(ran.code, 2, "{text}{}", ran.stderr);
        assert!(ran.stderr.contains(says), "{says:?} in {}", ran.stderr);
        assert_eq!(depth(&dir).lag(), 1);
    }
}
