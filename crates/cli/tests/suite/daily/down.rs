//! A service or a database that is down is exit code 75, whatever the command.

use crate::common::canned;
use crate::daily::{POLICY, addresses, run};

/// The body of a manifest, for each thing that can be down.
fn manifests(addr: &str) -> Vec<(&'static str, String)> {
    let pg = format!("postgres://nobody@{addr}/test");
    vec![
        (
            "step",
            format!(
                "services: {{ g: {{ url: \"http://{addr}\", profile: generic }} }}
  source: {{ file: in.csv, crs: EPSG:4326 }}
  steps:
    - geocode: {{ service: g, address: [address] }}
  sink: {{ file: step.gpkg, key: [id] }}"
            ),
        ),
        (
            "source",
            format!(
                "services: {{ w: {{ url: \"http://{addr}/wfs\" }} }}
  source: {{ service: w, layer: parcels }}
  sink: {{ file: source.gpkg }}"
            ),
        ),
        (
            "table",
            format!(
                "source: {{ postgis: {{ url: \"{pg}\", table: t, key: id }}, crs: EPSG:4326 }}
  sink: {{ file: table.gpkg }}"
            ),
        ),
        (
            "sink",
            format!(
                "source: {{ file: in.csv, crs: EPSG:4326 }}
  sink: {{ postgis: {{ url: \"{pg}\", table: t }}, key: [id] }}"
            ),
        ),
        (
            "letters",
            format!(
                "dead_letters: {{ store: \"{pg}\" }}
  source: {{ file: in.csv, crs: EPSG:4326 }}
  sink: {{ file: letters.gpkg, key: [id] }}"
            ),
        ),
    ]
}

#[test]
fn what_is_down_is_75_by_every_command() {
    let (_held, addr) = canned::closed();
    let addr = addr.to_string();
    let dir = addresses();
    let (http, pg) = (format!("http://{addr}"), format!("postgres://nobody@{addr}/test"));
    let mut wrong = Vec::new();
    let mut check = |args: &[&str]| {
        let ran = run(&dir, args);
        let panicked = ran.stderr.contains("internal error");
        if ran.code != 75 || panicked {
            wrong.push(format!("{} from {args:?}: {}{}", ran.code, ran.stdout, ran.stderr));
        }
    };
    for (name, body) in manifests(&addr) {
        let file = format!("{name}.yaml");
        dir.write(&file, &format!("pipeline:\n  id: {name}\n  {body}\n{POLICY}"));
        check(&["run", &file]);
        // A plan sends nothing to the service of a step, and needs no store of letters.
        if !["step", "letters"].contains(&name) {
            check(&["plan", &file]);
            check(&["run", "--dry-run", &file]);
        }
        let store = if name == "letters" { &pg } else { "none.db" };
        check(&["doctor", &file, "--store", store]);
    }
    let geocode = ["geocode", "in.csv", "--address", "address", "--url", &http, "--attempts", "1", "-o"];
    check(&[&geocode[..], &["plain.csv"]].concat());
    check(&[&geocode[..], &["server.csv", "--dead-letters", &pg]].concat());
    check(&[&geocode[..], &["out.csv", "--dead-letters", "letters.db"]].concat());
    let printed =
        run(&dir, &[&geocode[..], &["out.csv", "--dead-letters", "letters.db", "--print-manifest"]].concat());
    dir.write("geocode.yaml", &printed.stdout);
    check(&["dlq", "replay", "--manifest", "geocode.yaml", "--store", "letters.db"]);
    check(&["fetch", &format!("{http}/wfs"), "--attempts", "1", "-o", "out.gpkg"]);
    check(&["fetch", &format!("{http}/parcels.geojson"), "--attempts", "1", "-o", "file.gpkg"]);
    check(&["store", "ls", "s3://bucket", "--endpoint", &http, "--attempts", "1"]);
    for verb in [
        &["ls"][..],
        &["stats"],
        &["show", "5f2c90ab"],
        &["map", "-o", "map.html"],
        &["export", "-o", "letters.csv"],
        &["replay", "--all"],
        &["fix", "--rule", "make_valid", "--all"],
        &["purge", "--all", "--yes"],
        &["hold", "--all", "--why", "x"],
        &["incidents"],
        &["audit"],
        &["capacity", "5"],
    ] {
        check(&[&["dlq", "--store", &pg], verb].concat());
    }
    for verb in [
        &["audit", "show"][..],
        &["audit", "verify"],
        &["keys", "generate", "--key", "a.key"],
        &["keys", "rotate", "--key", "a.key"],
        &["doctor"],
    ] {
        check(&[verb, &["--store", &pg]].concat());
    }
    std::fs::create_dir_all(dir.path(".tidegate")).unwrap();
    let listen = ["serve", "--listen", "127.0.0.1:0", "--dead-letters"];
    check(&[&listen[..], &[&pg]].concat());
    check(&[&listen[..], &["some.db", "--dead-letters", &pg]].concat());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
