//! A location that is not built in is refused, and does not become a file of that name.

use crate::daily::{POLICY, addresses, run};

const PLACES: [&str; 4] = ["redis://user@host/0", "s3://bucket/letters", "gs://bucket", "sqlite://x.db"];

#[test]
fn a_store_of_letters_with_another_scheme_is_refused_by_every_command() {
    let dir = addresses();
    for place in PLACES {
        let manifest = format!(
            "pipeline:
  id: test
  dead_letters: {{ store: \"{place}\" }}
  source: {{ file: in.csv, crs: EPSG:4326 }}
  sink: {{ file: out.gpkg, key: [id] }}
{POLICY}"
        );
        dir.write("test.yaml", &manifest);
        dir.write("env.yaml", &manifest.replace(&format!("\"{place}\""), "env:LETTERS"));
        let geocode =
            ["geocode", "in.csv", "--address", "address", "--url", "http://127.0.0.1:9", "-o", "o.csv"];
        let commands: Vec<Vec<&str>> = vec![
            vec!["validate", "test.yaml"],
            vec!["plan", "test.yaml"],
            vec!["run", "test.yaml"],
            vec!["run", "env.yaml"],
            [&geocode[..], &["--dead-letters", place]].concat(),
            vec!["fetch", "http://127.0.0.1:9/wfs", "-o", "o.gpkg", "--dead-letters", place],
            vec!["dlq", "ls", "--store", place],
            vec!["dlq", "capacity", "5", "--store", place],
            vec!["audit", "show", "--store", place],
            vec!["keys", "generate", "--key", "a.key", "--store", place],
            vec!["keys", "rotate", "--key", "a.key", "--store", place],
            vec!["serve", "--listen", "127.0.0.1:0", "--dead-letters", place],
            vec!["serve", "--listen", "127.0.0.1:0", "--dead-letters", "env:LETTERS"],
        ];
        for args in commands {
            let ran = dir.command(&args).env("LETTERS", place).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.status.code(), Some(2), "{args:?}: {said}");
            let scheme = &place[..place.find(':').unwrap()];
            assert!(said.contains(&format!("{scheme}:// cannot hold dead letters")), "{args:?}: {said}");
        }
        let doctor = run(&dir, &["doctor", "--store", place]);
        assert_eq!(doctor.code, 1, "{}", doctor.stdout);
        assert!(doctor.stdout.contains("cannot hold dead letters"), "{}", doctor.stdout);
    }
    for scheme in ["redis:", "s3:", "gs:", "sqlite:"] {
        assert!(!dir.path(scheme).exists(), "{scheme}");
    }
}

#[test]
fn a_state_directory_is_on_this_machine() {
    let dir = addresses();
    dir.write("test.yaml", "pipeline: { id: test }\n");
    let geocode = ["geocode", "in.csv", "--address", "address", "--url", "http://127.0.0.1:9", "-o", "o.csv"];
    let commands: [&[&str]; 8] = [
        &["run", "test.yaml"],
        &["run", "--dry-run", "test.yaml"],
        &["doctor", "test.yaml"],
        &["audit", "show"],
        &["audit", "match", "test.yaml", "1", "x"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["fetch", "http://127.0.0.1:9/wfs", "-o", "o.gpkg"],
        &geocode,
    ];
    for args in commands {
        let ran = run(&dir, &[args, &["--state", "s3://bucket/state"]].concat());
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("s3:// cannot hold the state"), "{args:?}: {}", ran.stderr);
    }
    assert!(!dir.path("s3:").exists());
}
