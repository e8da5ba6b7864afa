//! Manifests of strangers, which a machine with secrets checks: in a pull request, in a hook. What they
//! include and what they name shows nothing of files and of variables.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::running::Ran;
use crate::workdir::Workdir;

const SECRET: &str = "correct-horse-battery-staple";
const PIN: &str = "739172";

const POLICY: &str = "  retry_policy: { max_attempts: 2, base_delay: 10ms, retryable_status_codes: [503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
";

fn command(dir: &Workdir, args: &[&str]) -> Command {
    let mut command = dir.command(args);
    command.env("SECRET", SECRET).env("PIN", PIN).env("MODE", "sideways").env("SHORT", "qz7");
    command
}

/// Ends by itself, whatever it is given.
fn ran(dir: &Workdir, args: &[&str]) -> Ran {
    let mut child = command(dir, args).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("{args:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap().into()
}

/// The verbs that a machine runs on manifests that it does not know.
const CHECKS: [&[&str]; 7] = [
    &["validate"],
    &["validate", "--format", "json"],
    &["validate", "--parts"],
    &["validate", "--no-env"],
    &["simulate"],
    &["simulate", "--no-env"],
    &["plan"],
];

/// Runs every check of a manifest; each refuses it, and shows none of these texts.
fn refused(dir: &Workdir, file: &str, hidden: &[&str]) -> String {
    let mut all = String::new();
    for check in CHECKS {
        let made = ran(dir, &[check, &[file][..]].concat());
        let told = format!("{}{}", made.stdout, made.stderr);
        assert_eq!(made.code, 2, "{check:?} {file}: {told}");
        for text in hidden {
            assert!(!told.contains(text), "{check:?} {file}: {text:?} is in\n{told}");
        }
        all.push_str(&told);
    }
    all
}

fn including(dir: &Workdir, file: &str) {
    dir.write("m.yaml", &format!("include: [\"{file}\"]\npipeline:\n  id: x\n{POLICY}"));
}

#[test]
fn an_include_stays_below_the_manifest() {
    let (dir, other) = (Workdir::new(), Workdir::new());
    let private = "pipeline:\n  id: x\n  battery: staple\n";
    other.write("private.yaml", private);
    let outside = other.path("private.yaml");
    symlink(&outside, dir.path("link.yaml")).unwrap();
    symlink(other.root(), dir.path("folder")).unwrap();
    symlink("/proc/self/environ", dir.path("environ.yaml")).unwrap();
    let name = other.root().file_name().unwrap().to_str().unwrap().to_owned();
    for file in [
        "/proc/self/environ",
        "/proc/self/cmdline",
        "/etc/passwd",
        "/etc/none-of-that-name",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/root/etc/passwd",
        "environ.yaml",
        "link.yaml",
        "folder/private.yaml",
        "folder/none.yaml",
        outside.to_str().unwrap(),
        &format!("../{name}/private.yaml"),
        &format!("./folder/../{name}/private.yaml"),
    ] {
        including(&dir, file);
        let told = refused(&dir, "m.yaml", &[SECRET, "root:", "battery", "PATH="]);
        assert!(told.contains("outside the repository, or the folder, of the manifest"), "{file}: {told}");
        assert!(told.contains("--allow-include DIR"), "{file}: {told}");
        assert!(!told.contains("no such file"), "{file}: {told}");
    }
    // Who allows it gets it, and its own includes below it.
    other.write("private.yaml", &format!("include: [more.yaml]\npipeline:\n{POLICY}"));
    other.write("more.yaml", "pipeline:\n  gates: [{ check: is_valid, severity: reject }]\n");
    dir.write("m.yaml", &format!("include: [\"{}\"]\npipeline: {{ id: x }}\n", outside.display()));
    let allowed = ["validate", "m.yaml", "--allow-include", other.root().to_str().unwrap()];
    let made = ran(&dir, &allowed);
    assert!(made.code == 0 && made.stdout.contains("is_valid"), "{} {}", made.stdout, made.stderr);
}

#[test]
fn an_include_may_be_anywhere_in_the_repository() {
    let dir = Workdir::new();
    std::fs::create_dir_all(dir.path("pipelines/deep")).unwrap();
    std::fs::create_dir(dir.path("policies")).unwrap();
    dir.write("policies/common.yaml", &format!("pipeline:\n{POLICY}"));
    dir.write("pipelines/deep/m.yaml", "include: [../../policies/common.yaml]\npipeline: { id: x }\n");
    let file = "pipelines/deep/m.yaml";
    refused(&dir, file, &[]);
    std::fs::create_dir(dir.path(".git")).unwrap();
    for check in [&["validate"][..], &["validate", "--no-env"], &["simulate"]] {
        let made = ran(&dir, &[check, &[file]].concat());
        assert_eq!(made.code, 0, "{check:?}: {}", made.stderr);
    }
    // A link leads out of it all the same.
    std::fs::remove_file(dir.path("policies/common.yaml")).unwrap();
    symlink("/etc/passwd", dir.path("policies/common.yaml")).unwrap();
    refused(&dir, file, &["root:"]);
}

#[test]
fn nothing_is_quoted_of_a_file_that_is_no_manifest() {
    let dir = Workdir::new();
    let huge = format!("{SECRET}\n").repeat(100_000);
    std::fs::create_dir(dir.path("directory.yaml")).unwrap();
    assert!(Command::new("mkfifo").arg(dir.path("fifo.yaml")).status().unwrap().success());
    for (name, bytes) in [
        ("env.yaml", format!("A={SECRET}\0B=x\0\npipeline:\n")),
        ("key.yaml", format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")),
        ("map.yaml", format!("password: {SECRET}\nuser: [\n")),
        ("duplicate.yaml", format!("{SECRET}: 1\n{SECRET}: 2\n")),
        ("compose.yaml", format!("version: \"3\"\nservices:\n  db:\n    pipeline: {SECRET}\n")),
        ("list.yaml", format!("- {SECRET}\n")),
        ("text.yaml", SECRET.to_owned()),
        ("json.yaml", format!("{{\"token\": \"{SECRET}\"}}")),
        ("huge.yaml", huge),
    ] {
        dir.write(name, &bytes);
        including(&dir, name);
        refused(&dir, "m.yaml", &[SECRET]);
        // Nor if it is named on the command line, as a pattern of an action does.
        refused(&dir, name, &[SECRET]);
    }
    std::fs::write(dir.path("binary.yaml"), [&b"\xff\xfe\x00"[..], SECRET.as_bytes()].concat()).unwrap();
    for name in ["binary.yaml", "directory.yaml", "fifo.yaml"] {
        including(&dir, name);
        let told = refused(&dir, "m.yaml", &[SECRET]);
        assert!(told.contains("cannot include"), "{name}: {told}");
    }
    refused(&dir, "binary.yaml", &[SECRET]);
    for name in ["/proc/self/environ", "/etc/passwd", "/dev/zero"] {
        symlink(name, dir.path("linked.yaml")).unwrap();
        refused(&dir, "linked.yaml", &[SECRET, "root:"]);
        std::fs::remove_file(dir.path("linked.yaml")).unwrap();
    }
    // A mistake in a manifest is shown as ever.
    dir.write("part.yaml", "pipeline:\n  nonsense: 1\n");
    including(&dir, "part.yaml");
    let told = ran(&dir, &["validate", "m.yaml"]).stderr;
    assert!(told.contains("part.yaml:2:3\n"), "{told}");
}

#[test]
fn the_policy_that_a_scenario_includes_is_held_to_the_same() {
    let dir = Workdir::new();
    for file in ["/etc/passwd", "/proc/self/environ", "../../etc/passwd"] {
        dir.write(
            "s.yaml",
            &format!("name: x\nreason: y\ninclude: {file}\nworld: {{ server: {{ capacity: 1 }}, workload: {{ drain: {{ requests: 1 }} }} }}\n"),
        );
        let made = ran(&dir, &["simulate", "s.yaml"]);
        let told = format!("{}{}", made.stdout, made.stderr);
        assert_eq!(made.code, 2, "{told}");
        assert!(!told.contains("root:") && !told.contains(SECRET), "{told}");
    }
}

/// Sections of a manifest that name variables, wherever a value is looked at.
const NAMING: [&str; 22] = [
    "  source: { file: \"${SECRET}\" }\n  sink: { file: \"${SECRET}\" }",
    "  source: { file: in.csv, batch_size: \"${SECRET}\" }\n  sink: { file: out.gpkg }",
    "  source: { file: in.csv, batch_size: \"${PIN}${PIN}\" }\n  sink: { file: out.gpkg }",
    "  source: { file: in.csv, batch_size: \"-${PIN}\" }\n  sink: { file: out.gpkg }",
    "  source: { file: in.csv, tolerate: \"${SECRET}\" }\n  sink: { file: out.gpkg }",
    "  source: { file: in.csv, csv: { delimiter: \"${SECRET}\", encoding: \"${SECRET}\" } }\n  sink: { file: out.gpkg }",
    "  source: { service: \"${SECRET}\" }\n  sink: { file: out.gpkg }",
    "  source: { postgis: { url: \"${SECRET}\", table: t } }\n  sink: { file: out.gpkg }",
    "  source: { postgis: { url: \"mysql://${SECRET}\", table: t } }\n  sink: { file: out.gpkg }",
    "  source: { file: in.csv, patience: \"${SECRET}\" }\n  sink: { file: out.gpkg }",
    "  source: { file: in.csv, patience: \"1${SHORT}\" }\n  sink: { file: out.gpkg }",
    "  source: { file: in.csv }\n  sink: { file: out.gpkg, mode: \"${SECRET}\" }",
    "  source: { file: in.csv }\n  sink: { file: out.gpkg, mode: \"${MODE}\" }",
    "  source: { file: in.csv }\n  sink: { file: out.gpkg, key: \"${SECRET}\" }",
    "  source: { file: in.csv }\n  sink: { file: \"out.${SHORT}\" }",
    "  source: { file: in.csv }\n  sink: { file: out.gpkg }\n  steps: [{ filter: \"${SECRET} ${SECRET}\" }]",
    "  source: { file: in.csv }\n  sink: { file: out.gpkg }\n  steps: [{ reproject: \"${SECRET}\" }]",
    "  source: { file: in.csv }\n  sink: { file: out.gpkg }\n  steps: [{ coerce: { fields: { a: \"${SECRET}\" } } }]",
    "  source: { file: in.csv }\n  sink: { file: out.gpkg }\n  gates: [{ check: \"${SECRET}\", severity: reject }]",
    "  dead_letters: { store: \"redis://${SECRET}\" }",
    "  dead_letters: { auto: [{ code: \"${SECRET}\" }, { code: RATE_LIMITED, at_most: \"${SECRET}\" }] }",
    "  services: { a: { url: \"http://127.0.0.1:9\", key: \"${SECRET}\", fallback: [\"${SECRET}\"] } }",
];

#[test]
fn values_of_variables_are_in_no_message() {
    let dir = Workdir::new();
    dir.write("in.csv", "id\n1\n");
    for parts in NAMING {
        dir.write("m.yaml", &format!("pipeline:\n  id: x\n{parts}\n{POLICY}"));
        let mut named = 0;
        for check in [&["validate"][..], &["validate", "--format", "json"], &["plan"], &["simulate"]] {
            for more in [&[][..], &["--var", "SECRET=correct-horse-battery-staple"]] {
                if check[0] == "simulate" && !more.is_empty() {
                    continue;
                }
                let made = ran(&dir, &[check, &["m.yaml"], more].concat());
                let told = format!("{}{}", made.stdout, made.stderr);
                assert_eq!(made.code, 2, "{check:?} {parts}: {told}");
                for text in [SECRET, "correct-horse", PIN, "sideways", "qz7"] {
                    assert!(!told.contains(text), "{check:?} {parts}: {text:?} is in\n{told}");
                }
                named += usize::from(told.contains("${"));
            }
        }
        assert!(named >= 5, "{parts}: no message names the variable");
    }
}

#[test]
fn a_valid_manifest_shows_no_value_of_the_environment() {
    let dir = Workdir::new();
    dir.write("in.csv", "id\n1\n");
    let files =
        "  source: { file: \"${SECRET}.csv\" }\n  sink: { file: \"${SECRET}.gpkg\", key: [\"${SECRET}\"] }";
    dir.write("m.yaml", &format!("pipeline:\n  id: \"${{SECRET}}\"\n{files}\n{POLICY}"));
    for check in [&["validate"][..], &["validate", "--parts"]] {
        let made = ran(&dir, &[check, &["m.yaml"]].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
        assert!(!made.stdout.contains(SECRET) && made.stdout.contains("${SECRET}"), "{}", made.stdout);
    }
    // A plan opens what it names, and does not show it either.
    let made = ran(&dir, &["plan", "m.yaml"]);
    let told = format!("{}{}", made.stdout, made.stderr);
    assert!(made.code != 0 && !told.contains(SECRET) && told.contains("${SECRET}"), "{told}");
    std::fs::rename(dir.path("in.csv"), dir.path(&format!("{SECRET}.csv"))).unwrap();
    for format in ["table", "json"] {
        let told = ran(&dir, &["plan", "m.yaml", "--format", format]);
        assert!(
            !told.stdout.contains(SECRET) && !told.stderr.contains(SECRET),
            "{} {}",
            told.stdout,
            told.stderr
        );
    }
    // A number may be a secret, too.
    let numbers = "  retry_policy: { max_attempts: \"${PIN:2}\", base_delay_seconds: 1, retryable_status_codes: [503] }\n  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\n";
    dir.write(
        "n.yaml",
        &format!("pipeline:\n  id: x\n  alerts: {{ minimum_calls: \"${{PIN:2}}\" }}\n{POLICY}"),
    );
    let made = ran(&dir, &["validate", "n.yaml"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(!made.stdout.contains(PIN) && made.stdout.contains("${PIN}"), "{}", made.stdout);
    dir.write("n.yaml", &format!("pipeline:\n  id: x\n{numbers}"));
    let made = ran(&dir, &["validate", "--reveal", "m.yaml"]);
    assert!(made.code == 0 && made.stdout.starts_with(SECRET), "{} {}", made.stdout, made.stderr);
    // Its default is written in the file.
    let made = ran(&dir, &["validate", "--no-env", "n.yaml"]);
    assert!(made.code == 0 && made.stdout.contains("at most 2,"), "{} {}", made.stdout, made.stderr);
}

#[test]
fn without_the_environment_no_variable_is_read_and_that_is_said() {
    let dir = Workdir::new();
    let parts = "  source: { postgis: { url: \"${DATABASE}\", table: t, key: id }, batch_size: \"${PIN}\" }\n  sink: { file: \"${NAME:out}.gpkg\", mode: \"${MODE}\" }\n  services: { a: { url: \"${SECRET}\" } }";
    dir.write("m.yaml", &format!("pipeline:\n  id: \"${{SECRET}}\"\n{parts}\n{POLICY}"));
    let made = ran(&dir, &["validate", "--no-env", "m.yaml"]);
    let told = format!("{}{}", made.stdout, made.stderr);
    assert_eq!(made.code, 0, "{told}");
    for says in ["m.yaml:2:7: not checked: the value of ${SECRET}", "${DATABASE}", "${PIN}", "${MODE}"] {
        assert!(told.contains(says), "{says:?} is not in\n{told}");
    }
    assert!(!told.contains(SECRET) && !told.contains(PIN) && !told.contains("sideways"), "{told}");
    // What does not depend on a variable is checked.
    dir.write("m.yaml", &format!("pipeline:\n  id: \"${{SECRET}}\"\n  nonsense: 1\n{parts}\n{POLICY}"));
    let made = ran(&dir, &["validate", "--no-env", "m.yaml"]);
    assert!(made.code == 2 && made.stderr.contains("unknown key `nonsense`"), "{}", made.stderr);
    // A simulation that needs no value runs, one that does says which.
    dir.write("m.yaml", &format!("pipeline:\n  id: \"${{SECRET}}\"\n{POLICY}"));
    let made = ran(&dir, &["simulate", "--no-env", "m.yaml"]);
    assert!(made.code == 0 && !made.stdout.contains(SECRET), "{} {}", made.stdout, made.stderr);
    dir.write(
        "m.yaml",
        &format!("pipeline:\n  id: x\n{}", POLICY.replace("max_attempts: 2", "max_attempts: \"${PIN}\"")),
    );
    let made = ran(&dir, &["simulate", "--no-env", "m.yaml"]);
    assert!(made.code == 2 && made.stderr.contains("PIN") && !made.stderr.contains(PIN), "{}", made.stderr);
}

/// What the action and the hooks run.
#[test]
fn the_action_and_the_hooks_read_no_variable() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let action = std::fs::read_to_string(format!("{root}/action.yml")).unwrap();
    let hooks = std::fs::read_to_string(format!("{root}/.pre-commit-hooks.yaml")).unwrap();
    let lines = action.lines().chain(hooks.lines());
    let runs = lines.filter(|line| line.contains("\"$tidegate\" ") || line.contains("entry: tidegate"));
    let runs: Vec<&str> = runs.collect();
    assert_eq!(runs.len(), 5, "{runs:?}");
    assert!(runs.iter().all(|line| line.contains(" --no-env")), "{runs:?}");
    let dir = Workdir::new();
    dir.write("m.yaml", &format!("pipeline:\n  id: \"${{SECRET}}\"\n{POLICY}"));
    let script = action.split_once("run: |\n").unwrap().1;
    let made = Command::new("bash")
        .args(["-e", "-c", script])
        .current_dir(dir.root())
        .env("BINARY", env!("CARGO_BIN_EXE_tidegate"))
        .env("MANIFESTS", "*.yaml")
        .env("SECRET", SECRET)
        .envs([("SCENARIOS", ""), ("EXPECT", "")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert!(made.status.success() && !told.contains(SECRET) && told.contains("${SECRET}"), "{told}");
}

#[test]
fn a_named_manifest_is_no_link_out_of_the_repository_and_no_pipe() {
    let dir = Workdir::new();
    std::fs::create_dir_all(dir.path("repository/.git")).unwrap();
    dir.write("outside.yaml", &format!("include: ci.yaml\npipeline: {SECRET}\npassword: {SECRET}\n"));
    symlink("../outside.yaml", dir.path("repository/link.yaml")).unwrap();
    symlink("/dev/zero", dir.path("repository/zero.yaml")).unwrap();
    symlink("/proc/self/environ", dir.path("repository/environ.yaml")).unwrap();
    let made = Command::new("mkfifo").arg(dir.path("repository/pipe.yaml")).status().unwrap();
    assert!(made.success());
    for name in ["link", "zero", "environ", "pipe"] {
        let file = format!("repository/{name}.yaml");
        for verb in ["validate", "simulate"] {
            let ran = ran(&dir, &[verb, "--no-env", &file]);
            assert_eq!(ran.code, 2, "{verb} {file}: {} {}", ran.stdout, ran.stderr);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(said.contains(name) && !said.contains(SECRET), "{verb} {file}: {said}");
        }
    }
}
