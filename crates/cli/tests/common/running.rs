//! A run of the built binary, under way and at its end.

use std::process::{Child, Command, Output};

use serde_json::Value;

/// What a run left behind.
pub(crate) struct Ran {
    /// -1 if a signal ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Ran { code: output.status.code().unwrap_or(-1), stdout, stderr }
    }
}

impl Ran {
    /// The summary of a run with `--format json`.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", self.stdout, self.stderr))
    }

    /// A number of the summary.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.json()[name].as_u64().unwrap_or_else(|| panic!("{name} in {}", self.stdout))
    }

    /// A text of the summary.
    pub(crate) fn word(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_else(|| panic!("{name} in {}", self.stdout)).to_owned()
    }

    /// Matched, no match, failed.
    pub(crate) fn ends(&self) -> [u64; 3] {
        ["matched", "no_match", "failed"].map(|name| self.count(name))
    }
}

/// A run under way. It is killed if the test fails before its end.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// A command that was started.
    pub(crate) fn of(child: Child) -> Running {
        Running(Some(child))
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        self.0.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ran {
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
