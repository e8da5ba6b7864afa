//! The same answer ends the same way, whoever asked: `geocode`, `fetch`, a source, a step.

use crate::common::canned::{Canned, json};
use crate::common::running::Ran;
use crate::pipeline::bench::{Bench, addresses};

/// A way to ask a service, in a directory of its own.
#[derive(Clone, Copy, Debug)]
enum Way {
    Geocode,
    Fetch,
    Source,
    Step,
}

const ALL: [Way; 4] = [Way::Geocode, Way::Fetch, Way::Source, Way::Step];

fn step(bench: &Bench, url: &str, rows: usize) {
    bench.write("in.csv", &addresses(rows));
    bench.manifest(&format!(
        "source: {{ file: in.csv }}\nservices: {{ g: {{ profile: generic, url: \"{url}\" }} }}\nsteps:\n  - geocode: {{ service: g, address: [street] }}\nsink: {{ file: out.gpkg, key: [id] }}"
    ));
}

fn ask(bench: &Bench, way: Way, url: &str) -> Ran {
    bench.write("in.csv", &addresses(3));
    match way {
        Way::Geocode => bench.tidegate(&[
            "geocode",
            "in.csv",
            "--address",
            "street",
            "--url",
            url,
            "-o",
            "out.csv",
            "--in-flight",
            "1",
        ]),
        Way::Fetch => {
            bench.tidegate(&["fetch", url, "--profile", "ogcapi", "--layer", "parcels", "-o", "out.geojson"])
        }
        Way::Source => {
            bench.manifest(&format!(
                "source: {{ service: g, layer: parcels }}\nservices: {{ g: {{ profile: ogcapi, url: \"{url}\" }} }}\nsink: {{ file: out.gpkg }}"
            ));
            bench.tidegate(&["run", "m.yaml"])
        }
        Way::Step => {
            step(bench, url, 3);
            bench.tidegate(&["run", "m.yaml"])
        }
    }
}

#[test]
fn who_wants_more_time_than_there_is_ends_the_run_with_75_for_everybody() {
    for (answer, said) in [
        ("429 Too Many Requests\r\nRetry-After: 86400", "(Retry-After: 86400)"),
        ("503 Service Unavailable\r\nRetry-After: 3600", "(Retry-After: 3600)"),
        ("402 Payment Required", "quota"),
    ] {
        for way in ALL {
            let server = Canned::start(move |_| json(answer, "{}"));
            let bench = Bench::new();
            let ran = ask(&bench, way, &server.url());
            assert_eq!(ran.code, 75, "{way:?} {answer}: {} {}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains(said), "{way:?} {answer}: {}", ran.stderr);
            // As many as were out at once; none of them tried again.
            let calls = server.seen().len();
            assert!((1..=3).contains(&calls), "{way:?} {answer}: {calls}");
            // A restart does not forget what the server said; where it said no time, it is asked again.
            let ran = ask(&bench, way, &server.url());
            let again = server.seen().len() - calls;
            let expected = if answer.contains("Retry-After") { 0..=0 } else { 1..=3 };
            assert_eq!(ran.code, 75, "{way:?} {answer}: {}", ran.stderr);
            assert!(expected.contains(&again), "{way:?} {answer}: {again} calls");
            assert!(ran.stderr.contains(said), "{way:?} {answer}: {}", ran.stderr);
        }
    }
}

#[test]
fn what_one_verb_was_told_the_others_obey() {
    let server = Canned::start(|_| json("503 Service Unavailable\r\nRetry-After: 3600", "{}"));
    let bench = Bench::new();
    assert_eq!(ask(&bench, Way::Fetch, &server.url()).code, 75);
    let calls = server.seen().len();
    for way in ALL {
        let ran = ask(&bench, way, &server.url());
        assert_eq!((ran.code, server.seen().len()), (75, calls), "{way:?}: {} {}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_wrong_key_of_a_step_costs_a_few_calls() {
    let server = Canned::start(|_| json("401 Unauthorized", r#"{"error":"invalid key"}"#));
    let bench = Bench::new();
    step(&bench, &server.url(), 1000);
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 1, "{} {}", ran.stdout, ran.stderr);
    let calls = server.seen().len();
    assert!((10..=10 + 64).contains(&calls), "{calls}");
    for part in ["services.g.key", "invalid key", "401 UNAUTHORIZED", "--keep-going"] {
        assert!(ran.stderr.contains(part), "{part:?} is not in {}", ran.stderr);
    }
    assert!(bench.rejects().is_empty(), "a wrong key makes no dead letters");
    let ran = bench.run(&["--keep-going"]);
    assert_eq!(ran.code, 4, "{} {}", ran.stdout, ran.stderr);
    assert_eq!(server.seen().len() - calls, 1000);
    assert_eq!(ran.json()["rejected_by_code"]["UNAUTHORIZED"], 1000);
}

#[test]
fn a_wrong_address_of_a_geocoder_is_not_an_empty_answer() {
    let server = Canned::start(|_| json("404 Not Found", "{}"));
    let bench = Bench::new();
    step(&bench, &server.url(), 100);
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 1, "{} {}", ran.stdout, ran.stderr);
    assert!(server.seen().len() <= 10 + 64);
    assert!(ran.stderr.contains("services.g.url"), "{}", ran.stderr);
}
