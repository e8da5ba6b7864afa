//! A directory for one test, and runs of the built binary in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory for one test. It is removed at the end.
pub(crate) struct Workdir(tempfile::TempDir);

impl Workdir {
    /// With nothing in it.
    pub(crate) fn new() -> Workdir {
        Workdir(tempfile::tempdir().unwrap())
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The text of a file.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// All files below the directory.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut dirs) = (Vec::new(), vec![self.root().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { dirs.push(path) } else { files.push(path) }
            }
        }
        files
    }

    /// `tidegate` with these arguments, to be run here with its output caught.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(args).current_dir(self.root()).env_remove("TIDEGATE_CRASH");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}
