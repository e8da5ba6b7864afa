//! One run of the binary under limits.
//!
//! Time is processor time, which the system itself cuts off (`RLIMIT_CPU`): how busy the machine is
//! decides nothing. Memory is the largest resident size that any run had, as the system counted it
//! (`RUSAGE_CHILDREN`); a limit of addresses (`RLIMIT_AS`) would count what the allocator reserves
//! and never touches. It only guards the machine here, far above.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use nix::sys::resource::{UsageWho, getrusage};

/// What one file may cost.
const MEMORY_MB_MAX: i64 = 256;
/// Seconds of the processor for what the issue asks of a release build. This one is not optimised
/// and takes about eight times as long.
const CPU_SECONDS_MAX: u32 = if cfg!(debug_assertions) { 16 } else { 2 };

static PEAK: AtomicI64 = AtomicI64::new(0);

/// A folder to work in.
pub(crate) struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir.path().join(name)).unwrap()
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.dir.path().join(name));
    }

    /// Runs a verb, which must end in one of these codes.
    pub(crate) fn run(&self, args: &[&str], codes: &[i32]) {
        let faults = self.faults(args, codes);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// Runs a verb and tells what is wrong with how it ended. It must end by itself, within the limits,
    /// without a panic, in one of these codes, and say what is wrong with which file and where.
    pub(crate) fn faults(&self, args: &[&str], codes: &[i32]) -> Vec<String> {
        let limits =
            format!("ulimit -c 0; ulimit -t {CPU_SECONDS_MAX}; ulimit -v 4194304; exec \"$0\" \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &limits, env!("CARGO_BIN_EXE_tidegate")])
            .args(args)
            .current_dir(self.dir.path())
            .env("TMPDIR", self.dir.path())
            .env_remove("TIDEGATE_GRIDS")
            .env_remove("PROJ_DATA")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() / 1024;
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        let start = |text: &str| text.chars().take(600).collect::<String>();
        let words = format!("{args:?}: {}, {peak} MB\n{}{}", output.status, start(&out), start(&err));
        let mut faults = Vec::new();
        let mut must = |holds: bool, what: &str| {
            if !holds {
                faults.push(format!("{what}: {words}"));
            }
        };
        let code = output.status.code();
        let file = args.get(1).copied().unwrap_or_default();
        must(output.status.signal().is_none(), "a signal");
        // The system remembers the largest: only who raised it is to blame.
        must(peak <= MEMORY_MB_MAX || peak <= PEAK.fetch_max(peak, Relaxed), "too much memory");
        must(!err.contains("internal error") && !err.contains("panicked"), "a panic");
        must(code.is_none_or(|code| codes.contains(&code)), "another end");
        // The list of `check` goes to standard output, all other words to standard error.
        let listed =
            out.contains(file) && out.lines().any(|line| line.contains("error record") && numbered(line));
        match code {
            Some(1 | 2) => must(listed || err.contains(file), "the place is not named"),
            Some(4) => {
                let rejected = err.lines().skip_while(|line| !line.ends_with("rejected:")).skip(1);
                must(
                    rejected.take_while(|line| line.starts_with("    ")).any(numbered),
                    "the record is not named",
                );
            }
            _ => {}
        }
        faults
    }
}

/// Whether a line names a record by its number; "1 record rejected:" names none.
fn numbered(line: &str) -> bool {
    line.match_indices("record ").any(|(at, word)| {
        line.get(at + word.len()..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}
