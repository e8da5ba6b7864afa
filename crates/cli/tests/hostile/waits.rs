//! Waits that nobody can mean: one header must not shut a host for years, in a file, at the server of a fleet
//! or in the process, and what is remembered can be seen and forgotten.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::canned::Canned;
use crate::running::Ran;
use crate::workdir::Workdir;

const FILE: &str = ".tidegate/lanes.json";
const DAY_MS: i64 = 86_400_000;
const MATCH: &str = r#"{"results":[{"lat":48.5,"lon":16.25,"label":"here","score":0.5}]}"#;

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn bench() -> Workdir {
    let work = Workdir::new();
    work.write("in.csv", "id,address\n1,1 Harbour Road\n2,2 Harbour Road\n3,3 Harbour Road\n");
    work
}

/// One run; it waits for no more than a second.
fn geocode(work: &Workdir, url: &str, more: &[&str]) -> Ran {
    let args =
        ["geocode", "in.csv", "--address", "address", "-o", "out.csv", "--url", url, "--format", "json"];
    let few = ["--in-flight", "1", "--patience", "1s", "--attempts", "2", "--deadline", "3s"];
    work.command(&[&args[..], &few, more].concat()).env_remove("TIDEGATE_LANES").output().unwrap().into()
}

fn lanes(work: &Workdir, args: &[&str]) -> Ran {
    let all = [&["lanes"], args].concat();
    work.command(&all).env_remove("TIDEGATE_LANES").output().unwrap().into()
}

fn listed(work: &Workdir, more: &[&str]) -> Vec<Value> {
    let ran = lanes(work, &[&["ls", "--format", "json"], more].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.json()["lanes"].as_array().unwrap().clone()
}

/// A service that answers every call so.
fn service(status: &'static str, headers: &'static str) -> Canned {
    Canned::start(move |_| format!("{status}\r\nContent-Type: application/json{headers}\r\n\r\n{MATCH}"))
}

/// The times in the file that are the end of a wait.
fn untils(work: &Workdir) -> Vec<i64> {
    let Ok(text) = std::fs::read_to_string(work.path(FILE)) else { return Vec::new() };
    let file: Value = serde_json::from_str(&text).unwrap();
    let lanes = file["lanes"].as_object().unwrap().values();
    let times = |lane: &Value| {
        ["hint_until_ms", "quota_until_ms", "breaker_until_ms"].map(|name| lane[name].as_i64())
    };
    lanes.flat_map(times).flatten().collect()
}

#[test]
fn no_refusal_shuts_a_host_for_longer_than_a_day() {
    const THROTTLE: &str = "429 Too Many Requests";
    for (status, headers, asks) in [
        (THROTTLE, "\r\nRetry-After: 999999999", true),
        ("503 Service Unavailable", "\r\nRetry-After: 999999999", true),
        ("402 Payment Required", "\r\nRetry-After: 99999999999999999999", true),
        (THROTTLE, "\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT", true),
        (THROTTLE, "\r\nRetry-After: 9999-12-31T23:59:59Z", true),
        (THROTTLE, "\r\nRetry-After: 40000d", true),
        (
            THROTTLE,
            "\r\nX-RateLimit-Limit: 5\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 9999999999999",
            true,
        ),
        (
            THROTTLE,
            "\r\nX-RateLimit-Limit: 5\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 9223372036854775807",
            true,
        ),
        (THROTTLE, "\r\nRateLimit: \"a\";r=0;t=999999999", true),
        // Not waits at all.
        (THROTTLE, "\r\nRetry-After: -5", false),
        (THROTTLE, "\r\nRetry-After: soon", false),
        (THROTTLE, "\r\nX-RateLimit-Reset: 1e18", false),
        (THROTTLE, "\r\nX-RateLimit-Reset: -1", false),
    ] {
        let (work, server) = (bench(), service(status, headers));
        let ran = geocode(&work, &server.url(), &[]);
        assert_ne!(ran.code, 1, "{headers}: {} {}", ran.stdout, ran.stderr);
        let last = now_ms() + DAY_MS;
        assert!(untils(&work).iter().all(|until| *until <= last), "{headers}: {:?}", untils(&work));
        if !asks {
            continue;
        }
        assert!(!untils(&work).is_empty(), "{headers}: a wait is still kept");
        assert_eq!(ran.code, 75, "{headers}: {}", ran.stderr);
        let result = ran.json();
        assert!(result["not_before_ms"].as_i64().unwrap() <= last, "{headers}: {result}");
        assert!(result["error"].as_str().unwrap().contains("which is cut to 1d"), "{headers}: {result}");
        assert!(ran.stderr.contains("the server asked to wait"), "{headers}: {}", ran.stderr);
        // And it outlives the process.
        let calls = server.seen().len();
        assert_eq!(geocode(&work, &server.url(), &[]).code, 75, "{headers}");
        assert_eq!(server.seen().len(), calls, "{headers}: it is not asked again before");
    }
}

#[test]
fn what_comes_with_a_success_shuts_nothing_beyond_the_process() {
    for headers in [
        "\r\nRetry-After: 999999999",
        "\r\nX-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 999999999",
        "\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 999999999",
        "\r\nRateLimit: \"a\";r=0;t=999999999",
        "\r\nRateLimit-Policy: \"a\";q=1;w=999999999\r\nRateLimit: \"a\";r=0;t=999999999",
        "\r\nX-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 9999999999999",
    ] {
        let (work, server) = (bench(), service("200 OK", headers));
        let ran = geocode(&work, &server.url(), &[]);
        // It ends by itself, and not in 31 years.
        assert!([0, 75].contains(&ran.code), "{headers}: {} {}", ran.stdout, ran.stderr);
        assert!(untils(&work).is_empty() && listed(&work, &[]).is_empty(), "{headers}");
        let calls = server.seen().len();
        geocode(&work, &server.url(), &["--no-cache"]);
        assert!(server.seen().len() > calls, "{headers}: the next process asks");
    }
}

/// A file with a date in a far year, as an older version wrote it or somebody else.
fn far(work: &Workdir, id: &str, host: &str) {
    let far = 2_745_000_000_000_i64;
    let lane = json!({ "host": host, "hint_until_ms": far, "hint_seconds": 999_999_999, "hint_code": "RATE_LIMITED",
        "retry_after": true, "quota_until_ms": far, "breaker_until_ms": i64::MAX });
    std::fs::create_dir_all(work.path(".tidegate")).unwrap();
    work.write(FILE, &json!({ "version": 1, "lanes": { id: lane } }).to_string());
}

#[test]
fn a_date_in_a_far_year_is_cut_when_it_is_read() {
    let (work, server) = (bench(), service("429 Too Many Requests", "\r\nRetry-After: 60"));
    geocode(&work, &server.url(), &[]);
    let id = listed(&work, &[])[0]["id"].as_str().unwrap().to_owned();
    far(&work, &id, "geo.example");
    let lane = &listed(&work, &[])[0];
    assert_eq!(
        (&lane["is_cut_when_read"], &lane["hint"]["asked_seconds"]),
        (&json!(true), &json!(999_999_999))
    );
    let calls = server.seen().len();
    let ran = geocode(&work, &server.url(), &[]);
    assert_eq!((ran.code, server.seen().len()), (75, calls), "{}", ran.stderr);
    let not_before = ran.json()["not_before_ms"].as_i64().unwrap();
    assert!(not_before <= now_ms() + DAY_MS, "{not_before}");
    // Another lane writes the file, and leaves no such date in it.
    let other = service("429 Too Many Requests", "\r\nRetry-After: 3600");
    geocode(&work, &other.url(), &[]);
    assert!(untils(&work).iter().all(|until| *until <= now_ms() + DAY_MS), "{:?}", untils(&work));
}

#[test]
fn a_longer_wait_is_believed_where_a_person_says_so() {
    let (work, server) = (bench(), service("429 Too Many Requests", "\r\nRetry-After: 864000"));
    let printed = geocode(&work, &server.url(), &["--print-manifest"]);
    let policy = "retry_policy:\n    wait_max: 30d\n";
    let manifest = printed.stdout.replacen("retry_policy:\n", policy, 1);
    assert_ne!(manifest, printed.stdout, "{manifest}");
    work.write("m.yaml", &manifest);
    let ran: Ran = work.command(&["run", "m.yaml", "--format", "json"]).output().unwrap().into();
    assert_eq!(ran.code, 75, "{} {}", ran.stdout, ran.stderr);
    let not_before = ran.json()["not_before_ms"].as_i64().unwrap();
    assert!(not_before > now_ms() + 9 * DAY_MS, "{not_before}: {}", ran.stderr);
    assert!(untils(&work).iter().any(|until| *until > now_ms() + 9 * DAY_MS));
}

#[test]
fn what_lanes_remember_is_listed_and_forgotten() {
    let (work, server) = (bench(), service("429 Too Many Requests", "\r\nRetry-After: 3600"));
    assert!(listed(&work, &[]).is_empty());
    assert_eq!(lanes(&work, &["clear", "--all"]).code, 0);
    geocode(&work, &server.url(), &[]);
    let host = server.url().replace("http://", "");
    let [lane] = &listed(&work, &[])[..] else { panic!() };
    assert_eq!((&lane["host"], &lane["kept"]["kind"]), (&json!(host), &json!("file")));
    assert_eq!(
        (&lane["hint"]["asked_seconds"], &lane["hint"]["code"]),
        (&json!(3600), &json!("QUOTA_EXHAUSTED"))
    );
    let table = lanes(&work, &["ls"]);
    assert!(table.stdout.contains(&host) && table.stdout.contains("Retry-After: 3600"), "{}", table.stdout);
    // Another host is not concerned.
    assert!(lanes(&work, &["clear", "other.example"]).stderr.contains("no lane of other.example"));
    let calls = server.seen().len();
    geocode(&work, &server.url(), &[]);
    assert_eq!(server.seen().len(), calls);
    let cleared = lanes(&work, &["clear", &host, "--format", "json"]);
    assert_eq!(cleared.json()["cleared"][0]["host"], json!(host), "{}", cleared.stdout);
    assert!(listed(&work, &[]).is_empty());
    geocode(&work, &server.url(), &[]);
    assert!(server.seen().len() > calls, "it is asked again");
    for bad in [&["clear"][..], &["clear", "--all", &host], &["ls", "--shared", "https://u:hunter2@a.test"]] {
        let ran = lanes(&work, bad);
        assert!(ran.code == 2 && !ran.stderr.contains("hunter2"), "{bad:?}: {} {}", ran.code, ran.stderr);
    }
    work.write(FILE, "{");
    assert_eq!((lanes(&work, &["ls"]).code, lanes(&work, &["clear", &host]).code), (1, 1));
    assert_eq!((lanes(&work, &["clear", "--all"]).code, lanes(&work, &["ls"]).code), (0, 0));
}

#[test]
fn what_a_fleet_remembers_is_bounded_listed_and_forgotten() {
    let servers = ["TIDEGATE_TEST_REDIS", "TIDEGATE_TEST_DATABASE", "TIDEGATE_TEST_NATS"];
    let usual = ["redis://127.0.0.1:6379", "postgres://postgres@127.0.0.1/test", "nats://127.0.0.1:4222"];
    for (name, usual) in servers.into_iter().zip(usual) {
        let shared = std::env::var(name).unwrap_or_else(|_| usual.to_owned());
        let (work, server) = (bench(), service("429 Too Many Requests", "\r\nRetry-After: 999999999"));
        let host = server.url().replace("http://", "");
        let args = [
            "geocode",
            "in.csv",
            "--address",
            "address",
            "-o",
            "out.csv",
            "--url",
            &server.url(),
            "--format",
            "json",
        ];
        let few = ["--in-flight", "1", "--patience", "3s"];
        let run = || -> Ran {
            work.command(&[&args[..], &few].concat()).env("TIDEGATE_LANES", &shared).output().unwrap().into()
        };
        assert_eq!(run().code, 75, "{name}");
        let at = ["--shared", shared.as_str()];
        let ours = || -> Vec<Value> {
            let is_ours =
                |lane: &Value| lane["host"] == json!(host) && lane["kept"]["kind"] == json!("fleet");
            listed(&work, &at).into_iter().filter(is_ours).collect()
        };
        for lane in ours() {
            assert_eq!(lane["is_cut_when_read"], json!(false), "{name}: {lane}");
        }
        let ran = lanes(&work, &[&["clear", &host], &at[..]].concat());
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        assert!(ours().iter().all(|lane| lane["not_before"].is_null()), "{name}: {:?}", ours());
        let calls = server.seen().len();
        run();
        assert!(server.seen().len() > calls, "{name}: it is asked again");
        lanes(&work, &[&["clear", &host], &at[..]].concat());
    }
    let gone = lanes(&bench(), &["ls", "--shared", "redis://127.0.0.1:1"]);
    assert_eq!(gone.code, 75, "{}", gone.stderr);
}
