//! A fetch is a manifest: what it prints runs, and what a run can do it can.

use serde_json::{Value, json};
use tidegate_chaos::Config;

use crate::common::canned::Canned;
use crate::common::running::Ran;
use crate::common::workdir::Workdir;
use crate::fetch::bench::{Bench, WAYS, chaos, counted, layer};
use crate::fetch::strangers::{canned, shape};

const N: u64 = 230;

/// Another command in the directory of a bench.
fn tidegate(bench: &Bench, args: &[&str]) -> Ran {
    Workdir::command(bench, args).output().unwrap().into()
}

/// What a fetch with these options prints as its manifest.
fn printed(bench: &Bench, url: &str, args: &[&str]) -> String {
    let ran = bench.fetch(url, &[args, &["--print-manifest"]].concat());
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    ran.stdout
}

#[test]
fn the_printed_manifest_gives_the_same_output() {
    let server = chaos(layer(N, 50));
    let file = ("file", "/file/parcels.geojson", &["--rate", "1000"][..]);
    for (name, path, args) in WAYS.into_iter().chain([file]) {
        let url = format!("{}{path}", server.url());
        let bench = Bench::new();
        let ran = bench.fetch(&url, args);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{name}: {} {}", ran.stdout, ran.stderr);
        let fetched = std::fs::read(bench.path("out.geojsonl")).unwrap();
        std::fs::remove_file(bench.path("out.geojsonl")).unwrap();
        std::fs::write(bench.path("m.yaml"), printed(&bench, &url, args)).unwrap();
        let ran = tidegate(&bench, &["run", "m.yaml", "--format", "json"]);
        assert_eq!((ran.code, ran.count("written")), (0, N), "{name}: {} {}", ran.stdout, ran.stderr);
        assert!(fetched == std::fs::read(bench.path("out.geojsonl")).unwrap(), "{name}");
    }
}

#[test]
fn every_option_has_its_place_in_the_manifest() {
    let bench = Bench::new();
    let args = [
        "--profile",
        "geoserver-wfs",
        "--layer",
        "a:b",
        "--key",
        "env:NO_SUCH_KEY",
        "--page-size",
        "7",
        "--at-once",
        "9",
        "--sort-by",
        "id",
        "--wfs-version",
        "1.1.0",
        "--body",
        "gml",
        "--crs",
        "EPSG:25832",
        "--tolerate",
        "0.1%",
        "--rate",
        "30/min",
        "--attempts",
        "3",
        "--timeout",
        "4s",
        "--deadline",
        "5m",
        "--patience",
        "6s",
        "--allow-private",
        "--allow-host",
        "b.test",
        "--dead-letters",
        "letters.db",
        "--retention",
        "31",
        "-o",
        "out.gpkg",
    ];
    let text = printed(&bench, "http://a.test/x?cql_filter=${y}", &args);
    std::fs::write(bench.path("m.yaml"), &text).unwrap();
    let ran = tidegate(&bench, &["validate", "m.yaml"]);
    assert_eq!(ran.code, 0, "{text}{}", ran.stderr);
    for part in [
        "layer: \"a:b\"",
        "key: \"env:NO_SUCH_KEY\"",
        "size: 7",
        "at_once: 9",
        "sort_by: id",
        "version: \"1.1.0\"",
        "body: gml",
        "crs: \"EPSG:25832\"",
        "tolerate: \"0.1%\"",
        "requests_per_second: 0.5",
        "max_attempts: 3",
        "attempt_timeout_seconds: 4.0",
        "deadline_seconds: 300.0",
        "patience_seconds: 6.0",
        "allow_private: true",
        "allow_hosts: [b.test]",
        "store: letters.db",
        "retention_days: 31",
        "spool: true",
        "cql_filter=",
        "cooldown_seconds: 0.3",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// Three pages of one feature; the last one has a field that no other has, and a name in place of a
/// number.
fn late() -> Canned {
    canned(|head| {
        let at = (1..3).find(|at| head.contains(&format!("page={at}"))).unwrap_or(0);
        let more = if at == 2 { ",\"late\":\"here\",\"code\":\"x7\"" } else { ",\"code\":7" };
        let links = if at < 2 {
            format!("{{\"rel\":\"next\",\"href\":\"?page={}\"}}", at + 1)
        } else {
            String::new()
        };
        format!(
            "{{\"type\":\"FeatureCollection\",\"features\":[{{\"type\":\"Feature\",\"id\":{at},\"geometry\":null,\
             \"properties\":{{\"id\":{at}{more}}}}}],\"links\":[{links}]}}"
        )
    })
}

#[test]
fn a_field_of_the_last_page_is_in_the_output() {
    let server = late();
    let url = format!("{}/collections/a/items", server.url());
    let bench = Bench::new();
    for output in ["out.geojsonl", "out.gpkg", "out.csv", "out.fgb"] {
        let ran = bench.fetch(&url, &["-o", output]);
        assert_eq!((ran.code, ran.count("written")), (0, 3), "{output}: {} {}", ran.stdout, ran.stderr);
    }
    let last = &bench.features()[2]["properties"];
    assert_eq!((&last["late"], &last["code"]), (&json!("here"), &json!("x7")));
    let db = rusqlite::Connection::open(bench.path("out.gpkg")).unwrap();
    let codes: String =
        db.query_row("SELECT group_concat(code) || max(late) FROM out", [], |row| row.get(0)).unwrap();
    assert_eq!(codes, "7,7,\"x7\"here", "a field of numbers and texts holds JSON");
    // Without the spool it is no silent loss: the record is rejected, and told what helps.
    std::fs::write(bench.path("m.yaml"), printed(&bench, &url, &[]).replace("    spool: true\n", ""))
        .unwrap();
    let ran = tidegate(&bench, &["run", "m.yaml", "--format", "json"]);
    assert_eq!(
        (ran.code, ran.count("written"), ran.count("rejected")),
        (4, 2, 1),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    let rejects = std::fs::read_to_string(bench.path(&ran.word("rejects"))).unwrap();
    assert!(rejects.contains("`source.spool: true`") && rejects.contains("late"), "{rejects}");
}

/// The pages and what the server was asked for them.
fn pages(ran: &Ran) -> (u64, u64) {
    (counted(ran, "pages"), ran.count("calls"))
}

#[test]
fn killed_at_every_point_no_page_is_asked_for_twice() {
    let points = [
        ("started:0", 0),
        ("page:0", 0),
        ("spooled:0", 1),
        ("page:2", 2),
        ("spooled:2", 3),
        ("spooled:4", 5),
        ("kept:0", 5),
        ("opened:0", 5),
        ("put:0", 5),
        ("rejects:0", 5),
        ("commit:0", 5),
        ("finishing:0", 5),
        ("finish:0", 5),
    ];
    for output in ["out.geojsonl", "out.gpkg"] {
        let server = chaos(layer(N, 50));
        let url = format!("{}/ogc", server.url());
        let args = ["--profile", "ogcapi", "-o", output];
        let whole = pages(&Bench::new().fetch(&url, &args));
        assert_eq!(whole.0, 5);
        for (point, kept) in points {
            let at = format!("{output}, {point}");
            let bench = Bench::new();
            let killed = bench.command(&url, &args).env("TIDEGATE_CRASH", point).output().unwrap();
            assert_eq!(killed.status.code(), None, "{at}: {}", String::from_utf8_lossy(&killed.stderr));
            let ran = bench.fetch(&url, &[&args[..], &["--resume"]].concat());
            assert_eq!((ran.code, ran.count("written")), (0, N), "{at}: {} {}", ran.stdout, ran.stderr);
            assert_eq!(ran.json()["resumed"], json!(true), "{at}");
            // All that is asked again are the requests that open a layer; of a whole spool none.
            let expected = if kept == 5 && point != "spooled:4" { 0 } else { whole.1 - kept };
            assert_eq!(ran.count("calls"), expected, "{at}: {}", ran.stdout);
            assert_eq!(bench.files(), [output], "{at}");
            if output == "out.geojsonl" {
                assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))), "{at}");
                assert_eq!(counted(&ran, "pages"), 5, "{at}");
            } else {
                let db = rusqlite::Connection::open(bench.path(output)).unwrap();
                let rows: (i64, i64) = db
                    .query_row("SELECT count(*), count(DISTINCT id) FROM out", [], |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })
                    .unwrap();
                assert_eq!(rows, (N as i64, N as i64), "{at}");
            }
        }
    }
}

#[test]
fn a_spool_that_was_lost_or_cut_is_begun_anew() {
    let server = chaos(layer(N, 50));
    let url = format!("{}/ogc", server.url());
    let args = ["--profile", "ogcapi"];
    for lost in [true, false] {
        let bench = Bench::new();
        let killed = bench.command(&url, &args).env("TIDEGATE_CRASH", "spooled:2").output().unwrap();
        assert_eq!(killed.status.code(), None);
        let spool = bench.files().into_iter().find(|name| name.ends_with("features.geojson")).unwrap();
        if lost {
            std::fs::remove_file(bench.path(&spool)).unwrap();
        } else {
            std::fs::write(bench.path(&spool), "{").unwrap();
        }
        let ran = bench.fetch(&url, &["--profile", "ogcapi", "--resume"]);
        assert_eq!((ran.code, counted(&ran, "resumed")), (0, 0), "{} {}", ran.stdout, ran.stderr);
        assert!(bench.parcels().into_iter().eq((1..=N).map(|id| (id, 1))));
    }
}

#[test]
fn the_next_fetch_reads_the_source_anew() {
    let server = chaos(layer(N, 50));
    let url = format!("{}/wfs", server.url());
    let bench = Bench::new();
    let first = bench.fetch(&url, &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    for more in [&[][..], &["--resume"]] {
        let next = bench.fetch(&url, more);
        assert_eq!(
            (next.code, next.count("written"), pages(&next)),
            (0, N, pages(&first)),
            "{}",
            next.stdout
        );
        assert_eq!((&next.json()["resumed"], counted(&next, "resumed")), (&json!(false), 0));
    }
    // An unfinished one is abandoned without --resume.
    let killed = bench.command(&url, &[]).env("TIDEGATE_CRASH", "put:0").output().unwrap();
    assert_eq!(killed.status.code(), None);
    let next = bench.fetch(&url, &[]);
    assert_eq!((next.code, pages(&next)), (0, pages(&first)), "{}", next.stdout);
}

#[test]
fn two_fetches_of_one_name_share_nothing() {
    let (one, two) = (chaos(layer(N, 50)), chaos(layer(N / 2, 50)));
    let bench = Bench::new();
    std::fs::create_dir(bench.path("sub")).unwrap();
    let url = format!("{}/wfs", one.url());
    let killed = bench.command(&url, &[]).env("TIDEGATE_CRASH", "spooled:1").output().unwrap();
    assert_eq!(killed.status.code(), None);
    let other = format!("{}/wfs", two.url());
    for (url, output, n) in
        [(&other, "out.geojsonl", N / 2), (&url, "sub/out.geojsonl", N), (&url, "out.geojsonl", N)]
    {
        let ran = bench.fetch(url, &["--resume", "-o", output]);
        assert_eq!((ran.code, ran.count("written")), (0, n), "{output}: {} {}", ran.stdout, ran.stderr);
        let resumed = output == "out.geojsonl" && *url != other;
        assert_eq!(counted(&ran, "resumed") > 0, resumed, "{output}: {}", ran.stdout);
    }
}

#[test]
fn an_invalid_geometry_is_copied_and_told_of() {
    let bow = "{\"type\":\"Polygon\",\"coordinates\":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}";
    let server = canned(move |_| shape(bow, "EPSG:4326"));
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/collections/a/items", server.url()), &["-o", "out.gpkg"]);
    assert_eq!(
        (ran.code, ran.count("written"), ran.count("rejected")),
        (0, 1, 0),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    assert!(ran.json()["warnings"].to_string().contains("is_valid"), "{}", ran.stdout);
}

#[test]
fn what_cannot_be_written_becomes_a_dead_letter() {
    let open = "{\"type\":\"Polygon\",\"coordinates\":[[[0,0],[1,0],[1,1],[0,1]]]}";
    let server = canned(move |_| shape(open, "EPSG:4326"));
    let bench = Bench::new();
    let ran = bench.fetch(
        &format!("{}/collections/a/items", server.url()),
        &["-o", "out.gpkg", "--dead-letters", "letters.db"],
    );
    assert_eq!((ran.code, ran.count("rejected")), (4, 1), "{} {}", ran.stdout, ran.stderr);
    let list = tidegate(&bench, &["dlq", "ls", "--store", "letters.db", "--format", "json"]);
    assert_eq!(list.code, 0, "{}", list.stderr);
    assert!(list.stdout.contains("INVALID_GEOMETRY"), "{}", list.stdout);
}

#[test]
fn a_dry_run_looks_and_writes_nothing() {
    let server = chaos(Config { ..layer(N, 50) });
    let bench = Bench::new();
    let ran = bench.fetch(&format!("{}/wfs", server.url()), &["--dry-run"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let plan: Value = ran.json();
    assert_eq!((&plan["records"], &plan["asked"][0]["source"]["page"]), (&json!(N), &json!(50)), "{plan}");
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn a_service_that_is_down_is_75_at_the_first_page_and_at_a_later_one() {
    use crate::fetch::bench::fault;
    use tidegate_chaos::FaultKind;
    for from in [1, 4] {
        let faults = vec![fault(FaultKind::Status(500), &format!("@{from}..99999"))];
        let server = chaos(Config { faults, ..layer(N, 50) });
        let bench = Bench::new();
        let args = ["--profile", "ogcapi", "--attempts", "2", "--deadline", "2s", "--patience", "2s"];
        let ran = bench.fetch(&format!("{}/ogc", server.url()), &args);
        assert_eq!(
            (ran.code, ran.word("status").as_str()),
            (75, "waiting"),
            "{from}: {} {}",
            ran.stdout,
            ran.stderr
        );
        assert!(ran.stderr.contains("--resume") && !bench.path("out.geojsonl").exists(), "{}", ran.stderr);
    }
}
