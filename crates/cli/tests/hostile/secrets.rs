//! A run with planted secrets, and everything that it leaves behind: no artefact holds one of them, in
//! clear, percent-encoded, or as base64. The service quotes what it was sent, and the database and the
//! webhook fail, because errors are where secrets come to light.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::canned::{Canned, json};
use crate::running::Ran;
use crate::workdir::Workdir;

/// What must not be found, by what it is.
struct Planted(BTreeMap<&'static str, Vec<u8>>);

impl Planted {
    /// Each secret in every spelling; `user:secret` as HTTP sends it, too.
    fn of(secrets: &[(&'static str, &str)]) -> Planted {
        let mut all = BTreeMap::new();
        for (name, secret) in secrets {
            all.insert(*name, secret.as_bytes().to_owned());
        }
        Planted(all)
    }

    /// The spellings of a secret.
    fn spellings(secret: &[u8]) -> Vec<Vec<u8>> {
        let text = String::from_utf8(secret.to_owned()).unwrap();
        let percent = |upper: bool| -> String {
            let hex = |b: u8| if upper { format!("%{b:02X}") } else { format!("%{b:02x}") };
            text.bytes()
                .map(|b| {
                    if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) {
                        char::from(b).to_string()
                    } else {
                        hex(b)
                    }
                })
                .collect()
        };
        let users = ["", "planter:", ":", "postgres:"];
        let encoded = users.map(|user| BASE64_STANDARD.encode(format!("{user}{text}")).into_bytes());
        let mut all = vec![secret.to_owned(), percent(true).into_bytes(), percent(false).into_bytes()];
        // Without its end, which depends on what follows.
        all.extend(encoded.into_iter().map(|code| code[..code.len() / 4 * 4 - 4].to_owned()));
        all
    }

    /// Which secret a text holds.
    fn found_in(&self, bytes: &[u8]) -> Option<&'static str> {
        let holds = |secret: &[u8]| {
            let spelled = Planted::spellings(secret);
            spelled.iter().any(|one| bytes.windows(one.len()).any(|part| part == one))
        };
        self.0.iter().find(|(_, secret)| holds(secret)).map(|(name, _)| *name)
    }
}

#[test]
fn the_search_finds_every_spelling() {
    let planted = Planted::of(&[("it", "pl/anted+secret")]);
    for text in [
        "a pl/anted+secret b",
        "pl%2Fanted%2Bsecret",
        "pl%2fanted%2bsecret",
        &BASE64_STANDARD.encode("planter:pl/anted+secret"),
    ] {
        assert_eq!(planted.found_in(text.as_bytes()), Some("it"), "{text}");
    }
    assert_eq!(planted.found_in(b"planted"), None);
}

/// The database of the tests, with a user's password that it does not ask for.
fn database(password: &str, port: Option<u16>) -> url::Url {
    let url = std::env::var("TIDEGATE_TEST_DATABASE")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".to_owned());
    let mut url = url::Url::parse(&url).unwrap();
    url.set_password(Some(password)).unwrap();
    if let Some(port) = port {
        url.set_port(Some(port)).unwrap();
    }
    url
}

const HEADER: &str = "header/key+8f3a91";
const QUERY: &str = "query&key=71bc02x";
const DATABASE: &str = "data/base+pw33e1";
const QUEUE: &str = "queue:pw@55d0aa";
const HOOK: &str = "T0AB12/B0CD34/hookSecret99";
const HOOK_KEY: &str = "hook-bearer-c0ffee";
const LANES: &str = "lanes%pw/77aa21";

fn all() -> Planted {
    Planted::of(&[
        ("the key in the header", HEADER),
        ("the key in the query", QUERY),
        ("the password of the database", DATABASE),
        ("the password of the queue", QUEUE),
        ("the path of the webhook", HOOK),
        ("the key of the webhook", HOOK_KEY),
        ("the password of the lanes", LANES),
    ])
}

/// A directory with everything planted, and the environment that the references name.
struct Scene {
    dir: Workdir,
    env: Vec<(&'static str, String)>,
    schema: String,
    ran: u32,
}

impl Scene {
    fn new(name: &str, server: &Canned, collector: &Canned) -> Scene {
        let dir = Workdir::new();
        let schema = format!("hostile_secrets_{name}_{}", std::process::id());
        let mut queue = database(QUEUE, None);
        queue.query_pairs_mut().append_pair("queue", &schema);
        std::fs::create_dir(dir.path("held")).unwrap();
        dir.write("held/query", &format!("{QUERY}\n"));
        let env = vec![
            ("HEADER_KEY", HEADER.to_owned()),
            ("DATABASE_URL", database(DATABASE, None).into()),
            ("GONE_URL", database(DATABASE, Some(1)).into()),
            ("QUEUE_URL", queue.into()),
            ("HOOK_URL", format!("{}/services/{HOOK}", server.url())),
            ("HOOK_KEY", HOOK_KEY.to_owned()),
            (
                "LANES_URL",
                format!("redis://:{}@127.0.0.1:1/0", LANES.replace('%', "%25").replace('/', "%2F")),
            ),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ];
        Scene { dir, env, schema, ran: 0 }
    }

    /// Runs the binary with its log at debug, and keeps what it says as a file.
    fn run(&mut self, words: &[&str]) -> Ran {
        self.say(words, &["--log", "json", "--log-level", "debug"])
    }

    fn say(&mut self, words: &[&str], log: &[&str]) -> Ran {
        let mut command: Command = self.dir.command(words);
        command.args(log);
        for (name, value) in &self.env {
            command.env(name, value);
        }
        let ran: Ran = command.output().unwrap().into();
        self.ran += 1;
        let text = format!("{words:?}\n{}\n{}", ran.stdout, ran.stderr);
        self.dir.write(&format!("said-{}.txt", self.ran), &text);
        ran
    }

    fn ends(&mut self, words: &[&str], code: i32) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, code, "{words:?}: {}\n{}", ran.stdout, ran.stderr);
        ran
    }

    /// Every artefact with a secret in it.
    fn leaks(&self, planted: &Planted) -> Vec<String> {
        let held = self.dir.path("held");
        let own = self.dir.files().into_iter().filter(|file| !file.starts_with(&held));
        own.filter_map(|file| {
            let found = planted.found_in(&std::fs::read(&file).unwrap())?;
            let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
            let secret = String::from_utf8_lossy(&planted.0[found]).into_owned();
            let line = text.lines().find(|line| line.contains(&secret)).unwrap_or_default().to_owned();
            Some(format!(
                "{} holds {found}: {line:.400}",
                file.strip_prefix(self.dir.root()).unwrap().display()
            ))
        })
        .collect()
    }

    fn has(&self, name: &str) -> bool {
        Path::new(&self.dir.path(name)).exists()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Ok(mut client) = postgres::Client::connect(
            &std::env::var("TIDEGATE_TEST_DATABASE")
                .unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".to_owned()),
            postgres::NoTls,
        ) {
            let _ = client.batch_execute(&format!("DROP SCHEMA IF EXISTS {0} CASCADE", self.schema));
        }
    }
}

const POLICY: &str = "  retry_policy: { max_attempts: 2, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
  circuit_breaker: { minimum_calls: 100000 }
";

fn manifest(id: &str, server: &str, schema: &str, parts: &str) -> String {
    format!(
        "pipeline:
  id: {id}
{POLICY}  source: {{ file: in.csv, crs: \"EPSG:4326\", patience: 5s }}
  services:
    header: {{ url: \"{server}/header\", key: \"env:HEADER_KEY\", requests_per_second: 10000 }}
    query: {{ url: \"{server}/query\", profile: generic, key: \"file:held/query\", requests_per_second: 10000 }}
  steps:
    - http: {{ service: header, path: \"/{{id}}\", take: {{ a: /name }} }}
    - http: {{ service: query, path: \"/{{id}}\", take: {{ b: /name }} }}
  sink: {{ postgis: {{ url: \"env:DATABASE_URL\", schema: \"{schema}\", table: {id} }}, key: [id] }}
  dead_letters: {{ incident_share: 1, key: \"file:held/letters.key\" }}
  alerts:
    minimum_time: 0s
    minimum_calls: 1
    actions:
      - {{ webhook: \"env:HOOK_URL\", key: \"env:HOOK_KEY\", on: [first_attempt_success] }}
      - {{ command: [sh, -c, \"cat /proc/$$/cmdline /proc/$PPID/cmdline > cmdlines\"], on: [first_attempt_success] }}
{parts}"
    )
}

/// Quotes what it was sent in every error, as some services do.
fn quoting() -> Canned {
    Canned::start(|head| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let quoted = serde_json::json!({ "error": head }).to_string();
        let last = path.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        match last {
            _ if path.starts_with("/services") => json("500 Broken", &quoted),
            "later" => json("429 Too Many Requests\r\nRetry-After: 80000", &quoted),
            "3" | "13" => json("400 Bad Request", &quoted),
            "4" => json("503 Busy", &quoted),
            "5" => format!("302 Found\r\nLocation: http://127.0.0.2:1{path}\r\n\r\n{quoted}"),
            _ => json("200 OK", r#"{"name":"x"}"#),
        }
    })
}

#[test]
fn no_artefact_of_a_run_holds_a_secret() {
    let (server, collector) = (quoting(), Canned::start(|_| json("200 OK", "{}")));
    let mut scene = Scene::new("run", &server, &collector);
    let mut client = postgres::Client::connect(database("x", None).as_str(), postgres::NoTls).unwrap();
    client.batch_execute(&format!("CREATE SCHEMA {}", scene.schema)).unwrap();
    let rows: String = (0..40).map(|id| format!("{id},{id}\n")).collect();
    scene.dir.write("in.csv", &format!("id,area\n{rows}"));
    let text = manifest("planted", &server.url(), &scene.schema, "");
    scene.dir.write("m.yaml", &text);
    scene.ends(&["keys", "generate", "--key", "held/letters.key", "--store", ".tidegate/letters.db"], 0);
    scene.ends(&["validate", "m.yaml"], 0);
    scene.ends(&["plan", "m.yaml"], 0);
    scene.run(&["doctor", "m.yaml"]);
    let run = ["run", "m.yaml", "--metrics", "127.0.0.1:0", "--report", "report.html", "--format", "json"];
    let ran = scene.ends(&run, 4);
    assert!(ran.count("matched") > 30, "{}", ran.stdout);
    assert!(scene.has("cmdlines"), "the alert fired: {}", ran.stderr);
    assert!(server.seen().iter().any(|head| head.contains(HEADER)), "the key was sent");
    assert!(server.seen().iter().any(|head| head.starts_with("POST /services/")), "the webhook was called");
    // Whatever shows the letters, the audit and the state.
    for words in [
        &["dlq", "ls"][..],
        &["dlq", "stats"],
        &["dlq", "export", "-o", "dead.geojson", "--key", "held/letters.key"],
        &["audit", "show"],
        &["audit", "verify"],
        &["lanes", "ls"],
    ] {
        scene.run(words);
    }
    // What goes wrong at the database, and at lanes that are not there.
    let gone = text.replace("env:DATABASE_URL", "env:GONE_URL").replace("id: planted", "id: gone");
    scene.dir.write("gone.yaml", &gone);
    scene.ends(&["run", "gone.yaml"], 75);
    scene.run(&["doctor", "gone.yaml"]);
    scene.dir.write(
        "lanes.yaml",
        &format!("{text}  lanes: {{ url: \"env:LANES_URL\", when_unreachable: share }}\n")
            .replace("id: planted", "id: lanes"),
    );
    scene.run(&["run", "lanes.yaml"]);
    scene.ends(&["lanes", "ls", "--shared", "env:LANES_URL"], 75);
    // Options instead of a manifest.
    scene.dir.write("places.csv", "address\na\nb\n");
    let url = server.url();
    scene.run(&[
        "geocode",
        "places.csv",
        "--address",
        "address",
        "--url",
        &url,
        "--key",
        "file:held/query",
        "-o",
        "o.csv",
    ]);
    let template = format!("{url}/query/13?q={{address}}&token={{key}}");
    scene.run(&[
        "geocode",
        "places.csv",
        "--address",
        "address",
        "--url",
        &template,
        "--key",
        "env:HEADER_KEY",
        "-o",
        "p.csv",
    ]);
    scene.run(&[
        "fetch",
        &format!("{url}/header/13"),
        "--profile",
        "ogcapi",
        "--layer",
        "x",
        "--key",
        "env:HEADER_KEY",
        "-o",
        "q.gpkg",
    ]);
    let later = format!("{url}/later?q={{address}}&token={{key}}");
    let words = ["geocode", "places.csv", "--address", "address", "--url", &later, "--key", "env:HEADER_KEY"];
    scene.ends(&[&words[..], &["-o", "r.csv"]].concat(), 75);
    // The words for people are others than those of the log.
    let ran = scene.say(&[&words[..], &["-o", "r.csv"]].concat(), &[]);
    assert!(ran.code == 75 && ran.stderr.contains("--resume"), "it says how to go on: {}", ran.stderr);
    for (at, pushed) in collector.asked().iter().enumerate() {
        std::fs::write(
            scene.dir.path(&format!("pushed-{at}")),
            [pushed.head.as_bytes(), &pushed.body].concat(),
        )
        .unwrap();
    }
    assert!(!collector.asked().is_empty(), "something was pushed");
    let leaks = scene.leaks(&all());
    assert!(leaks.is_empty(), "{} artefacts:\n{}", leaks.len(), leaks.join("\n"));
}

#[test]
fn no_artefact_of_a_worker_holds_a_secret() {
    let (server, collector) = (quoting(), Canned::start(|_| json("200 OK", "{}")));
    let mut scene = Scene::new("worker", &server, &collector);
    let mut client = postgres::Client::connect(database("x", None).as_str(), postgres::NoTls).unwrap();
    client.batch_execute(&format!("CREATE SCHEMA {}", scene.schema)).unwrap();
    let text = manifest("tasks", &server.url(), &scene.schema, "").replace(
        "source: { file: in.csv, crs: \"EPSG:4326\", patience: 5s }",
        "source: { queue: \"env:QUEUE_URL\", crs: \"EPSG:4326\", tasks: { fields: { id: int } } }",
    );
    let text = text.replace("dead_letters: {", "dead_letters: { also: \"env:QUEUE_URL\",");
    scene.dir.write("m.yaml", &text);
    let tasks: String = (0..8)
        .map(|id| format!("{{\"kind\":\"tasks\",\"key\":\"t{id}\",\"payload\":{{\"type\":\"Feature\",\"geometry\":null,\"properties\":{{\"id\":{id}}}}}}}\n"))
        .collect();
    scene.dir.write("tasks.jsonl", &tasks);
    scene.ends(&["validate", "m.yaml"], 0);
    let ran = scene.run(&["submit", "m.yaml", "--tasks", "tasks.jsonl"]);
    assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    scene.run(&["queue", "lag", "m.yaml"]);
    scene.run(&["queue", "ls", "m.yaml"]);
    let ran = scene.run(&["worker", "m.yaml", "--once", "--format", "json"]);
    assert!([0, 4, 5].contains(&ran.code), "{} {} {}", ran.code, ran.stdout, ran.stderr);
    scene.run(&["doctor", "m.yaml"]);
    // A queue that is not there.
    let gone = database(QUEUE, Some(1)).to_string();
    for (name, value) in &mut scene.env {
        if *name == "QUEUE_URL" {
            value.clone_from(&gone);
        }
    }
    for words in [
        &["worker", "m.yaml", "--once"][..],
        &["submit", "m.yaml", "--tasks", "tasks.jsonl", "--resubmit"],
        &["queue", "lag", "m.yaml"],
    ] {
        let ran = scene.run(words);
        assert_ne!(ran.code, 0, "{words:?}: {}", ran.stderr);
    }
    let leaks = scene.leaks(&all());
    assert!(leaks.is_empty(), "{} artefacts:\n{}", leaks.len(), leaks.join("\n"));
}
