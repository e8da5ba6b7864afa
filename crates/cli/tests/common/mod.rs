//! What tests of the built binary share: it is run, its words are compared with files, servers answer it.
#![allow(dead_code, reason = "the program `hostile` uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

pub(crate) mod canned;
pub(crate) mod provider;
pub(crate) mod running;
pub(crate) mod workdir;

pub(crate) use running::Ran;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `tidegate` with nothing on standard input.
pub(crate) fn tidegate(args: &[&str]) -> Ran {
    tidegate_with(args, b"")
}

/// Runs `tidegate` in the directory of the crate, so that file names are the same everywhere.
pub(crate) fn tidegate_with(args: &[&str], stdin: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("NO_COLOR")
        .env_remove("PROJ_DATA")
        .env_remove("TIDEGATE_GRIDS")
        .env("COLUMNS", "100")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command may refuse before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap().into()
}

/// The manifests in a directory under `tests/manifests`, in order.
pub(crate) fn files(directory: &str) -> Vec<String> {
    let directory = format!("tests/manifests/{directory}");
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(&directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> =
        names.filter(|name| name.ends_with(".yaml")).map(|name| format!("{directory}/{name}")).collect();
    files.sort();
    assert!(!files.is_empty(), "{directory} is empty");
    files
}

/// Asserts that `actual` is what the file holds, or, with `TIDEGATE_BLESS` set, writes it there.
pub(crate) fn expect(file: &Path, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs (TIDEGATE_BLESS=1 accepts this):\n--- expected\n{expected}\n--- actual\n{actual}",
        file.display()
    );
}
