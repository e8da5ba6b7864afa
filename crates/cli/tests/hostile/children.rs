//! Programs that a run starts: of the operator's environment they get what is harmless and what was
//! named for them. The environment holds the keys of services and databases.

use std::process::Command;

use crate::canned::{Canned, json as answer};
use crate::running::Ran;
use crate::workdir::Workdir;

const SECRETS: [(&str, &str); 4] = [
    ("GEO_KEY", "planted-geo"),
    ("DATABASE_URL", "planted-db"),
    ("AWS_SECRET_ACCESS_KEY", "planted-aws"),
    ("NAMED", "planted-named"),
];

const POLICY: &str = "
  retry_policy: { max_attempts: 2, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

fn command(dir: &Workdir, args: &[&str]) -> Command {
    let mut command = dir.command(args);
    command.envs(SECRETS).env("LC_MESSAGES", "C");
    command
}

fn ran(dir: &Workdir, args: &[&str]) -> Ran {
    command(dir, args).output().unwrap().into()
}

/// What a child wrote of its environment; it has those and only those of the secrets.
fn saw(dir: &Workdir, file: &str, named: &[&str]) {
    let seen = dir.read(file);
    for (name, value) in SECRETS {
        assert_eq!(seen.contains(value), named.contains(&name), "{name} in\n{seen}");
    }
    for harmless in ["PATH=", "LC_MESSAGES=C"] {
        assert!(seen.contains(harmless), "{harmless} is not in\n{seen}");
    }
    std::fs::remove_file(dir.path(file)).unwrap();
}

/// A letter about a bow tie, and a manifest with this section of remedies.
fn bow_tie(dir: &Workdir, remedies: &str) {
    dir.write(
        "in.geojsonl",
        "{\"type\":\"Feature\",\"properties\":{\"id\":2},\"geometry\":{\"type\":\"Polygon\",\"coordinates\":[[[3,1],[4,2],[4,1],[3,2],[3,1]]]}}\n",
    );
    let parts = "  source: { file: in.geojsonl }\n  gates: [{ check: is_valid, severity: reject }]\n  sink: { file: out.gpkg, key: [id] }";
    let letters = format!("  dead_letters: {{ incident_share: 1{remedies} }}");
    dir.write("m.yaml", &format!("pipeline:\n  id: parcels\n{letters}\n{parts}{POLICY}"));
    let made = ran(dir, &["run", "m.yaml"]);
    assert_eq!(made.code, 4, "{}", made.stderr);
}

#[test]
fn a_remedy_gets_what_was_named_for_it() {
    let dir = Workdir::new();
    let rule = |env: &str| {
        format!(", remedies: [{{ rule: command, command: [sh, -c, \"env > seen; exit 1\"]{env} }}]")
    };
    bow_tie(&dir, &rule(""));
    let fix = |more: &[&str]| ran(&dir, &[&["dlq", "fix"], more].concat());
    fix(&["--manifest", "m.yaml"]);
    saw(&dir, "seen", &[]);
    bow_tie(&dir, &rule(", env: [NAMED]"));
    fix(&["--manifest", "m.yaml"]);
    saw(&dir, "seen", &["NAMED"]);
    // The same by options, and by a file of rules.
    dir.write("see.sh", "env > seen; exit 1\n");
    let by_option = ["--rule", "command", "--command", "sh see.sh", "--all"];
    fix(&by_option);
    saw(&dir, "seen", &[]);
    fix(&[&by_option[..], &["--pass-env", "NAMED", "--pass-env", "GEO_KEY"]].concat());
    saw(&dir, "seen", &["NAMED", "GEO_KEY"]);
    dir.write("rules.json", r#"[{"rule":"command","command":["sh","see.sh"],"env":["NAMED"]}]"#);
    fix(&["--rules", "rules.json", "--all"]);
    saw(&dir, "seen", &["NAMED"]);
    // What is not set is said, and nothing is started.
    let fixed = fix(&[&by_option[..], &["--pass-env", "NOT_SET_ANYWHERE", "--format", "json"]].concat());
    let told = format!("{}{}", fixed.stdout, fixed.stderr);
    let shown = ran(&dir, &["dlq", "ls", "--format", "json"]).stdout;
    assert!(!dir.path("seen").exists(), "{told}\n{shown}");
}

#[test]
fn an_alert_gets_itself_and_what_was_named_for_it() {
    let down = Canned::start(|_| answer("503 Service Unavailable", "{}"));
    let dir = Workdir::new();
    dir.write("in.csv", "id,street\n1,a\n2,b\n3,c\n");
    for (env, named) in [("", &[][..]), (", env: [NAMED]", &["NAMED"][..])] {
        let action = format!(
            "{{ command: [sh, -c, \"env > seen.new; mv seen.new seen\"], on: [first_attempt_success]{env} }}"
        );
        dir.write(
            "m.yaml",
            &format!(
                "pipeline:\n  id: addresses\n  source: {{ file: in.csv, crs: EPSG:4326 }}\n  services: {{ g: {{ profile: generic, url: \"{}\", key: env:GEO_KEY }} }}\n  steps: [{{ geocode: {{ service: g, address: [street] }} }}]\n  sink: {{ file: out.gpkg, key: [id] }}\n  dead_letters: {{ incident_share: 1 }}\n  alerts: {{ minimum_time: 0s, minimum_calls: 1, actions: [{action}] }}{POLICY}",
                down.url()
            ),
        );
        let made = ran(&dir, &["run", "m.yaml"]);
        assert!(dir.path("seen").exists(), "{} {}", made.code, made.stderr);
        assert!(dir.read("seen").contains("TIDEGATE_ALERT=first_attempt_success"), "{}", dir.read("seen"));
        saw(&dir, "seen", named);
        for gone in [".tidegate", "out.gpkg"] {
            let path = dir.path(gone);
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
    }
}

#[test]
fn a_value_in_place_of_a_name_is_refused_and_not_quoted() {
    let dir = Workdir::new();
    let parts = "  source: { file: in.csv }\n  sink: { file: out.gpkg, key: [id] }";
    for (section, says) in [
        (
            "dead_letters: { remedies: [{ rule: command, command: [a], env: [\"K=hunter2\"] }] }",
            "names of environment variables",
        ),
        (
            "dead_letters: { remedies: [{ rule: command, command: [a], env: [\"hunter2-x\"] }] }",
            "names of environment variables",
        ),
        ("alerts: { actions: [{ command: [a], env: [\"hunter2 \"] }] }", "names of environment variables"),
        ("alerts: { actions: [{ webhook: \"http://127.0.0.1:9\", env: [GEO_KEY] }] }", "without `command`"),
        ("dead_letters: { remedies: [{ rule: make_valid, env: [GEO_KEY] }] }", "does not support `env`"),
    ] {
        dir.write("m.yaml", &format!("pipeline:\n  id: x\n  {section}\n{parts}{POLICY}"));
        let checked = ran(&dir, &["validate", "m.yaml"]);
        assert_eq!(checked.code, 2, "{section}: {}", checked.stdout);
        assert!(checked.stderr.contains(says), "{section}: {}", checked.stderr);
        assert!(!checked.stderr.contains("hunter2"), "{section}: {}", checked.stderr);
    }
}

/// The environment of the first process whose parent is this one.
#[cfg(target_os = "linux")]
fn environment_of_child(parent: u32) -> String {
    let parent = format!("PPid:\t{parent}");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line == parent) {
            let bytes = std::fs::read(entry.path().join("environ")).unwrap();
            return String::from_utf8_lossy(&bytes).replace('\0', "\n");
        }
    }
    panic!("no process has {parent}");
}

#[cfg(all(target_os = "linux", debug_assertions))]
#[test]
fn the_process_that_tries_records_gets_what_its_manifest_names() {
    let dir = Workdir::new();
    dir.write("in.csv", "id,v\n1,1\n2,2\n3,3\n");
    dir.write(
        "m.yaml",
        &format!(
            "pipeline:\n  id: x\n  source: {{ file: in.csv, crs: EPSG:4326 }}\n  services: {{ g: {{ profile: generic, url: \"http://127.0.0.1:9\", key: env:GEO_KEY }} }}\n  steps: [{{ coerce: {{ fields: {{ v: int }} }} }}]\n  sink: {{ file: out.gpkg, key: [id] }}\n  dead_letters: {{}}{POLICY}"
        ),
    );
    // Two deaths at the same record.
    for resume in [&["run", "m.yaml"][..], &["run", "m.yaml", "--resume"]] {
        let died = command(&dir, resume).env("TIDEGATE_CRASH", "record:1").output().unwrap();
        assert_eq!(died.status.code(), None, "{}", String::from_utf8_lossy(&died.stderr));
    }
    let hold = format!("record:1={}", dir.path("gate").display());
    let mut run = command(&dir, &["run", "m.yaml", "--resume"]).env("TIDEGATE_HOLD", hold).spawn().unwrap();
    while !dir.path("gate.here").exists() {
        assert!(run.try_wait().unwrap().is_none(), "it did not come to the record");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let seen = environment_of_child(run.id());
    std::fs::write(dir.path("gate"), "").unwrap();
    let ended: Ran = run.wait_with_output().unwrap().into();
    assert!(seen.contains("planted-geo") && seen.contains("PATH="), "{seen}");
    // AWS_ is for the object stores of the manifest.
    assert!(!seen.contains("planted-db") && !seen.contains("planted-named"), "{seen}");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
