//! What a letter of a run says of its failure, and where its payload is.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::canned::{Canned, json as answer};
use crate::pipeline::bench::{Bench, point};
use crate::pipeline::replay::{dlq, edit, open};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn a_letter_tells_attempts_hints_service_trace_target_and_worker() {
    let collector = Canned::start(|_| answer("200 OK", "{}"));
    let asked = std::sync::atomic::AtomicU32::new(0);
    let server = Canned::start(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => "503 Service Unavailable\r\nRetry-After: 1\r\n\r\n".to_owned(),
        _ => answer("422 Unprocessable Content", "{}"),
    });
    let bench = Bench::new();
    bench.write("in.geojsonl", &point(16.123_456, 48.123_456, r#"{"id":7}"#));
    bench.manifest(&format!(
        "dead_letters: {{}}\nsource: {{ file: in.geojsonl }}\nservices: {{ owners: {{ url: \"{}\" }} }}\nsteps:\n  - http: {{ service: owners, path: \"/{{id}}\", take: {{ owner: /owner }} }}\n  - reproject: EPSG:31287\nsink: {{ file: out.gpkg, key: [id] }}",
        server.url()
    ));
    let ran = bench
        .command(&["run", "m.yaml"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("TRACEPARENT", format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(4), "{}", String::from_utf8_lossy(&ran.stderr));
    let letter = &open(&bench)[0];
    let failure = &letter["failure"];
    let host = server.url().replace("http://", "");
    assert_eq!((&failure["service_name"], &failure["service"]), (&json!("owners"), &json!(host)));
    assert_eq!(failure["http"]["status"], 422);
    let attempts = failure["attempts"].as_array().unwrap();
    let told: Vec<_> = attempts.iter().map(|a| (a["status"].clone(), a["verdict"].clone())).collect();
    assert_eq!(told, [(json!(503), json!("SERVICE_UNAVAILABLE")), (json!(422), json!("UNPROCESSABLE"))]);
    let hint = attempts[0]["hint_ms"].as_u64().unwrap();
    assert!((1..=1000).contains(&hint), "{hint}");
    assert!(attempts[1]["hint_ms"].is_null());
    let number = |a: &Value, name: &str| a[name].as_u64().unwrap_or_else(|| panic!("no {name} in {a}"));
    assert!(number(&attempts[1], "at_ms") >= number(&attempts[0], "at_ms") + number(&attempts[0], "took_ms"));
    assert!(number(&attempts[1], "delay_ms") > 0);
    assert_eq!(failure["trace_id"], TRACE);
    assert_eq!(letter["spatial"]["target_crs"], "EPSG:31287");
    assert_eq!(letter["spatial"]["source_crs"], "OGC:CRS84");
    let worker = failure["worker"].as_str().unwrap();
    let host_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    assert!(worker.starts_with(host_name.trim()), "{worker}");
    assert!(
        worker.contains(", pid ") && worker.ends_with(&format!("tidegate {}", env!("CARGO_PKG_VERSION"))),
        "{worker}"
    );
    let shown = dlq(&bench, &["show", letter["id"].as_str().unwrap()]).stdout;
    for line in [
        "service      owners http".to_owned(),
        format!("host         {host}"),
        "target       EPSG:31287".to_owned(),
        format!("trace        {TRACE}"),
        format!("worker       {worker}"),
    ] {
        assert!(shown.contains(&line), "{line:?} is not in\n{shown}");
    }
    assert!(
        shown.contains("503, took ") && shown.contains(&format!("asked for a wait of {hint} ms")),
        "{shown}"
    );
    // A replay that fails again tells its own story.
    assert_eq!(dlq(&bench, &["replay", "--manifest", "m.yaml", "--all"]).code, 4);
    let again = &open(&bench)[0];
    assert_eq!(again["lineage"]["generation"], 1);
    let attempts = again["failure"]["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &attempts[0]["status"]), (1, &json!(422)));
    assert_eq!(again["failure"]["service_name"], "owners");
}

#[test]
fn a_large_payload_is_stored_by_its_hash_which_is_checked_on_use() {
    let bench = Bench::new();
    let large = format!(r#"{{"id":1,"n":"x","t":"{}"}}"#, "a".repeat(70_000));
    bench.write(
        "in.geojsonl",
        &(point(16.123_456, 48.123_456, &large) + &point(16.2, 48.2, r#"{"id":2,"n":"2","t":""}"#)),
    );
    bench.manifest("dead_letters: {}\nsource: { file: in.geojsonl }\nsteps:\n  - coerce: { fields: { n: int } }\nsink: { file: out.gpkg, key: [id] }");
    bench.runs(4);
    let letters = open(&bench);
    let id = letters[0]["id"].as_str().unwrap();
    let shown = dlq(&bench, &["show", id, "--reveal", "test", "--format", "json"]).json();
    let sha = |text: &Value| {
        Sha256::digest(text.as_str().unwrap()).iter().map(|b| format!("{b:02x}")).collect::<String>()
    };
    let reference = &shown["payload_references"]["received"];
    assert_eq!(reference["sha256"], sha(&shown["received"]));
    assert_eq!(reference["bytes"], shown["received"].as_str().unwrap().len());
    let hash = reference["sha256"].as_str().unwrap();
    assert!(dlq(&bench, &["show", id]).stdout.contains(&format!("received sha256:{hash}, ")));
    edit(&bench, &letters[0], "n", json!("1"));
    let shown = dlq(&bench, &["show", id, "--reveal", "test", "--format", "json"]).json();
    let hash = shown["payload_references"]["current"]["sha256"].as_str().unwrap().to_owned();
    assert_eq!(hash, sha(&shown["current"]));
    // One bit of the payload flips on the disk.
    let db = rusqlite::Connection::open(bench.path(".tidegate/letters.db")).unwrap();
    let find = format!("SELECT bytes FROM blob WHERE hex(sha) = '{}'", hash.to_uppercase());
    let whole: Vec<u8> = db.query_row(&find, [], |row| row.get(0)).unwrap();
    let write = |bytes: &[u8]| {
        let sql = format!("UPDATE blob SET bytes = ?1 WHERE hex(sha) = '{}'", hash.to_uppercase());
        db.execute(&sql, [bytes]).unwrap();
    };
    let mut damaged = whole.clone();
    damaged[40_000] ^= 1;
    write(&damaged);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all"]);
    assert_eq!(replayed.code, 75, "{}", replayed.stderr);
    assert!(
        replayed.stderr.contains(&format!("letter {id} is damaged and was left out")),
        "{}",
        replayed.stderr
    );
    assert_eq!(bench.sql("out.gpkg", "SELECT id FROM out"), ["2"]);
    write(&whole);
    let replayed = dlq(&bench, &["replay", "--manifest", "m.yaml", "--all", "--verify"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    assert_eq!(bench.sql("out.gpkg", "SELECT id, n, length(t) FROM out ORDER BY id"), ["1|1|70000", "2|2|0"]);
}
