//! What becomes of tasks.

use super::{Message, each_once, letters, once, parcels, publish, queue, rows, states, task, until_empty};

#[test]
fn tasks_become_rows_and_a_second_delivery_changes_nothing() {
    let dir = parcels();
    assert_eq!(once(&dir, &[]).code, 0, "an empty queue is no error");
    assert_eq!(publish(&dir, &(0..3000).map(|n| task("parcels", n)).collect::<Vec<_>>()), 3000);
    let ran = once(&dir, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["pipelines"][0]["done"], 3000);
    assert_eq!(rows(&dir, "parcels"), each_once(0..3000));
    // The acknowledgements were lost: everything is delivered again.
    publish(&dir, &(0..3100).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let ran = once(&dir, &[]);
    let result = &ran.json()["pipelines"][0];
    assert_eq!((&result["done"], &result["repeated"]), (&100.into(), &3000.into()), "{}", ran.stderr);
    assert_eq!(rows(&dir, "parcels"), each_once(0..3100));
    assert_eq!(states(&dir, "parcels"), [("done".to_owned(), 3100)].into());
}

#[test]
fn a_worker_that_dies_anywhere_loses_nothing_and_doubles_nothing() {
    for at in ["opened:0", "put:1", "rejects:1", "commit:1", "commit:0"] {
        let dir = parcels();
        publish(&dir, &(0..2500).map(|n| task("parcels", n)).collect::<Vec<_>>());
        let died =
            dir.command(&["worker", "parcels.yaml", "--once"]).env("TIDEGATE_CRASH", at).output().unwrap();
        assert_eq!(died.status.code(), None, "{at}: {}", String::from_utf8_lossy(&died.stderr));
        until_empty(&dir);
        assert_eq!(rows(&dir, "parcels"), each_once(0..2500), "{at}");
        assert_eq!(states(&dir, "parcels"), [("done".to_owned(), 2500)].into(), "{at}");
    }
}

#[test]
fn a_message_that_is_no_task_is_a_dead_letter_and_the_others_go_on() {
    let dir = parcels();
    let mut messages: Vec<Message> = (0..10).map(|n| task("parcels", n)).collect();
    messages.push(Message::new("a", "not json"));
    messages.push(Message::new("b", r#"{"kind":"roads","key":"b","payload":{"id":1}}"#));
    messages.push(Message::new("c", r#"{"kind":"parcels","key":"c","payload":{"id":"x","name":"n"}}"#));
    messages.push(Message::new("d", r#"{"kind":"parcels","key":"d","payload":{"other":1}}"#));
    messages.push(Message::new("e", r#"{"kind":"parcels","key":"e","object":"missing.geojson"}"#));
    messages.push(Message::new(
        "f",
        r#"{"kind":"parcels","key":"f","payload":{"type":"FeatureCollection","features":[]}}"#,
    ));
    publish(&dir, &messages);
    let ran = once(&dir, &[]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert_eq!(rows(&dir, "parcels"), each_once(0..10));
    assert_eq!(states(&dir, "parcels"), [("dead".to_owned(), 6), ("done".to_owned(), 10)].into());
    let codes = letters(&dir);
    assert_eq!(codes.values().sum::<u64>(), 6, "{codes:?}");
    assert_eq!(codes.get("TASK_KIND_UNKNOWN"), Some(&1), "{codes:?}");
    assert_eq!(codes.get("NOT_FOUND"), Some(&1), "{codes:?}");
    // Nothing is delivered for ever.
    assert_eq!(once(&dir, &[]).json()["pipelines"][0]["received"], 0);
}

#[test]
fn a_task_may_refer_to_a_file_with_many_records() {
    let dir = parcels();
    let feature = |n: u64| {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[1,{n}]}},"properties":{{"id":{n},"name":"x"}}}}"#
        )
    };
    let lines: Vec<String> = (0..50).map(feature).collect();
    dir.write("more.geojsonl", &lines.join("\n"));
    publish(&dir, &[Message::new("file", r#"{"kind":"parcels","key":"file","object":"more.geojsonl"}"#)]);
    let ran = once(&dir, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(rows(&dir, "parcels"), each_once(0..50));
    assert_eq!(states(&dir, "parcels"), [("done".to_owned(), 1)].into());
}

#[test]
fn a_task_comes_after_those_it_names() {
    let dir = parcels();
    let after = |key: &str, n: u64, after: &str| {
        Message::new(
            key,
            format!(
                r#"{{"kind":"parcels","key":"{key}","after":["{after}"],"payload":{{"id":{n},"name":"n"}}}}"#
            ),
        )
    };
    publish(&dir, &[after("second", 2, "first"), after("lost", 3, "dead")]);
    publish(&dir, &[Message::new("dead", r#"{"kind":"parcels","key":"dead","payload":{"bad":1}}"#)]);
    let ran = once(&dir, &[]);
    assert_eq!(rows(&dir, "parcels"), [].into(), "{}", ran.stderr);
    publish(
        &dir,
        &[Message::new("first", r#"{"kind":"parcels","key":"first","payload":{"id":1,"name":"n"}}"#)],
    );
    until_empty(&dir);
    assert_eq!(rows(&dir, "parcels"), each_once(1..3));
    assert_eq!(states(&dir, "parcels"), [("dead".to_owned(), 2), ("done".to_owned(), 2)].into());
    assert_eq!(letters(&dir).get("TASK_BLOCKED"), Some(&1));
}

#[test]
fn a_task_that_kills_its_worker_is_dead_after_three_crashes_and_nobody_else() {
    let dir = parcels();
    publish(&dir, &(0..20).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let mut deaths = 0;
    while queue(&dir, async |queue| queue.depth().await).lag() > 0 {
        let ran = dir
            .command(&["worker", "parcels.yaml", "--once"])
            .env("TIDEGATE_CRASH", "task:p7")
            .output()
            .unwrap();
        deaths += u32::from(ran.status.code().is_none());
        assert!(deaths <= 3, "{}", String::from_utf8_lossy(&ran.stderr));
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert_eq!(deaths, 3);
    assert_eq!(rows(&dir, "parcels").len(), 19);
    assert_eq!(states(&dir, "parcels"), [("dead".to_owned(), 1), ("done".to_owned(), 19)].into());
    assert_eq!(letters(&dir), [("PROCESS_CRASHED".to_owned(), 1)].into());
}

/// A worker that is killed leaves a file that others can use: whatever is committed is in its index.
#[test]
fn the_layer_of_a_killed_worker_has_its_index_and_extent() {
    let dir = parcels();
    publish(&dir, &(0..2500).map(|n| task("parcels", n)).collect::<Vec<_>>());
    let died = dir.command(&["worker", "parcels.yaml"]).env("TIDEGATE_CRASH", "commit:1").output().unwrap();
    assert_eq!(died.status.code(), None, "{}", String::from_utf8_lossy(&died.stderr));
    let sink = rusqlite::Connection::open(dir.path("parcels.gpkg")).unwrap();
    let count = |sql: &str| sink.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let rows = count("SELECT count(*) FROM parcels");
    assert!(rows > 0);
    assert_eq!(count("SELECT count(*) FROM rtree_parcels_geom"), rows);
    let extent = "SELECT min_x = (SELECT min(minx) FROM rtree_parcels_geom)
        AND max_x = (SELECT max(maxx) FROM rtree_parcels_geom) AND max_y = (SELECT max(maxy) FROM rtree_parcels_geom)
        FROM gpkg_contents WHERE table_name = 'parcels'";
    assert_eq!(count(extent), 1);
    let checkpoints = "SELECT count(*) FROM sqlite_master WHERE name = 'tidegate_checkpoint'";
    assert_eq!(count(checkpoints), 1);
    // The next worker removes what this one has left.
    until_empty(&dir);
    assert_eq!(count(checkpoints), 0);
}

/// Two tasks with the same content are two letters. Each is done when its letter was replayed.
#[test]
fn a_replayed_letter_ends_its_task() {
    let dir = parcels();
    let manifest = dir.read("parcels.yaml").replace("geometry: point", "geometry: polygon");
    dir.write("parcels.yaml", &manifest);
    let tie = |key: &str| {
        let payload = r#"{"type":"Feature","geometry":{"type":"Polygon","coordinates":[[[1,1],[2,2],[2,1],[1,2],[1,1]]]},"properties":{"id":1,"name":"n"}}"#;
        Message::new(key, format!(r#"{{"kind":"parcels","key":"{key}","payload":{payload}}}"#))
    };
    publish(&dir, &[tie("a"), tie("b")]);
    assert_eq!(once(&dir, &[]).code, 4);
    // One of them in another worker.
    publish(&dir, &[tie("c")]);
    assert_eq!(once(&dir, &[]).code, 4);
    assert_eq!(letters(&dir).values().sum::<u64>(), 3, "{:?}", letters(&dir));
    assert_eq!(states(&dir, "parcels"), [("dead".to_owned(), 3)].into());
    for verb in [&["fix", "--rule", "make_valid", "--all"][..], &["replay", "--all"]] {
        let args = [&["dlq", "--store", "letters.db"], verb, &["--manifest", "parcels.yaml"]].concat();
        let ran = dir.command(&args).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    }
    assert_eq!(rows(&dir, "parcels"), [(1, 3)].into());
    assert_eq!(states(&dir, "parcels"), [("done".to_owned(), 3)].into());
}
