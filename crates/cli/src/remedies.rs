//! What a run does about dead letters unasked, before its first record and after its last.

use std::sync::atomic::AtomicBool;

use tidegate_ledger::letter::LetterStoreLocation;
use tidegate_pipeline::manifest::Manifest;
use tidegate_pipeline::run::auto::{self, AutoReport};
use tidegate_pipeline::run::{End, NamedPipeline, RunOptions, RunReport, RunWatch, letters};
use tracing::warn;

/// The remedies of a run.
pub(crate) struct Remedies {
    named: NamedPipeline,
    /// The letter store of a manifest file.
    store: Option<LetterStoreLocation>,
    /// What was done.
    pub(crate) done: AutoReport,
    /// Whether no letter that failed in the run is open any more.
    pub(crate) all_resolved: bool,
}

impl Remedies {
    /// If the location of the store cannot be resolved, the run reports it.
    pub(crate) fn new(manifest: &Manifest, options: &RunOptions) -> Remedies {
        let form = manifest.pipeline.dead_letters.as_ref().filter(|_| !options.from_options);
        let store = form.and_then(|form| letters::place(form, &options.folder, &options.state).ok());
        let named = NamedPipeline::of_run(manifest, options);
        Remedies { named, store, done: AutoReport::default(), all_resolved: false }
    }

    /// Acts on all letters that are due.
    pub(crate) fn before(&mut self, stop: &AtomicBool) {
        self.act(None, stop);
    }

    /// Acts on the letters that failed in a run that is complete.
    pub(crate) fn after(&mut self, report: &RunReport, watch: &RunWatch) {
        let (End::Done, Some(began)) = (&report.end, report.began.began_ms()) else { return };
        let resolved = self.act(Some(began), &watch.stop).resolved;
        watch.telemetry.records.resolved(resolved);
        if let Some(place) = &self.store {
            let open = auto::open_since(place, self.named.id(), began);
            self.all_resolved = resolved > 0 && open == Ok(0);
        }
    }

    /// What hinders it does not hinder the run.
    fn act(&mut self, since_ms: Option<i64>, stop: &AtomicBool) -> AutoReport {
        let Some(place) = &self.store else { return AutoReport::default() };
        let done = auto::remedy(place, &self.named, since_ms, stop).unwrap_or_else(|why| {
            warn!(target: "tidegate::letter", "letters are not replayed now: {why}");
            AutoReport::default()
        });
        self.done = self.done + done;
        done
    }
}
