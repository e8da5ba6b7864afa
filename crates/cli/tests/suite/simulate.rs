//! `tidegate simulate` through the built binary.

use crate::common::{tidegate, tidegate_with};

const HERD: &str = "../../scenarios/herd.yaml";

#[test]
fn a_scenario_that_holds() {
    let ran = tidegate(&["simulate", HERD, "--trials", "3"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(ran.stdout.contains("all 12 expectations hold"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'), "no colour in a pipe");
}

#[test]
fn json_names_the_trace_and_a_seed_decides_it() {
    let trace = |seed| {
        let ran = tidegate(&["simulate", HERD, "--trials=1", "--seed", seed, "--format=json"]);
        let outcome: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        outcome["trace"].as_str().unwrap().to_owned()
    };
    assert_eq!(trace("7"), trace("7"));
    assert_ne!(trace("7"), trace("8"));
}

#[test]
fn a_broken_expectation_is_a_failure() {
    let scenario = b"{name: x, reason: y, world: {workload: {drain: {requests: 2}}},
        expect: {run: {calls: {equals: 3}}}}";
    let ran = tidegate_with(&["simulate", "-"], scenario);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("1 of 1 expectations fail"), "{}", ran.stdout);
}

#[test]
fn a_misspelt_key_is_refused_at_its_place() {
    let ran = tidegate_with(&["simulate", "-"], b"name: x\nreason: y\nworld:\n  clents: 3\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("line 4 column 3") && ran.stderr.contains("clents"), "{}", ran.stderr);
    let ran = tidegate(&["simulate", HERD, "--compare", "fast"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("unknown policy `fast`"), "{}", ran.stderr);
}

#[test]
fn a_manifest_meets_the_usual_servers() {
    let ran = tidegate(&["simulate", "tests/manifests/good/example.yaml"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for server in ["steady", "throttled", "down for a minute", "flaky"] {
        assert!(ran.stdout.contains(server), "{}", ran.stdout);
    }
}

/// A manifest with the policy of the example and these expectations.
fn manifest(expect: &str) -> Vec<u8> {
    let example = include_str!("../manifests/good/example.yaml");
    format!("{example}{expect}").into_bytes()
}

#[test]
fn the_expectations_of_a_manifest_decide_its_exit_code() {
    let meets = manifest("expect: { early: 0, time: '<= 20m', servers: { steady: { dead: 0 } } }\n");
    let ran = tidegate_with(&["simulate", "-"], &meets);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(ran.stdout.contains("all 11 expectations hold"), "{}", ran.stdout);

    let misses =
        manifest("expect: { dead: 0, servers: { throttled: { dead: null }, flaky: { dead: '<= 40' } } }\n");
    let ran = tidegate_with(&["simulate", "-"], &misses);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("down for a minute  dead         = 0    2  FAIL\n"), "{}", ran.stdout);
    // A fifth of all calls fails, and a record has three attempts: about 16 of 2,000 are lost to chance.
    let flaky = ran.stdout.lines().find(|line| line.starts_with("flaky") && line.contains("≤ 40"));
    assert!(flaky.is_some_and(|line| line.ends_with("  ok")), "{}", ran.stdout);
    assert!(ran.stdout.contains("1 of 4 expectations fail"), "{}", ran.stdout);

    let ran = tidegate_with(&["simulate", "-", "--format=json"], &misses);
    let outcome: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let failed: Vec<_> =
        outcome["checks"].as_array().unwrap().iter().filter(|c| c["held"] == false).collect();
    assert_eq!(failed.len(), 1, "{outcome}");
    assert_eq!((&failed[0]["case"], &failed[0]["got"]), (&"down for a minute".into(), &2.0.into()));
}

#[test]
fn the_expectations_of_a_file_come_first_and_may_name_the_records() {
    let work = tempfile::tempdir().unwrap();
    let at = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    let (policy, expect) = (at("policy.yaml"), at("expect.yaml"));
    std::fs::write(&policy, manifest("expect: { dead: 99, done: 99, servers: { flaky: { done: null } } }\n"))
        .unwrap();
    std::fs::write(&expect, "expect: { records: 100, dead: '<= 3', done: '>= 97' }\n").unwrap();
    let ran = tidegate(&["simulate", &policy, "--expect", &expect]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("with 100 records"), "{}", ran.stdout);
    // The outage parks more than it kills.
    assert!(ran.stdout.contains("1 of 9 expectations fail"), "{}", ran.stdout);
    assert!(ran.stdout.contains("down for a minute  done "), "{}", ran.stdout);

    let ran = tidegate_with(&["simulate", "-", "--expect", &expect], &manifest(""));
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--expect needs a manifest that is a file"), "{}", ran.stderr);
    let ran = tidegate(&["simulate", HERD, "--expect", &expect]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("a scenario has its own `expect`"), "{}", ran.stderr);
}

#[test]
fn an_expectation_that_means_nothing_is_refused_at_its_place() {
    let bad = manifest("expect: { ded: 0, dead: '< 5', servers: { flaky: { time: soon, calm: 1 } } }\n");
    for verb in ["simulate", "validate"] {
        let ran = tidegate_with(&[verb, "-"], &bad);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{verb}");
        for flaw in [
            "did you mean `dead`?",
            "`dead` cannot be the string `< 5`",
            "`time` cannot be the string `soon`",
            "unknown metric `calm`",
        ] {
            assert!(ran.stderr.contains(flaw), "{verb}: {flaw}: {}", ran.stderr);
        }
    }
    let ran = tidegate_with(&["simulate", "-"], &manifest("expect: { servers: { flakey: { dead: 0 } } }\n"));
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("there is no server `flakey`; did you mean `flaky`?"), "{}", ran.stderr);
}

#[test]
fn a_scenario_includes_the_policy_of_a_manifest() {
    let work = tempfile::tempdir().unwrap();
    // An include stays below the repository.
    for folder in ["scenarios", ".git"] {
        std::fs::create_dir(work.path().join(folder)).unwrap();
    }
    let policy = work.path().join("policy.yaml");
    let scenario = work.path().join("scenarios/outage.yaml");
    let text = "name: outage
reason: The policy gives up after its attempts.
include: ../policy.yaml
world:
  workload: { drain: { requests: 10 } }
  server: { fault_rate: 1 }
cases:
  - name: ours
  - name: once
    with: { client: { retry_policy: { max_attempts: 1 } } }
expect:
  ours: { calls: { equals: 40 }, dead: { equals: 10 } }
  once: { calls: { equals: 10 } }
";
    std::fs::write(&scenario, text).unwrap();
    let simulate = || tidegate(&["simulate", scenario.to_str().unwrap()]);
    // A file with policies alone, as manifests include it.
    let policies = "pipeline: { retry_policy: { max_attempts: ATTEMPTS, base_delay: 1ms }, circuit_breaker: { minimum_calls: 1000 }, retry_budget: { size: 1000 }, rate_limit: { learn: false } }\n";
    std::fs::write(&policy, policies.replace("ATTEMPTS", "4")).unwrap();
    let ran = simulate();
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    // The policy changes in one place, and the scenario notices.
    std::fs::write(&policy, policies.replace("ATTEMPTS", "3")).unwrap();
    let ran = simulate();
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stdout.contains("ours  calls       = 40   30  FAIL\n"), "{}", ran.stdout);
    std::fs::write(&policy, policies.replace("ATTEMPTS", "0")).unwrap();
    let ran = simulate();
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("policy.yaml:1:43") && ran.stderr.contains("max_attempts"), "{}", ran.stderr);
    std::fs::remove_file(&policy).unwrap();
    assert_eq!(simulate().code, 2);
}

#[test]
fn several_files_are_simulated_and_one_failure_is_enough() {
    let example = "tests/manifests/good/example.yaml";
    let ran = tidegate(&["simulate", example, HERD, "--trials", "1"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("municipal-parcel-sync\n") && ran.stdout.contains("\nherd\n"),
        "{}",
        ran.stdout
    );
    let broken = b"{name: x, reason: y, world: {workload: {drain: {requests: 2}}}, expect: {run: {calls: {equals: 3}}}}";
    assert_eq!(tidegate_with(&["simulate", "-", example], broken).code, 1);
    assert_eq!(tidegate_with(&["simulate", "-", "missing.yaml"], broken).code, 2);
    assert_eq!(tidegate(&["simulate", example, HERD, "--html", "/dev/null"]).code, 2);
}

/// A definition in the root of the repository.
fn definition(name: &str) -> serde_json::Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_hooks_for_pre_commit_run() {
    let hooks = definition(".pre-commit-hooks.yaml");
    let mut entries = Vec::new();
    for hook in hooks.as_array().unwrap() {
        for key in ["id", "name", "entry", "language"] {
            assert!(hook[key].is_string(), "{hook}");
        }
        let entry = hook["entry"].as_str().unwrap();
        let mut words = entry.split(' ');
        assert_eq!(words.next(), Some("tidegate"));
        let mut args: Vec<&str> = words.collect();
        // pre-commit appends the names of the changed files.
        args.push("tests/manifests/good/example.yaml");
        assert_eq!(tidegate(&args).code, 0, "{entry}");
        args.push("tests/manifests/bad/base_above_max.yaml");
        assert_eq!(tidegate(&args).code, 2, "{entry}");
        entries.push(entry.to_owned());
    }
    assert_eq!(entries, ["tidegate validate --no-env", "tidegate simulate --no-env"]);
}

#[test]
fn the_github_action_runs() {
    let action = definition("action.yml");
    assert_eq!(action["runs"]["using"], "composite");
    let step = action["runs"]["steps"].as_array().unwrap().last().unwrap();
    assert_eq!(step["shell"], "bash");
    let inputs = |given: &[(&str, &str)]| {
        let mut command = std::process::Command::new("bash");
        command.args(["-e", "-c", step["run"].as_str().unwrap()]).current_dir(env!("CARGO_MANIFEST_DIR"));
        for (name, value) in step["env"].as_object().unwrap() {
            let input =
                value.as_str().unwrap().strip_prefix("${{ inputs.").unwrap().strip_suffix(" }}").unwrap();
            assert!(action["inputs"][input]["description"].is_string(), "{input}");
            let value = given.iter().find(|(name, _)| *name == input).map_or("", |(_, value)| value);
            command.env(name, value);
        }
        let out = command.output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let binary = ("binary", env!("CARGO_BIN_EXE_tidegate"));
    let good = ("manifests", "tests/manifests/good/ex*ple.yaml");
    let (code, stdout, stderr) = inputs(&[binary, good, ("scenarios", HERD)]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("all 12 expectations hold"), "{stdout}");

    let work = tempfile::tempdir().unwrap();
    let expect = work.path().join("what we expect.yaml");
    std::fs::write(&expect, "expect: { dead: 0 }\n").unwrap();
    let (code, stdout, _) = inputs(&[binary, good, ("expect", expect.to_str().unwrap())]);
    assert_eq!(code, Some(1), "{stdout}");
    let (code, ..) = inputs(&[binary, ("manifests", "tests/manifests/bad/base_above_max.yaml")]);
    assert_eq!(code, Some(2));
    let (code, stdout, _) = inputs(&[binary, ("manifests", "nothing/*.yaml")]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "a pattern without files is no success");
}

#[test]
fn a_service_with_its_own_policy_is_simulated_with_it() {
    let text = "pipeline:
  id: x
  retry_policy: { max_attempts: 5, base_delay: 1s }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
  services:
    hasty: { url: \"http://127.0.0.1:9\", retry_policy: { max_attempts: 1 } }
    plain: { url: \"http://127.0.0.1:9\" }
expect: { servers: { flaky: { dead: '<= 20' } } }
";
    let ran = tidegate_with(&["simulate", "-", "--format=json"], text.as_bytes());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let outcome: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let held: Vec<_> =
        outcome["checks"].as_array().unwrap().iter().map(|c| (&c["case"], &c["held"])).collect();
    assert_eq!(held, [(&"hasty/flaky".into(), &false.into()), (&"pipeline/flaky".into(), &true.into())]);
    assert_eq!(outcome["cases"].as_array().unwrap().len(), 10);
}
