//! A workbench: a directory, a file of addresses, and runs of the built binary in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tidegate_chaos::{Config, FaultKind, Handle, spec};
use tidegate_geo::format::csv::{CsvOptions, CsvRow, RowReader};

pub(crate) use crate::common::provider::{chaos, fault, until_asked};
pub(crate) use crate::common::running::{Ran, Running};
use crate::common::workdir::Workdir;

/// One row of an output.
pub(crate) type Cells = BTreeMap<String, String>;

/// A directory for one test.
pub(crate) struct Bench(Workdir);

impl Deref for Bench {
    type Target = Workdir;
    fn deref(&self) -> &Workdir {
        &self.0
    }
}

impl Bench {
    /// With nothing in it.
    pub(crate) fn new() -> Bench {
        Bench(Workdir::new())
    }

    /// With `n` different addresses in `in.csv`.
    pub(crate) fn of_rows(n: usize) -> Bench {
        let rows: String = (1..=n).map(|i| format!("{i},{i} Harbour Road\n")).collect();
        Bench::of("in.csv", format!("id,address\n{rows}").as_bytes())
    }

    /// With one file in it.
    pub(crate) fn of(name: &str, bytes: &[u8]) -> Bench {
        let bench = Bench::new();
        bench.write(name, bytes);
        bench
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// `tidegate geocode` with these arguments and nothing else.
    pub(crate) fn bare(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(&["geocode"]);
        command.args(args).env("COLUMNS", "100").env("NO_COLOR", "1");
        command
    }

    /// The usual run: `in.csv` to `out.csv`, with the summary as JSON.
    pub(crate) fn command(&self, url: &str, args: &[&str]) -> Command {
        let mut all = vec!["in.csv", "--url", url, "--quiet", "--format", "json"];
        if !args.contains(&"--lon") && !args.contains(&"--address") {
            all.extend(["--address", "address"]);
        }
        if !args.contains(&"-o") {
            all.extend(["-o", "out.csv"]);
        }
        all.extend(args);
        self.bare(&all)
    }

    /// Runs the usual run.
    pub(crate) fn geocode(&self, url: &str, args: &[&str]) -> Ran {
        run(&mut self.command(url, args))
    }

    /// Starts the usual run.
    pub(crate) fn start(&self, url: &str, args: &[&str]) -> Running {
        Running::of(self.command(url, args).spawn().unwrap())
    }

    /// The rows of `out.csv`.
    pub(crate) fn out(&self) -> Vec<Cells> {
        self.rows("out.csv")
    }

    /// The rows of a CSV file.
    pub(crate) fn rows(&self, name: &str) -> Vec<Cells> {
        let file = fs::File::open(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut csv = RowReader::open(file, &CsvOptions::default()).unwrap();
        let header = csv.header().to_vec();
        let (mut row, mut rows) = (CsvRow::default(), Vec::new());
        while csv.read(&mut row).unwrap() {
            assert_eq!(row.problem, None);
            rows.push(header.iter().cloned().zip(row.cells().map(str::to_owned)).collect());
        }
        rows
    }

    /// One column of `out.csv`.
    pub(crate) fn column(&self, name: &str) -> Vec<String> {
        self.out()
            .iter()
            .map(|row| row.get(name).unwrap_or_else(|| panic!("no {name} in {row:?}")).clone())
            .collect()
    }

    /// Every file, with its bytes.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let with_bytes = |path: PathBuf| (path.clone(), fs::read(&path).unwrap());
        self.0.files().into_iter().map(with_bytes).collect()
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    Running::of(command.spawn().unwrap()).end()
}

/// Runs a command that reads `stdin`.
pub(crate) fn run_with(command: &mut Command, stdin: &[u8]) -> Ran {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // The command may refuse before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    Running::of(child).end()
}

/// A server with one kind of fault.
pub(crate) fn faulty(kind: FaultKind, when: &str) -> Handle {
    chaos(Config { faults: vec![fault(kind, when)], ..Config::default() })
}

/// A server with a throttle.
pub(crate) fn throttled(limit: &str) -> Config {
    Config { limit: spec::throttle(limit).unwrap(), ..Config::default() }
}
