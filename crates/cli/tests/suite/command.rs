//! The command itself: help, version, shells, pages, pipes, colour.

use crate::common::tidegate;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const VERBS: [&str; 28] = [
    "init",
    "plan",
    "run",
    "serve",
    "worker",
    "submit",
    "queue",
    "validate",
    "schema",
    "simulate",
    "fetch",
    "geocode",
    "convert",
    "inspect",
    "check",
    "raster",
    "demo",
    "deploy",
    "chaos",
    "profiles",
    "store",
    "dlq",
    "audit",
    "doctor",
    "keys",
    "lanes",
    "completions",
    "man",
];

#[test]
fn every_verb_has_help_with_examples() {
    let all = tidegate(&["--help"]);
    assert_eq!((all.code, all.stderr.as_str()), (0, ""));
    for verb in VERBS {
        assert!(all.stdout.contains(&format!("\n  {verb}")), "--help does not list {verb}");
        let help = tidegate(&[verb, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""));
        assert!(help.stdout.contains(&format!("Examples:\n  tidegate {verb}")), "{}", help.stdout);
    }
    // `help` itself is the only verb that the list above does not name.
    let listed =
        all.stdout.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap().trim().lines().count();
    assert_eq!(listed, VERBS.len() + 1, "a verb is missing from this test:\n{}", all.stdout);
}

#[test]
fn version_is_one_line_of_data() {
    let ran = tidegate(&["--version"]);
    assert_eq!((ran.code, ran.stdout), (0, format!("tidegate {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn wrong_usage_is_two_and_says_so_on_stderr() {
    for args in [
        &[][..],
        &["validate"],
        &["validat", "x"],
        &["schema", "--colour"],
        &["completions", "ed"],
        &["man", "x"],
    ] {
        let ran = tidegate(args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
        assert_ne!(ran.stderr, "", "{args:?}");
    }
    assert!(tidegate(&["validat", "x"]).stderr.contains("'validate'"), "no suggestion");
}

#[test]
fn schema_is_json_and_knows_the_example() {
    let ran = tidegate(&["schema"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let schema: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let retry = &schema["properties"]["pipeline"]["properties"]["retry_policy"]["properties"];
    assert_eq!(retry["max_attempts"]["minimum"], 1);
    assert_eq!(retry["jitter"]["default"], "full");
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = tidegate(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
        assert!(ran.stdout.contains("TIDEGATE_COMPLETE"), "{shell}: {}", ran.stdout);
    }
}

/// What a script would offer for the last of these words.
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
fn offered(dir: &Path, shell: &str, words: &[&str]) -> Vec<String> {
    let index = words.len().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([&["--", "tidegate"], words].concat())
        .current_dir(dir)
        .envs([("TIDEGATE_COMPLETE", shell), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n")])
        .envs([("_CLAP_COMPLETE_COMP_TYPE", "9"), ("_CLAP_COMPLETE_SPACE", "true")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // zsh adds a help text after a colon, fish after a tab.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| line.split(['\t', ':']).next().unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn completions_know_profiles_layers_and_codes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.csv"), "id,lon,lat\n1,16,48\n").unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["convert", "a.csv", "towns.gpkg", "--from-crs", "EPSG:4326"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let nested = dir.path().join("pipelines");
    fs::create_dir(&nested).unwrap();
    fs::write(
        nested.join("wfs.yaml"),
        "pipeline:\n  id: p\n  source: { service: s, layer: parcels }\n  services: { s: { url: \"https://geo.example/wfs\" } }\n  sink: { file: o.gpkg, key: [id] }\n  retry_policy: { max_attempts: 3, base_delay: 1s, retryable_status_codes: [429] }\n  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: true }\n",
    )
    .unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let of = |words: &[&str]| offered(dir.path(), shell, words);
        assert_eq!(of(&["valid"]), ["validate"], "{shell}");
        assert_eq!(of(&["geocode", "--profile", "nomi"]), ["nominatim"], "{shell}");
        assert_eq!(of(&["profiles", "show", "openc"]), ["opencage"], "{shell}");
        assert_eq!(of(&["dlq", "ls", "--code", "TIMEO"]), ["TIMEOUT"], "{shell}");
        assert_eq!(of(&["inspect", "towns.gpkg", "--layer", ""]), ["towns"], "{shell}");
        let layers = offered(&nested, shell, &["fetch", "https://geo.example/wfs", "--layer", "p"]);
        assert_eq!(layers, ["parcels"], "{shell}: those of the pipelines");
    }
}

#[test]
fn the_manual_has_a_page_for_the_command_and_each_verb() {
    assert!(tidegate(&["man"]).stdout.contains(".TH tidegate 1"));
    for verb in VERBS {
        let ran = tidegate(&["man", verb]);
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains(&format!(".TH tidegate-{verb} 1")), "{}", ran.stdout);
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("schema")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("schema")
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write"));
}

/// What it is, and what to do, for files and ports that are not what was meant.
#[test]
fn mistakes_get_a_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let says = |args: &[&str], words: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(args)
            .current_dir(dir.path())
            .env_remove("RUST_LOG")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: {word:?} is not in {text}");
        }
    };
    let feature =
        r#"{"type":"Feature","properties":{"a":"x"},"geometry":{"type":"Point","coordinates":[1,2]}}"#;
    fs::write(dir.path().join("a.geojsonl"), feature).unwrap();
    fs::write(dir.path().join("data.txt"), feature).unwrap();
    fs::write(dir.path().join("a.csv"), "id,address\n1,x\n").unwrap();
    fs::write(dir.path().join("my data.csv"), "id,address\n1,x\n").unwrap();
    for file in ["a.geojsonl", "data.txt", "a.csv", "my data.csv"] {
        let quoted = if file.contains(' ') { format!("'{file}'") } else { file.to_owned() };
        let init = format!("`tidegate init {quoted} -o pipeline.yaml`");
        says(&["run", file], &["is data", "not a manifest", &init]);
    }
    let geocode = ["geocode", "a.geojsonl", "-o", "o.csv", "--address", "a", "--profile", "photon"];
    says(&geocode, &["this is JSON, not CSV", "`tidegate convert a.geojsonl a.csv`"]);
    let google = ["geocode", "a.csv", "-o", "o.csv", "--address", "address", "--profile", "google"];
    says(&google, &["requires a key; pass --key env:NAME"]);
    says(&["convert", "a.geojsonl", "b.xyz"], &["b.xyz: unknown file format; expected one of .gpkg"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    says(&["chaos", "--addr", &addr], &[&addr, "another program is listening on this port"]);
}
