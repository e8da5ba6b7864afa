//! One parser of references: every option of every command that takes the address of a store, a queue, a
//! database, a fleet or a key reads `env:NAME` and `file:PATH`, refuses what only looks like one, and quotes
//! nothing of what it refuses. The options are those that the binary itself lists.

use std::collections::BTreeSet;

use crate::running::Ran;
use crate::workdir::Workdir;

/// A part of every refused value; it must never be printed.
const CANARY: &str = "S3CR3Tcanary";

fn run(dir: &Workdir, words: &[&str]) -> Ran {
    dir.command(words).env("NO_COLOR", "1").output().unwrap().into()
}

/// An option as the help shows it.
#[derive(Debug)]
struct Listed {
    /// The words of its command.
    command: Vec<String>,
    option: String,
    value: String,
    help: String,
}

/// Every option with a value of every command.
fn listed(dir: &Workdir, command: &[&str], found: &mut Vec<Listed>) {
    let help = run(dir, &[command, &["--help"]].concat());
    assert_eq!(help.code, 0, "{command:?}: {}", help.stderr);
    let (mut section, mut subs) = ("", Vec::new());
    for line in help.stdout.lines() {
        if !line.starts_with(' ') {
            section = line;
            continue;
        }
        let words = line.trim();
        if section == "Commands:" && line.starts_with("  ") && !line.starts_with("   ") {
            subs.extend(words.split_whitespace().next().filter(|name| *name != "help"));
        }
        let option = words.split_whitespace().find(|word| word.starts_with("--"));
        let is_head = words.starts_with('-');
        match (option, words.split_once('<').and_then(|(_, rest)| rest.split_once('>'))) {
            (Some(option), Some((value, rest))) if is_head => found.push(Listed {
                command: command.iter().map(ToString::to_string).collect(),
                option: option.to_owned(),
                value: value.to_owned(),
                help: rest.trim().to_owned(),
            }),
            _ if !is_head => {
                if let Some(last) = found.last_mut().filter(|last| last.command == command) {
                    last.help = format!("{} {words}", last.help);
                }
            }
            _ => {}
        }
    }
    for sub in subs {
        listed(dir, &[command, &[sub]].concat(), found);
    }
}

/// Whether it takes an address or a key.
fn is_address(option: &Listed) -> bool {
    let others = [("audit show", "--key"), ("store put", "--as"), ("submit", "--key")];
    let command = option.command.join(" ");
    let is_other = others.contains(&(command.as_str(), option.option.as_str()));
    let values = ["STORE", "PLACE", "SERVER", "URL", "REF", "QUEUE", "DATABASE", "FILE|URL"];
    let options =
        ["--store", "--queue", "--dead-letters", "--anchor", "--shared", "--url", "--endpoint", "--sink"];
    !is_other && (values.contains(&option.value.as_str()) || options.contains(&option.option.as_str()))
}

#[test]
fn every_option_refuses_what_only_looks_like_a_reference_and_quotes_nothing() {
    let dir = Workdir::new();
    let mut found = Vec::new();
    listed(&dir, &[], &mut found);
    assert!(found.len() > 200, "{}", found.len());
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    for option in &found {
        let command: Vec<&str> = option.command.iter().map(String::as_str).collect();
        // No option of any kind takes a URL with a credential.
        let mut bad = vec![
            format!("https://user:{CANARY}@127.0.0.1:1/"),
            format!("https://127.0.0.1:1/?token={CANARY}"),
        ];
        if is_address(option) {
            seen.insert(option.option.clone());
            bad.extend(["ENV:", "Env:", "env:a ", "env:a-", "FILE:"].map(|start| format!("{start}{CANARY}")));
            bad.extend([
                format!("redis://:{CANARY}@127.0.0.1:1/0"),
                format!("postgres://u:{CANARY}@127.0.0.1:1/d"),
            ]);
        }
        if option.value == "REF" {
            bad.extend([format!("0123456789abcdef{CANARY}"), CANARY.to_owned()]);
        }
        for value in bad {
            let joined = format!("{}={value}", option.option);
            let words = [&command[..], &[joined.as_str()]].concat();
            let ran = run(&dir, &words);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            if ran.code != 2 || said.contains(CANARY) || !dir.files().is_empty() {
                faults.push(format!("{words:?} ended with {}: {said} {:?}", ran.code, dir.files()));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    // If the help is written in another way, this test must not become empty.
    for option in [
        "--store",
        "--dead-letters",
        "--anchor",
        "--to",
        "--shared",
        "--key",
        "--endpoint",
        "--url",
        "--sink",
    ] {
        assert!(seen.contains(option), "{option} was not tried: {seen:?}");
    }
}

#[test]
fn what_is_not_an_option_is_held_to_the_same_rule() {
    let dir = Workdir::new();
    let web = format!("https://user:{CANARY}@127.0.0.1:1/a.tif");
    let signed = format!("https://127.0.0.1:1/a.tif?sig={CANARY}");
    for value in [&web, &signed] {
        for words in [
            &["fetch", value, "-o", "out.gpkg"][..],
            &["init", value],
            &["raster", "info", value],
            &["raster", "warp", value, "out.tif"],
            &["store", "ls", value],
            &["convert", value, "out.gpkg"],
        ] {
            let ran = run(&dir, words);
            assert!(ran.code == 2 && !ran.stderr.contains(CANARY), "{words:?}: {} {}", ran.code, ran.stderr);
            assert!(ran.stderr.contains("env:NAME"), "it says what to write: {}", ran.stderr);
        }
    }
    // A path is no reference, and does not become a file of that name.
    dir.write("in.geojson", r#"{"type":"FeatureCollection","features":[]}"#);
    for words in [
        &["convert", "in.geojson", "env:OUT"][..],
        &["convert", "in.geojson", "file:out.gpkg"],
        &["geocode", "in.csv", "--address", "a", "-o", "env:OUT"],
        &["run", "ENV:MANIFEST"],
        &["keys", "audit", "--key", "env:KEY"],
        &["keys", "generate", "--key", "env:KEY", "--store", "letters.db"],
        &["store", "ls", "env:STORE"],
    ] {
        let ran = run(&dir, words);
        assert_eq!((ran.code, dir.files().len()), (2, 1), "{words:?}: {} {:?}", ran.stderr, dir.files());
    }
}

/// The URL of the tests' database, with a password that it does not ask for.
fn database(schema: &str) -> String {
    let url = std::env::var("TIDEGATE_TEST_DATABASE")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".to_owned());
    let mut url = url::Url::parse(&url).unwrap();
    url.set_password(Some(CANARY)).unwrap();
    url.query_pairs_mut().append_pair("schema", schema);
    url.into()
}

#[test]
fn a_store_by_reference_is_the_store_in_every_command() {
    for scheme in ["env", "file"] {
        let dir = Workdir::new();
        let schema = format!("hostile_references_{scheme}_{}", std::process::id());
        let url = database(&schema);
        dir.write("url", &format!("{url}\n"));
        let store = if scheme == "env" { "env:LETTERS_URL" } else { "file:url" };
        let ran = |words: &[&str], code: i32| -> Ran {
            let ran: Ran = dir.command(words).env("LETTERS_URL", &url).output().unwrap().into();
            assert_eq!(ran.code, code, "{words:?}: {} {}", ran.stdout, ran.stderr);
            for said in [&ran.stdout, &ran.stderr] {
                assert!(!said.contains(CANARY), "{words:?}: {said}");
            }
            ran
        };
        ran(&["keys", "generate", "--key", "k", "--store", store], 0);
        // It was sealed there, and nothing here: no file of that name.
        let again = ran(&["keys", "generate", "--key", "k", "--store", store], 2);
        assert!(again.stderr.contains(&format!("--store {store}")), "{}", again.stderr);
        dir.write("letter.geojson", r#"{"type":"Feature","geometry":null,"properties":{"id":1}}"#);
        let put = [
            "dlq",
            "put",
            "--pipeline",
            "p",
            "--code",
            "TIMEOUT",
            "--message",
            "m",
            "--payload",
            "letter.geojson",
        ];
        ran(&[&put[..], &["--store", store]].concat(), 0);
        let listed = ran(&["dlq", "ls", "--store", store, "--format", "json"], 0);
        assert_eq!(listed.json().as_array().unwrap().len(), 1);
        let id = listed.json()[0]["id"].as_str().unwrap().to_owned();
        ran(&["dlq", "show", &id, "--store", store, "--key", "file:k", "--reveal", "test"], 0);
        ran(&["dlq", "show", &id, "--store", store, "--key", "k", "--reveal", "test"], 0);
        ran(&["audit", "verify", "--store", store], 0);
        ran(&["audit", "show", "--store", store], 0);
        ran(&["audit", "anchor", "--store", store, "--to", "heads"], 0);
        ran(&["audit", "verify", "--store", store, "--anchor", "file:heads"], 2);
        ran(&["keys", "rotate", "--key", "k", "--store", store], 0);
        ran(&["doctor", "--store", store], 0);
        let own: BTreeSet<String> = dir
            .files()
            .iter()
            .map(|file| file.strip_prefix(dir.root()).unwrap().display().to_string())
            .collect();
        assert!(!own.iter().any(|name| name.contains("LETTERS") || name.contains("file:")), "{own:?}");
        let client = std::env::var("TIDEGATE_TEST_DATABASE")
            .unwrap_or_else(|_| "postgres://postgres@127.0.0.1/test".to_owned());
        let mut client = postgres::Client::connect(&client, postgres::NoTls).unwrap();
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).unwrap();
    }
}

#[test]
fn a_reference_that_cannot_be_fetched_is_named_and_makes_nothing() {
    let dir = Workdir::new();
    for words in [
        &["keys", "generate", "--key", "k"][..],
        &["keys", "rotate", "--key", "k"],
        &["dlq", "ls"],
        &["audit", "verify"],
        &["audit", "show"],
    ] {
        for store in ["env:NOT_SET_ANYWHERE", "file:not-there"] {
            let ran = run(&dir, &[words, &["--store", store]].concat());
            let name = store.split_once(':').unwrap().1;
            assert!(
                ran.code == 2 && ran.stderr.contains(name),
                "{words:?} {store}: {} {}",
                ran.code,
                ran.stderr
            );
            assert!(dir.files().is_empty(), "{words:?} {store}: {:?}", dir.files());
        }
    }
    let ran = run(&dir, &["serve", "--dead-letters", "env:NOT_SET_ANYWHERE"]);
    assert!(ran.code == 2 && ran.stderr.contains("NOT_SET_ANYWHERE"), "{}", ran.stderr);
    let ran = run(&dir, &["lanes", "ls", "--shared", "env:NOT_SET_ANYWHERE"]);
    assert!(ran.code == 2 && ran.stderr.contains("NOT_SET_ANYWHERE"), "{}", ran.stderr);
    // What is no file may be the key itself.
    dir.write("letter.geojson", "{}");
    let put = [
        "dlq",
        "put",
        "--pipeline",
        "p",
        "--code",
        "TIMEOUT",
        "--message",
        "m",
        "--payload",
        "letter.geojson",
    ];
    let ran = run(&dir, &[&put[..], &["--store", "l.db", "--key", &format!("0123{CANARY}")]].concat());
    assert!(ran.code == 2 && !ran.stderr.contains(CANARY), "{} {}", ran.code, ran.stderr);
}

const POLICY: &str = "  retry_policy: { max_attempts: 1, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

/// A manifest in which one key has this value, for every key that holds an address or a key.
const PLACES: [(&str, &str); 26] = [
    (
        "source.queue",
        "source: { queue: \"@\", tasks: { fields: { id: int } } }\n  sink: { file: o.gpkg, mode: append }",
    ),
    ("dead_letters.store", "dead_letters: { store: \"@\" }"),
    ("dead_letters.also", "dead_letters: { also: \"@\" }"),
    ("dead_letters.archive", "dead_letters: { archive: \"@\" }"),
    ("dead_letters.key", "dead_letters: { key: \"@\" }"),
    ("sink.postgis.url", "source: { file: a.csv }\n  sink: { postgis: { url: \"@\", table: t } }"),
    ("source.postgis.url", "source: { postgis: { url: \"@\", table: t } }\n  sink: { file: o.csv }"),
    ("lanes", "lanes: \"@\""),
    ("lanes.url", "lanes: { url: \"@\" }"),
    ("audit.key", "audit: { key: \"@\" }"),
    ("audit.copy", "audit: { copy: \"@\" }"),
    ("services.url", "services: { s: { url: \"@\" } }"),
    ("services.key", "services: { s: { url: \"http://h\", key: \"@\" } }"),
    ("services.profiles", "services: { s: { url: \"http://h\", profiles: \"@\" } }"),
    // A service may have the name of a section.
    ("services.lanes.url", "services: { lanes: { url: \"@\" } }"),
    ("services.default.url", "services: { default: { url: \"@\" } }"),
    ("services.postgis.url", "services: { postgis: { url: \"@\" } }"),
    ("alerts.webhook", "alerts: { actions: [{ webhook: \"@\" }] }"),
    ("alerts.key", "alerts: { actions: [{ webhook: \"http://h\", key: \"@\" }] }"),
    ("source.file", "source: { file: \"@\" }\n  sink: { file: o.csv }"),
    ("source.rasters", "source: { rasters: [\"@\"] }\n  sink: { file: o.csv }"),
    ("sink.file", "source: { file: a.csv }\n  sink: { file: \"@\" }"),
    ("store.endpoint", "source: { file: s3://b/a.csv, store: { endpoint: \"@\" } }\n  sink: { file: o.csv }"),
    (
        "store.sas_token",
        "source: { file: az://b/a.csv, store: { sas_token: \"@\" } }\n  sink: { file: o.csv }",
    ),
    (
        "store.service_account",
        "source: { file: gs://b/a.csv, store: { service_account: \"@\" } }\n  sink: { file: o.csv }",
    ),
    (
        "store.access_key",
        "source: { file: s3://b/a.csv, store: { access_key: \"@\" } }\n  sink: { file: o.csv }",
    ),
];

#[test]
fn a_manifest_holds_no_credential_and_no_broken_reference_in_any_place() {
    let dir = Workdir::new();
    let bad = [
        format!("https://user:{CANARY}@127.0.0.1:1/x"),
        format!("https://127.0.0.1:1/x?TOKEN={CANARY}"),
        format!("postgres://user:{CANARY}@127.0.0.1:1/x"),
        format!("redis://:{CANARY}@127.0.0.1:1/x"),
        format!("nats://{CANARY}@127.0.0.1:1/x"),
        format!("ENV:{CANARY}"),
        format!("env:no name {CANARY}"),
        format!("File:{CANARY}"),
    ];
    for (place, parts) in PLACES {
        for value in &bad {
            // As it is, and through a variable of the environment.
            for (written, words) in [
                (value.as_str(), &["validate", "m.yaml", "--format", "json"][..]),
                ("${PLANTED}", &["run", "m.yaml"]),
            ] {
                let text = format!("pipeline:\n  id: p\n{POLICY}  {}\n", parts.replace('@', written));
                dir.write("m.yaml", &text);
                let ran: Ran = dir.command(words).env("PLANTED", value).output().unwrap().into();
                let said = format!("{}{}", ran.stdout, ran.stderr);
                assert_eq!(ran.code, 2, "{place}: {value}: {words:?}: {said}");
                assert!(!said.contains(CANARY), "{place}: {value}: {words:?}: {said}");
                assert_eq!(dir.files().len(), 1, "{place}: {value}: {:?}: {said}", dir.files());
            }
        }
    }
}

#[test]
fn a_command_and_a_request_of_a_manifest_hold_no_credential_either() {
    let dir = Workdir::new();
    for parts in [
        "alerts: { actions: [{ command: [curl, \"@\"] }] }",
        "dead_letters: { remedies: [{ rule: command, command: [curl, \"@\"] }] }",
        "source: { file: a.csv }\n  services: { s: { url: \"http://h\" } }\n  steps: [{ http: { service: s, path: \"/x?key=S3CR3Tcanary\", take: { a: /a } } }]\n  sink: { file: o.csv }",
    ] {
        let parts = parts.replace('@', &format!("https://user:{CANARY}@127.0.0.1:1/x"));
        dir.write("m.yaml", &format!("pipeline:\n  id: p\n{POLICY}  {parts}\n"));
        let ran = run(&dir, &["validate", "m.yaml"]);
        assert!(ran.code == 2 && !ran.stderr.contains(CANARY), "{parts}: {} {}", ran.code, ran.stderr);
    }
    // A constant is data, and a placeholder is filled in from a record.
    dir.write(
        "m.yaml",
        &format!(
            "pipeline:\n  id: p\n{POLICY}  source: {{ file: a.csv }}\n  services: {{ s: {{ url: \"http://h\" }} }}\n  steps:\n    - constant: {{ link: \"https://h/?key=public\" }}\n    - http: {{ service: s, path: \"/x?key={{id}}\", take: {{ a: /a }} }}\n  sink: {{ file: o.csv }}\n"
        ),
    );
    let ran = run(&dir, &["validate", "m.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn the_lines_around_another_mistake_do_not_show_a_credential() {
    let dir = Workdir::new();
    for broken in ["  nonsense: 1", "  id: [", "\tx: 1"] {
        dir.write(
            "m.yaml",
            &format!("pipeline:\n  lanes: redis://:{CANARY}@h/0\n{broken}\n  audit: {{ copy: \"https://h/?token={CANARY}\" }}\n"),
        );
        for words in [&["validate", "m.yaml"][..], &["run", "m.yaml"], &["plan", "m.yaml"]] {
            let ran = run(&dir, words);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(ran.code == 2 && !said.contains(CANARY), "{broken}: {words:?}: {said}");
        }
    }
}
