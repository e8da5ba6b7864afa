//! Every manifest under `tests/manifests`, through the built binary.
//!
//! `good/*.yaml` must be valid; the `.stdout` beside it is the exact answer. `bad/*.yaml` must be
//! refused with exit code 2; the `.stderr` beside it is the exact report, the `.json` of the same
//! problems is checked for its places. After a deliberate change run
//! `TIDEGATE_BLESS=1 cargo test -p tidegate --test suite validate::` and read the difference.

use crate::common::{expect, files, tidegate};
use std::fs;
use std::path::Path;

#[test]
fn good_manifests_are_explained() {
    for file in files("good") {
        let ran = tidegate(&["validate", &file]);
        assert_eq!(ran.code, 0, "{file}: {}", ran.stderr);
        assert_eq!(ran.stderr, "", "{file}");
        expect(&Path::new(&file).with_extension("stdout"), &ran.stdout);
    }
}

#[test]
fn bad_manifests_are_refused_at_the_place() {
    for file in files("bad") {
        let ran = tidegate(&["validate", &file]);
        assert_eq!(ran.code, 2, "{file}: {}", ran.stdout);
        assert_eq!(ran.stdout, "", "{file}");
        assert!(!ran.stderr.contains(['\u{1b}', '\0']), "{file}: control codes reach the terminal");
        expect(&Path::new(&file).with_extension("stderr"), &ran.stderr);
    }
}

#[test]
fn json_names_the_same_places() {
    for file in files("bad") {
        let ran = tidegate(&["validate", "--format", "json", &file]);
        assert_eq!((ran.code, ran.stderr.as_str()), (2, ""), "{file}");
        let problems: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let report = fs::read_to_string(Path::new(&file).with_extension("stderr")).unwrap();
        let problems = problems.as_array().unwrap();
        assert!(!problems.is_empty(), "{file}");
        for problem in problems {
            assert_eq!(problem["file"], file.as_str());
            let (line, column) = (&problem["line"], &problem["column"]);
            let place =
                if *line == 0 { format!("--> {file}\n") } else { format!("--> {file}:{line}:{column}\n") };
            assert!(report.contains(&place), "{file}: no {place:?} in\n{report}");
            assert!(report.contains(problem["message"].as_str().unwrap()), "{file}");
            assert_ne!(problem["help"], "", "{file}: no help for {problem}");
            assert!(report.contains(&format!("error[{}]", problem["code"].as_str().unwrap())), "{file}");
        }
    }
}

#[test]
fn a_valid_file_has_no_problems_in_json() {
    let ran = tidegate(&["validate", "--format=json", "tests/manifests/good/example.yaml"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "[]\n", ""));
}

#[test]
fn several_files_are_all_checked() {
    let good = "tests/manifests/good/example.yaml";
    let ran = tidegate(&["validate", good, "tests/manifests/bad/empty.yaml", good]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.stdout.matches("municipal-parcel-sync: valid").count(), 2);
    assert!(ran.stderr.contains("bad/empty.yaml"));
}

#[test]
fn standard_input_is_a_dash() {
    let text = fs::read("tests/manifests/good/example.yaml").unwrap();
    let ran = crate::common::tidegate_with(&["validate", "-"], &text);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let ran = crate::common::tidegate_with(&["validate", "-"], b"pipeline: 1\n");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--> <stdin>:1:11"), "{}", ran.stderr);
}

#[test]
fn values_of_the_command_line_go_before_the_environment() {
    let text = fs::read_to_string("tests/manifests/good/example.yaml").unwrap();
    let text = text.replace("municipal-parcel-sync", "${PATH}-${OWN:sync}");
    let ran = crate::common::tidegate_with(&["validate", "-", "--var", "PATH=monday"], text.as_bytes());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.starts_with("monday-sync: valid"), "{}", ran.stdout);
    let ran = crate::common::tidegate_with(&["validate", "-", "--var", "no name=1"], text.as_bytes());
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("expected NAME=VALUE"), "{}", ran.stderr);
}

#[test]
fn a_run_and_a_plan_read_standard_input_too() {
    for verb in ["run", "plan"] {
        let ran = crate::common::tidegate_with(&[verb, "-"], b"pipeline: 1\n");
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.contains("--> <stdin>:1:11"), "{}", ran.stderr);
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    let ran = tidegate(&["validate", "tests/manifests/none.yaml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error[unreadable]: no such file"), "{}", ran.stderr);
    let ran = tidegate(&["validate", "tests/manifests"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error[unreadable]: this is a directory"), "{}", ran.stderr);
}

#[test]
fn a_file_too_large_is_refused_unparsed() {
    let ran = crate::common::tidegate_with(&["validate", "-"], &vec![b'#'; (1 << 20) + 1]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("error[too_large]"), "{}", ran.stderr);
    let ran = crate::common::tidegate_with(&["validate", "-"], &vec![b'#'; 1 << 20]);
    assert!(ran.stderr.starts_with("error[empty]"), "{}", ran.stderr);
}

#[test]
fn a_long_line_is_named_but_not_shown() {
    let text = format!("pipeline: {{ id: \"{}\", nope: 2 }}\n", "y".repeat(100_000));
    let ran = crate::common::tidegate_with(&["validate", "-"], text.as_bytes());
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--> <stdin>:1:100021"), "{}", ran.stderr);
    assert!(ran.stderr.len() < 5_000, "{} bytes", ran.stderr.len());
}
