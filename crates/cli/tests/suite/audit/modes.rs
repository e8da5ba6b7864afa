//! Who may read what a run leaves in its state directory.

use std::os::unix::fs::PermissionsExt;

use crate::audit::trail;

#[test]
fn state_files_belong_to_their_owner_whatever_the_umask() {
    let bench = trail::bench("file: out.gpkg, key: [id]");
    bench.write("cells.csv", "id,street\n1,1 Harbour Road\n");
    bench.write(
        "letters.yaml",
        &bench
            .read("m.yaml")
            .replace("id: test", "id: letters\n  dead_letters: { store: .tidegate/letters.db }"),
    );
    let shell = "umask 000; \"$0\" run m.yaml; \"$0\" run letters.yaml; \"$0\" dlq ls; \
                 \"$0\" keys audit --key .tidegate/own.key; \"$0\" audit verify";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", shell, env!("CARGO_BIN_EXE_tidegate")]).current_dir(bench.root());
    let ran: crate::common::running::Ran = command.output().unwrap().into();
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    let state = bench.path(".tidegate");
    let mut names = Vec::new();
    for path in bench.files().iter().filter(|path| path.starts_with(&state)) {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
        names.push(path.strip_prefix(&state).unwrap().to_str().unwrap().to_owned());
    }
    for name in [
        "audit.key",
        "audit.pub",
        "own.key",
        "letters.db",
        "letters.db.checkpoints",
        "letters/audit.db",
        "test/audit.checkpoints",
        "test/audit.db",
        "test/lock",
        "test/rejects.ndjson",
        "test/run.json",
    ] {
        assert!(names.contains(&name.to_owned()), "{name} is not in {names:?}");
    }
}
