//! Each source of tasks: what becomes a task, what is refused, and what is then published.

use std::fs;

use serde_json::{Value, json};

use crate::queue::bench::{Bench, feature};

fn keys(tasks: &[Value]) -> Vec<&str> {
    tasks.iter().map(|task| task["key"].as_str().unwrap()).collect()
}

#[test]
fn a_feature_is_a_task() {
    let bench = Bench::new();
    bench.submitted(&[bench.features(2), "--key", "name,id", "--priority", "3", "--submitted-by", "me"], 0);
    let tasks = bench.tasks();
    assert_eq!(keys(&tasks), ["a/1", "a/2"]);
    let expected = json!({
        "kind": "parcels", "key": "a/1", "payload": feature(1, "a"), "bbox": [16.001, 48.5, 16.001, 48.5],
        "priority": 3, "submitted_by": "me",
    });
    assert_eq!(tasks[0], expected);
}

#[test]
fn the_key_of_a_feature_is_that_of_its_content_however_it_is_spelled() {
    let bench = Bench::new();
    bench.submitted(&[bench.features(2)], 0);
    let tasks = bench.tasks();
    let key = tasks[0]["key"].as_str().unwrap();
    assert!(key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit()), "{key}");
    let other = r#"{ "geometry": {"coordinates":[1.6001e1,4.85e1],"type":"Point"}, "type":"Feature", "properties":{"name":"a","id":1.0} }"#;
    let ran = bench.pipe(&["--format", "json"], other);
    assert_eq!((ran.code, ran.count("submitted"), ran.json()["known"]["queued"].as_u64()), (0, 0, Some(1)));
}

#[test]
fn keys_that_come_twice_are_counted() {
    let bench = Bench::new();
    let report = bench.submitted(&[bench.features(3), "--key", "name"], 0);
    assert_eq!((&report["submitted"], &report["repeated"]), (&json!(1), &json!(2)));
    assert_eq!(bench.lag(), 1);
}

#[test]
fn fields_that_the_manifest_does_not_have_are_refused_at_once() {
    let bench = Bench::new();
    bench.0.write("more.csv", "id,colour,size\n1,red,2\n");
    let ran = bench.submit(&["more.csv"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("does not have `colour`, `size`"), "{}", ran.stderr);
    let missing = bench.submit(&[bench.features(1), "--key", "nmae"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing.stderr.contains("parcels.geojson, record 1: there is no field `nmae`"),
        "{}",
        missing.stderr
    );
    assert!(missing.stderr.contains("nothing was published"), "{}", missing.stderr);
    assert_eq!(bench.lag(), 0);
}

#[test]
fn files_are_tasks_that_refer_to_them() {
    let bench = Bench::new();
    fs::create_dir_all(bench.0.path("in")).unwrap();
    for name in ["in/a.geojson", "in/b.geojson", "in/c.txt"] {
        bench.0.write(name, "{}");
    }
    let report = bench.submitted(&["--objects", "in/*.geojson", "s3://bucket/d.geojson"], 0);
    assert_eq!(report["submitted"], 3);
    let tasks = bench.tasks();
    let objects: Vec<&str> = tasks.iter().map(|task| task["object"].as_str().unwrap()).collect();
    assert_eq!(keys(&tasks), objects);
    assert!(objects[0].starts_with('/') && objects[0].ends_with("in/a.geojson"), "{objects:?}");
    assert_eq!(objects[2], "s3://bucket/d.geojson");
    let none = bench.submit(&["--objects", "in/*.tif"]);
    assert_eq!(none.code, 2);
    assert!(none.stderr.contains("no file has such a name"), "{}", none.stderr);
}

#[test]
fn tiles_are_tasks() {
    let bench = Bench::new();
    let report = bench.submitted(&["--tiles", "16.1,48.1,16.6,48.4", "--zoom", "10..11"], 0);
    let tasks = bench.tasks();
    assert_eq!(report["submitted"].as_u64(), Some(tasks.len() as u64));
    assert!(tasks.len() > 4);
    let one = tasks.iter().find(|task| task["key"] == "10/557/355").unwrap();
    assert_eq!(one["payload"]["properties"], json!({ "z": 10, "x": 557, "y": 355 }));
    let ring = one["payload"]["geometry"]["coordinates"][0].as_array().unwrap();
    assert_eq!((ring.len(), &ring[0]), (5, &ring[4]));
    assert_eq!(ring[0][0].as_f64(), Some(557.0 / 1024.0 * 360.0 - 180.0));
    assert_eq!(bench.submitted(&["--tiles", "16.1,48.1,16.6,48.4", "--zoom", "10..11"], 0)["submitted"], 0);
    let wrong = bench.submit(&["--tiles", "16.1,48.1,16.6,148.4", "--zoom", "10"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}

#[test]
fn h3_cells_are_tasks() {
    let bench = Bench::new();
    bench.0.write(
        "parcels.yaml",
        &bench.0.read("parcels.yaml").replace("{ id: int", "{ h3: string, resolution: int, id: int"),
    );
    let report = bench.submitted(&["--h3", "16.1,48.1,16.6,48.4", "--resolution", "5"], 0);
    let tasks = bench.tasks();
    assert_eq!(report["submitted"].as_u64(), Some(tasks.len() as u64));
    // A cell of resolution 5 has about 250 square kilometres, the box 37 x 33.
    assert_eq!(tasks.len(), 12);
    let one = tasks.iter().find(|task| task["key"] == "851e15b7fffffff").unwrap();
    assert_eq!(one["payload"]["properties"], json!({ "h3": "851e15b7fffffff", "resolution": 5 }));
    let ring = one["payload"]["geometry"]["coordinates"][0].as_array().unwrap();
    assert_eq!((ring.len(), &ring[0]), (7, &ring[6]));
    let west = ring.iter().map(|at| at[0].as_f64().unwrap()).fold(f64::INFINITY, f64::min);
    assert!((one["bbox"][0].as_f64().unwrap() - west).abs() < 1e-6);
    let again = bench.submitted(&["--h3", "16.1,48.1,16.6,48.4", "--resolution", "5"], 0);
    assert_eq!(again["submitted"], 0);
    for wrong in [&["--h3", "16,48,17,49"][..], &["--h3", "16,48,17,49", "--resolution", "16"]] {
        assert_eq!(bench.submit(wrong).code, 2);
    }
}

#[test]
fn a_list_of_tasks_in_csv() {
    let bench = Bench::with(", kinds: [new, old]");
    bench.0.write(
        "tasks.csv",
        "kind,key,object,payload,after,priority,not_before,ttl\n\
         new,a,,\"{\"\"id\"\": 1}\",,,,\n\
         old,b,data/b.geojson,,a;x,9,2030-01-01T00:00:00Z,1h\n",
    );
    assert_eq!(bench.submitted(&["--tasks", "tasks.csv"], 0)["submitted"], 2);
    let lag = bench.queue("lag", &[]);
    assert_eq!((&lag["ready"], &lag["waiting"]), (&json!(1), &json!(1)));
    let tasks = bench.tasks();
    assert_eq!(tasks[0], json!({ "kind": "new", "key": "a", "payload": { "id": 1 } }));
    if let Some(waiting) = tasks.get(1) {
        assert_eq!(waiting["expires"], "2030-01-01T01:00:00.000Z");
        assert_eq!(waiting["after"], json!(["a", "x"]));
    }
}

#[test]
fn one_bad_row_keeps_the_whole_list_out() {
    let bench = Bench::with(", kinds: [new, old]");
    bench.0.write(
        "tasks.csv",
        "kind,key,object,payload,priority,not_before\n\
         new,a,,{},,\n\
         new,b,,,,\n\
         newer,c,,{},,\n\
         new,d,,{},11,\n\
         new,e,,{},,soon\n\
         ,f,,{},,\n\
         new,g,,{not json},,\n\
         new,h\n",
    );
    let ran = bench.submit(&["--tasks", "tasks.csv"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    for says in [
        "tasks.csv:3: neither `payload` nor `object`",
        "tasks.csv:4: the pipeline does not work on the kind \"newer\"; it works on new, old",
        "tasks.csv:5: `priority` is 11; expected 0 to 9",
        "tasks.csv:6: `not_before`: invalid time \"soon\"",
        "tasks.csv:7: the task has no `kind`",
        "tasks.csv:8: `payload`: key must be a string",
        "tasks.csv:9: ",
        "7 tasks are invalid; nothing was published",
    ] {
        assert!(ran.stderr.contains(says), "{says}\n{}", ran.stderr);
    }
    assert_eq!((bench.lag(), bench.states()), (0, [0; 5]));
    bench.0.write("wrong.csv", "kind,colour\nnew,red\n");
    let ran = bench.submit(&["--tasks", "wrong.csv"]);
    assert!(ran.code == 2 && ran.stderr.contains("unknown column \"colour\""), "{}", ran.stderr);
}

#[test]
fn a_list_of_lines_is_checked_as_a_whole_too() {
    let bench = Bench::new();
    bench.0.write(
        "tasks.ndjson",
        "{\"key\":\"a\",\"payload\":{\"id\":1}}\n\n{\"key\":\"b\",\"payload\":{},\"colour\":1}\n",
    );
    let ran = bench.submit(&["--tasks", "tasks.ndjson"]);
    assert_eq!((ran.code, bench.lag()), (2, 0), "{}", ran.stderr);
    assert!(ran.stderr.contains("tasks.ndjson:3: unknown field `colour`"), "{}", ran.stderr);
}

#[test]
fn standard_input_publishes_what_is_valid_and_says_what_is_not() {
    let bench = Bench::new();
    let event = json!({
        "specversion": "1.0", "type": "parcels", "id": "event", "source": "/me", "data": { "id": 7 },
    });
    let lines = format!(
        "{{\"key\":\"task\",\"payload\":{{\"id\":1}},\"ttl\":\"1h\"}}\n{event}\n{}\nnonsense\n{{\"key\":\"x\"}}\n",
        feature(3, "c")
    );
    let ran = bench.pipe(&["--key", "id", "--format", "ndjson"], &lines);
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("standard input:4: not a JSON object"), "{}", ran.stderr);
    assert!(ran.stderr.contains("standard input:5: neither `payload` nor `object`"), "{}", ran.stderr);
    let said: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcome = |key: &str| json!({ "key": key, "outcome": "submitted" });
    assert_eq!(said[..3], [outcome("task"), outcome("event"), outcome("3")]);
    let summary = &said[3]["summary"];
    assert_eq!(
        (&summary["submitted"], &summary["invalid"], &summary["lag"]),
        (&json!(3), &json!(2), &json!(3))
    );
    assert_eq!(bench.tasks()[1]["submitted_by"], "/me");
}

#[test]
fn nothing_to_submit_is_a_mistake() {
    let bench = Bench::new();
    for (args, says) in [
        (&[][..], "nothing to submit"),
        (&["missing.geojson"], "missing.geojson"),
        (&["--objects"], "--objects needs files"),
        (&["--tasks", "missing.csv"], "missing.csv"),
        (&["-", "--not-before", "soon"], "invalid time \"soon\""),
        (&["-", "--priority", "10"], "10"),
        (&["--tiles", "0,0,1,1"], "--zoom"),
    ] {
        let ran = bench.submit(args);
        assert!(ran.code == 2 && ran.stderr.contains(says), "{args:?} {} {}", ran.code, ran.stderr);
    }
    bench.0.write(
        "file.yaml",
        &bench.0.read("parcels.yaml").replace(
            "queue: tasks.db, tasks: { fields: { id: int, name: string, z: int, x: int, y: int } }",
            "file: a.geojson",
        ),
    );
    let ran = bench.run(&["submit", "file.yaml", "-"]);
    assert!(ran.code == 2 && ran.stderr.contains("is not a queue"), "{}", ran.stderr);
    bench.0.write("json.yaml", &bench.0.read("parcels.yaml").replace("out.gpkg", "out.geojson"));
    let ran = bench.run(&["submit", "json.yaml", "-"]);
    assert!(ran.code == 2 && ran.stderr.contains("out.geojson"), "{}", ran.stderr);
}
