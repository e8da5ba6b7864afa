//! Commands as functions, for a program that holds this one: the Python package.
//!
//! A command reads standard input, writes data to standard output and messages to standard error,
//! obeys signals and draws its progress. In a host all of these belong to the host, so it gets them
//! as values instead. Why a thread-local and not a parameter of every command: the commands stay
//! exactly those of the command line, with one path for both.

use std::cell::RefCell;
use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidegate_client::lock::lock;
use tidegate_pipeline::run::RunWatch;

use crate::exit::Exit;
use crate::progress::{self, RecentRate};
use crate::verb::{Verb, chaos};
use crate::{Args, given, perform};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Host>>> = const { RefCell::new(None) };
}

/// The host of the command on this thread.
pub(crate) fn current() -> Option<Arc<Host>> {
    CURRENT.with_borrow(Clone::clone)
}

/// A program that calls one command.
#[derive(Default)]
pub struct Host {
    input: Option<String>,
    program: Option<PathBuf>,
    output: Mutex<CommandOutput>,
    stop: Mutex<StopFlags>,
    run: Mutex<Option<WatchedRun>>,
}

/// What a command wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code.
    pub exit: u8,
    /// The data, from standard output.
    pub data: String,
    /// The messages, from standard error.
    pub messages: String,
    /// The code of the taxonomy for its failure, if the command knows it.
    pub code: Option<String>,
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostProgress {
    /// Records read.
    pub read: u64,
    /// Records committed.
    pub written: u64,
    /// Records rejected.
    pub rejected: u64,
    /// Records that have an outcome.
    pub done: u64,
    /// Records in the source; 0 if unknown.
    pub total: u64,
    /// The progress in words, as the command line shows it.
    pub words: String,
}

#[derive(Default)]
struct StopFlags {
    asked: bool,
    flags: Vec<Arc<AtomicBool>>,
}

struct WatchedRun {
    watch: Arc<RunWatch>,
    began: Instant,
    rate: RecentRate,
}

impl Host {
    /// A host that gives the command this standard input. `program` starts the command line, for a
    /// run that tries records in a process of their own.
    #[must_use]
    pub fn new(input: Option<String>, program: Option<PathBuf>) -> Arc<Host> {
        Arc::new(Host { input, program, ..Host::default() })
    }

    /// Calls a command, such as `["run", "parcels.yaml"]`. It runs on this thread to its end.
    pub fn command(self: &Arc<Host>, words: Vec<OsString>) -> CommandOutput {
        let before = CURRENT.replace(Some(Arc::clone(self)));
        let exit = match parse(words) {
            Ok(verb) => panic::catch_unwind(AssertUnwindSafe(|| perform(&verb))).unwrap_or_else(|_| {
                self.say("tidegate hit an internal error. Please report this bug with the call and the lines above");
                Exit::Failure
            }),
            Err(usage) => {
                self.say(usage.trim_end());
                Exit::Usage
            }
        };
        CURRENT.set(before);
        let mut output = std::mem::take(&mut *lock(&self.output));
        output.exit = exit as u8;
        output
    }

    /// Asks the command to stop: the current batch is committed.
    pub fn stop(&self) {
        let mut stop = lock(&self.stop);
        stop.asked = true;
        for flag in &stop.flags {
            flag.store(true, Ordering::SeqCst);
        }
    }

    /// How far the run is; `None` before it has started, and for commands that are not runs.
    pub fn progress(&self) -> Option<HostProgress> {
        let mut run = lock(&self.run);
        let WatchedRun { watch, began, rate } = run.as_mut()?;
        let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        let (elapsed, done) = (began.elapsed(), get(&watch.done));
        let begun = watch.begun.load(Ordering::Relaxed);
        let rate = if begun { rate.read(elapsed, done) } else { 0.0 };
        Some(HostProgress {
            read: get(&watch.read),
            written: get(&watch.written),
            rejected: get(&watch.dead),
            done,
            total: get(&watch.total),
            words: progress::words(watch, progress::Progress { started: elapsed, rate }),
        })
    }

    /// Sets the flag when the host asks to stop.
    pub(crate) fn stops(&self, flag: &Arc<AtomicBool>) {
        let mut stop = lock(&self.stop);
        flag.store(stop.asked, Ordering::SeqCst);
        stop.flags.push(Arc::clone(flag));
    }

    /// Shows this run.
    pub(crate) fn watches(&self, watch: &Arc<RunWatch>) {
        let run = WatchedRun { watch: Arc::clone(watch), began: Instant::now(), rate: RecentRate::default() };
        *lock(&self.run) = Some(run);
    }

    pub(crate) fn input(&self) -> String {
        self.input.clone().unwrap_or_default()
    }

    pub(crate) fn program(&self) -> Option<PathBuf> {
        self.program.clone()
    }

    pub(crate) fn data(&self, text: &str) {
        lock(&self.output).data.push_str(text);
    }

    pub(crate) fn failed(&self, code: &str) {
        lock(&self.output).code = Some(code.to_owned());
    }

    pub(crate) fn say(&self, text: &str) {
        let mut output = lock(&self.output);
        output.messages.push_str(text);
        output.messages.push('\n');
    }
}

/// Starts the faulty provider of `tidegate chaos` with these options. It stops when the handle is
/// dropped.
///
/// # Errors
/// When an option is invalid, or the address cannot be bound.
pub fn start_chaos(options: Vec<OsString>) -> Result<tidegate_chaos::Handle, String> {
    let words = std::iter::once("chaos".into()).chain(options).collect();
    match parse(words)? {
        Verb::Chaos(args) => chaos::start(&args),
        _ => Err("these are not options of chaos".to_owned()),
    }
}

/// The command of these words, without the name of the program.
fn parse(words: Vec<OsString>) -> Result<Verb, String> {
    let words = std::iter::once(OsString::from("tidegate")).chain(words).collect();
    given::parse::<Args>(words).map(|args| args.verb).map_err(|usage| usage.render().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_command_reads_and_writes_values() {
        let host = Host::new(Some("pipeline: {}\n".into()), None);
        let output = host.command(words("validate - --format json"));
        assert_eq!(output.exit, 2);
        assert!(output.data.contains("\"code\": \"missing"), "{}", output.data);
        assert!(current().is_none());
    }

    #[test]
    fn a_wrong_word_is_a_usage_error() {
        let output = Host::new(None, None).command(words("validat -"));
        assert_eq!(output.exit, 2);
        assert!(output.messages.contains("validate"), "{}", output.messages);
    }

    #[test]
    fn a_stop_reaches_flags_of_before_and_after() {
        let (host, before, after) = (Host::default(), Arc::default(), Arc::default());
        host.stops(&before);
        host.stop();
        host.stops(&after);
        assert!(before.load(Ordering::SeqCst) && after.load(Ordering::SeqCst));
    }

    #[test]
    fn chaos_starts_by_its_options() {
        let handle = start_chaos(words("--throttle bucket:50/s,burst=10")).expect("it starts");
        assert_eq!(handle.stats().requests, 0);
        assert!(start_chaos(words("--throttle nonsense")).unwrap_err().contains("--throttle"));
    }
}
