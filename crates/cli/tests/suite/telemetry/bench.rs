//! A directory to run in, and the servers that a run meets.

use std::ops::Deref;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::canned::{Canned, MATCH, json};
use crate::common::running::Ran;
use crate::common::workdir::Workdir;

/// A server that takes whatever comes.
pub(crate) fn taking() -> Canned {
    Canned::start(|_| json("200 OK", ""))
}

/// A geocoder with the status that its n-th call has, from 0; every address is found.
pub(crate) fn geocoder(status: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Canned {
    let calls = AtomicUsize::new(0);
    Canned::start(move |_| match status(calls.fetch_add(1, Ordering::SeqCst)) {
        "200 OK" => json("200 OK", MATCH),
        other => json(other, "{}"),
    })
}

/// A directory to run in.
pub(crate) struct Bench(Workdir);

impl Deref for Bench {
    type Target = Workdir;
    fn deref(&self) -> &Workdir {
        &self.0
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench(Workdir::new())
    }

    /// With so many addresses in `in.csv`.
    pub(crate) fn addresses(n: usize) -> Bench {
        let bench = Bench::new();
        let rows: String = (0..n).map(|i| format!("{i},{i} Harbour Road\n")).collect();
        bench.write("in.csv", &format!("id,address\n{rows}"));
        bench
    }

    /// A manifest `m.yaml` with these parts, indented by two.
    pub(crate) fn manifest(&self, parts: &str) {
        let parts: String = parts.lines().map(|line| format!("  {line}\n")).collect();
        self.write(
            "m.yaml",
            &format!(
                "pipeline:\n  id: parcels\n  retry_policy: {{ max_attempts: 4, base_delay: 5ms, max_delay: 20ms, retryable_status_codes: [429, 503] }}\n  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}\n{parts}"
            ),
        );
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(args);
        command.env("NO_COLOR", "1");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        self.command(args).envs(env.iter().copied()).output().unwrap().into()
    }
}
