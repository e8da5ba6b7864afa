//! Looking: ls, stats, show, map, export.

use crate::dlq::desk::Desk;

#[test]
fn filters_leave_out_and_coordinates_are_coarse_unless_revealed() {
    let desk = Desk::parcels();
    let count = |args: &[&str]| {
        let ran = desk.dlq(&[&["ls", "--format", "json"], args].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.json().as_array().unwrap().len()
    };
    assert_eq!(count(&[]), 5);
    assert_eq!(count(&["--code", "INVALID_GEOMETRY,UNCLOSED_RING"]), 2);
    assert_eq!(count(&["--bbox", "15,46,16,48"]), 1);
    assert_eq!(count(&["--bbox=-10,-10,-5,-5"]), 0);
    assert_eq!(count(&["--text", "nowhere"]), 1);
    assert_eq!(count(&["--class", "transient"]), 0);
    assert_eq!(count(&["--since", "1h", "--pipeline", "parcels", "--stage", "gate"]), 5);
    assert_eq!(count(&["--until", "2020-01-01"]), 0);
    assert_eq!(count(&["--generation", "1.."]), 0);
    let coarse = desk.dlq(&["ls", "--code", "INVALID_GEOMETRY"]);
    assert!(coarse.stdout.contains("~15.5 47.1") && !coarse.stdout.contains("15.50625"), "{}", coarse.stdout);
    let before = desk.audited();
    let exact = desk.dlq(&["ls", "--code", "INVALID_GEOMETRY", "--reveal", "ticket 7"]);
    assert!(exact.stdout.contains("15.506250 47.100000"), "{}", exact.stdout);
    assert_eq!(desk.audited(), before + 1, "a reveal is entered");
    assert_eq!(desk.dlq(&["ls", "--code", "nonsense"]).code, 2);
    assert_eq!(desk.run(&["dlq", "--store", "nowhere.db", "ls"]).code, 2);
    assert!(!desk.path("nowhere.db").exists());
}

#[test]
fn stats_count_by_everything_and_tell_metrics() {
    let desk = Desk::parcels();
    let by = |by: &str| {
        let groups = desk.dlq(&["stats", "--by", by, "--format", "json"]).json();
        let mut counts: Vec<u64> =
            groups.as_array().unwrap().iter().map(|g| g["letters"].as_u64().unwrap()).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(by("fingerprint"), [1, 1, 1, 1, 1]);
    assert_eq!(by("code"), [1, 1, 1, 1, 1]);
    assert_eq!(by("class"), [5]);
    assert_eq!(by("age"), [5]);
    assert_eq!(by("service"), [5]);
    let metrics = desk.dlq(&["stats", "--metrics"]).stdout;
    for line in
        ["tidegate_letter_open 5", "tidegate_letter_spatial_ratio 1", "tidegate_letter_capacity 5000000"]
    {
        assert!(metrics.contains(&format!("{line}\n")), "{line} in {metrics}");
    }
    assert_eq!(desk.dlq(&["capacity", "6"]).code, 0);
    let full = desk.dlq(&["stats"]).stderr;
    assert!(full.contains("83 % full"), "{full}");
}

#[test]
fn show_tells_the_story_and_the_payload_only_when_revealed() {
    let desk = Desk::parcels();
    let id = desk.id("INVALID_GEOMETRY");
    let story = desk.dlq(&["show", &id[28..]]).stdout;
    for word in ["Self-intersection at 15.5 47.1", "parcels / gate record 1", "kept until", "parcels#2"] {
        assert!(story.contains(word), "{word} in {story}");
    }
    assert!(!story.contains("bow tie"));
    let told = desk.dlq(&["show", &id, "--reveal", "why"]).stdout;
    assert!(told.contains("bow tie") && told.contains("15.4125"), "{told}");
    assert_eq!(desk.acts(&id), ["reveal"]);
    assert_eq!(desk.dlq(&["show", "ffffffffffff"]).code, 2);
}

#[test]
fn the_map_needs_nothing_else_and_an_export_has_its_layers() {
    let desk = Desk::parcels();
    assert_eq!(desk.dlq(&["map", "-o", "dead.html"]).code, 0);
    let page = std::fs::read_to_string(desk.path("dead.html")).unwrap();
    assert!(page.contains("default-src 'none'") && !page.contains("http://") | page.contains("w3.org"));
    assert_eq!(page.matches("\"fingerprint\":").count(), 5);
    assert!(!page.contains("15.4125"), "places are coarse");
    for name in ["dead.gpkg", "dead.geojson", "dead.fgb", "dead.ndjson", "dead.csv"] {
        let ran = desk.dlq(&["export", "-o", name, "--format", "json"]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let want = serde_json::json!({"valid": 2, "invalid": 2, "defects": 2, "nowhere": 1});
        assert_eq!(ran.json(), want, "{name}");
    }
    let gpkg = rusqlite::Connection::open(desk.path("dead.gpkg")).unwrap();
    let count = |table: &str| {
        gpkg.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(["valid", "invalid", "defects", "nowhere", "rtree_invalid_geom"].map(count), [2, 2, 2, 1, 2]);
    assert_eq!(desk.dlq(&["export", "-o", "dead.xyz"]).code, 2);
}

#[test]
fn the_same_verbs_work_on_postgresql() {
    let server = std::env::var("TIDEGATE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".into());
    let schema = format!("dlq_{}", std::process::id());
    let url = format!("{server}?schema={schema}");
    let desk = Desk::new();
    desk.write("parcels.geojson", crate::dlq::desk::PARCELS);
    let dlq = |args: &[&str]| desk.run(&[&["dlq", "--store", &url], args].concat());
    let captured = dlq(&["capture", "parcels.geojson", "--into", "out.geojson"]);
    let fixed = dlq(&["fix", "--rule", "make_valid", "--all", "--format", "json"]);
    let replayed =
        dlq(&["replay", "--into", "out.geojson", "--state", "validated", "--verify", "--format", "json"]);
    let listed = dlq(&["ls", "--state", "resolved", "--format", "json"]);
    let verified = dlq(&["audit", "--verify"]);
    let mut client = postgres::Client::connect(&server, postgres::NoTls).unwrap();
    client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).unwrap();
    assert_eq!(captured.code, 4, "{}", captured.stderr);
    assert_eq!(fixed.json()[0]["count"]["validated"], 1);
    assert_eq!((replayed.code, &replayed.json()[0]["resolved"]), (0, &1.into()), "{}", replayed.stderr);
    assert_eq!(listed.json().as_array().unwrap().len(), 1);
    assert_eq!(verified.code, 0, "{}", verified.stderr);
    assert_eq!(desk.out().len(), 3);
}

#[test]
fn what_others_wrote_is_neither_a_formula_nor_turns_the_text_around() {
    let desk = Desk::new();
    desk.write(
        "=1+1.geojson",
        "{\"type\":\"FeatureCollection\",\"features\":[{\"type\":\"Feature\",\"id\":1,\
         \"properties\":{\"name\":\"a\u{202e}b\"},\"geometry\":{\"type\":\"Point\",\"coordinates\":[1,200]}}]}",
    );
    let ran = desk.dlq(&["capture", "=1+1.geojson", "--into", "out.geojson"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let id = desk.dlq(&["ls", "--format", "json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let shown = desk.dlq(&["show", &id, "--reveal", "why"]).stdout;
    assert!(shown.contains("a b") && !shown.contains('\u{202e}'), "{shown}");
    assert_eq!(desk.dlq(&["export", "-o", "dead.csv"]).code, 0);
    let csv = std::fs::read_to_string(desk.path("dead.csv")).unwrap();
    assert!(csv.contains(",'=1+1,") && !csv.contains(",=1+1"), "{csv}");
}
