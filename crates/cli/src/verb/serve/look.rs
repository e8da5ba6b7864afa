//! Reads the state directory and the stores, and evaluates alerts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tidegate_client::secret;
use tidegate_core::alert::{Alert, AlertChange};
use tidegate_ledger::letter::store::{By, Health, Incident, LetterGroup};
use tidegate_ledger::letter::{LetterError, LetterFilter, LetterStore, LetterStoreLocation, now_ms};
use tidegate_pipeline::alert::{Actions, Watchman};
use tidegate_pipeline::manifest::AlertsSpec;
use tidegate_pipeline::run::{
    DefinitionKind, LastRun, NamedPipeline, StoredDefinition, auto, last_runs, letters,
};
use tidegate_pipeline::telemetry::Telemetry;
use tracing::warn;

use crate::execute::counted;
use crate::out;
use crate::verb::dlq::unarchived;

/// An alert that is firing.
pub(super) struct Firing {
    pub(super) alert: Alert,
    /// Time at which it started to fire, in milliseconds since 1970.
    pub(super) since_ms: i64,
    pub(super) said: String,
    /// The recommended action.
    pub(super) advice: String,
}

/// The state of one store.
pub(super) struct StoreSummary {
    /// Its name in metrics.
    pub(super) name: String,
    /// Its location for people, without a password.
    pub(super) place: String,
    /// Whether it exists; a file is created with its first letter.
    pub(super) there: bool,
    /// Why it could not be read.
    pub(super) fault: Option<String>,
    /// Its size and activity.
    pub(super) health: Option<Health>,
    /// The counts of its letters by code.
    pub(super) codes: Vec<LetterGroup>,
    /// The open incidents, which suspend pipelines.
    pub(super) incidents: Vec<Incident>,
    /// What is done with the letters of each pipeline that the store knows, and how it is compared with
    /// its manifest; one sentence each.
    pub(super) pipelines: Vec<String>,
    /// The number of letters purged since the start.
    pub(super) purged: u64,
    /// The alerts that are firing.
    pub(super) firing: Vec<Firing>,
    /// All alerts that are evaluated, and whether they fire.
    pub(super) judged: Vec<(&'static str, bool)>,
}

/// The result of the last reading.
pub(super) struct StoreView {
    /// Time of the reading, in milliseconds since 1970.
    pub(super) at_ms: i64,
    /// Time at which the server started, in milliseconds since 1970.
    pub(super) began_ms: i64,
    pub(super) state: Option<PathBuf>,
    pub(super) runs: Vec<LastRun>,
    /// Why the state could not be read.
    pub(super) fault: Option<String>,
    pub(super) stores: Vec<StoreSummary>,
}

impl StoreView {
    /// One sentence on what is monitored.
    pub(super) fn told(&self) -> String {
        let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let stores = self.stores.iter().filter(|seen| seen.there).count();
        format!("{} and {}", count(self.runs.len(), "pipeline"), count(stores, "store"))
    }

    /// What could not be read, one line each.
    pub(super) fn faults(&self) -> Vec<String> {
        let stores = self.stores.iter().filter_map(|seen| {
            seen.fault.as_ref().map(|why| format!("cannot read the store {}: {why}\n", seen.place))
        });
        let state = self.fault.iter().map(|why| format!("cannot read the state directory: {why}\n"));
        state.chain(stores).collect()
    }
}

/// An alert of a store that has started or stopped firing, and its actions.
pub(super) struct Changed {
    pub(super) actions: Arc<Actions>,
    pub(super) change: AlertChange,
    pub(super) name: String,
    /// The store, for people.
    pub(super) place: String,
}

/// A monitored store.
struct Watched {
    name: String,
    place: LetterStoreLocation,
    telemetry: Arc<Telemetry>,
    watchman: Watchman,
    /// Time of the last purge.
    retained: Option<Instant>,
    /// The number of letters purged since the start.
    purged: u64,
    /// The last warning about open letters past their retention.
    unarchived: Option<String>,
    /// What was said of its pipelines.
    said: BTreeSet<String>,
    failing: bool,
}

/// Reads the stores and keeps the state between readings.
pub(super) struct Keeper {
    state: Option<PathBuf>,
    stores: Vec<Watched>,
    /// The pipelines that a person named: what is done, is done by their manifests.
    named: Vec<NamedPipeline>,
    /// The interval of purging.
    every: Duration,
    began: Instant,
    began_ms: i64,
}

/// Whether a store exists, without creating it.
pub(super) fn is_there(place: &LetterStoreLocation) -> bool {
    !matches!(place, LetterStoreLocation::File(path) if !path.exists())
}

/// The name of a store in metrics: the file without its extension, or the schema. It contains no
/// host name.
fn name(place: &LetterStoreLocation) -> String {
    match place {
        LetterStoreLocation::File(path) => format!("letters:{}", path.with_extension("").display()),
        LetterStoreLocation::Url(url) => {
            let schema = url::Url::parse(url.reveal()).ok().and_then(|url| {
                url.query_pairs().find(|(key, _)| key == "schema").map(|(_, name)| name.into_owned())
            });
            format!("letters:{}", schema.as_deref().unwrap_or("tidegate"))
        }
    }
}

impl Keeper {
    /// Monitors these stores with these alerts.
    ///
    /// # Errors
    /// An alert action that cannot work.
    pub(super) fn new(
        state: Option<PathBuf>,
        places: &[LetterStoreLocation],
        alerts: Option<&AlertsSpec>,
    ) -> Result<Keeper, String> {
        let mut stores: Vec<Watched> = Vec::new();
        for place in places {
            let plain = name(place);
            let mut name = plain.clone();
            let mut number = 1;
            while stores.iter().any(|store| store.name == name) {
                number += 1;
                name = format!("{plain}#{number}");
            }
            let telemetry = Arc::new(Telemetry::new(&name));
            let watchman = Watchman::new(&telemetry, alerts)?.of_store(&place.to_string());
            stores.push(Watched {
                name,
                place: place.clone(),
                telemetry,
                watchman,
                retained: None,
                purged: 0,
                unarchived: None,
                said: BTreeSet::new(),
                failing: false,
            });
        }
        let every = Duration::from_secs(600);
        let named = Vec::new();
        Ok(Keeper { state, stores, named, every, began: Instant::now(), began_ms: now_ms() })
    }

    /// Sets the interval of purging.
    pub(super) fn every(self, every: Duration) -> Keeper {
        Keeper { every, ..self }
    }

    /// Applies the rules of these pipelines to their letters.
    pub(super) fn acting_for(self, named: Vec<NamedPipeline>) -> Keeper {
        Keeper { named, ..self }
    }

    /// Reads everything once.
    pub(super) fn look(&mut self) -> (StoreView, Vec<Changed>) {
        let (runs, fault) = match self.state.as_deref().map_or(Ok(Vec::new()), last_runs) {
            Ok(runs) => (runs, None),
            Err(why) => (Vec::new(), Some(why.to_string())),
        };
        let mut view = StoreView {
            at_ms: now_ms(),
            began_ms: self.began_ms,
            state: self.state.clone(),
            runs,
            fault,
            stores: Vec::new(),
        };
        let mut changes = Vec::new();
        let at = self.began.elapsed();
        for store in &mut self.stores {
            let mut seen = store.look(self.every, &self.named);
            for change in store.watchman.look(at) {
                changes.push(Changed {
                    actions: store.watchman.actions(),
                    change,
                    name: store.name.clone(),
                    place: store.place.to_string(),
                });
            }
            let firing = store.watchman.fired().iter().filter(|fired| fired.ended.is_none());
            seen.firing = firing
                .map(|fired| Firing {
                    alert: fired.alert,
                    since_ms: self.began_ms + fired.at.as_millis() as i64,
                    said: fired.said.clone(),
                    advice: fired.advice.clone(),
                })
                .collect();
            // The other alerts are about calls, of which there are none here.
            let about_letters = [Alert::LettersFull.name(), Alert::LetterAge.name()];
            seen.judged = store.telemetry.alert_states();
            seen.judged.retain(|(alert, _)| about_letters.contains(alert));
            view.stores.push(seen);
        }
        (view, changes)
    }
}

impl Watched {
    fn look(&mut self, every: Duration, named: &[NamedPipeline]) -> StoreSummary {
        let mut seen = StoreSummary {
            name: self.name.clone(),
            place: self.place.to_string(),
            there: is_there(&self.place),
            fault: None,
            health: None,
            codes: Vec::new(),
            incidents: Vec::new(),
            pipelines: Vec::new(),
            purged: 0,
            firing: Vec::new(),
            judged: Vec::new(),
        };
        if !seen.there {
            // A missing store is neither full nor old.
            self.telemetry.letters(Health { capacity: 1, ..Health::default() });
        } else if let Err(why) = self.read((every, named), &mut seen) {
            let why = secret::mask(&why.to_string()).into_owned();
            if !self.failing {
                warn!(target: "tidegate::serve", store = seen.place, "cannot read the store: {why}");
            }
            seen.fault = Some(why);
        }
        self.failing = seen.fault.is_some();
        seen.purged = self.purged;
        seen
    }

    /// Repairs and replays the letters of the named pipelines that are due, as a run does.
    fn remedy(&self, named: &[NamedPipeline]) {
        let stop = AtomicBool::new(false);
        for one in named {
            match auto::remedy_between_runs(&self.place, one, &stop) {
                Ok(done) if done.is_nothing() => {}
                Ok(done) => out::say(&format!("tidegate serve: {}: {done}", one.id())),
                Err(why) => {
                    let (why, pipeline) = (secret::mask(&why).into_owned(), one.id());
                    warn!(target: "tidegate::serve", pipeline, "letters are not replayed now: {why}");
                }
            }
        }
    }

    /// Compares what the store says of its pipelines with what was named, and says it once.
    fn compare(
        &mut self,
        store: &mut LetterStore,
        named: &[NamedPipeline],
    ) -> Result<Vec<String>, LetterError> {
        let mut all = Vec::new();
        for pipeline in store.pipelines()? {
            let Some(stored) = StoredDefinition::read(store, &pipeline)? else { continue };
            if stored.kind() != DefinitionKind::Manifest {
                continue;
            }
            let (what, is_news) = match named.iter().find(|one| one.id() == pipeline) {
                None => (
                    format!(
                        "the letters of {pipeline} are only shown: its manifest was not named with --manifest"
                    ),
                    !named.is_empty(),
                ),
                Some(one) if !stored.is_state(&one.state) => (
                    format!(
                        "the last run of {pipeline} used the state directory {}, and this is {}: its letters are not replayed; name it with --state",
                        stored.state(),
                        one.state.display()
                    ),
                    true,
                ),
                Some(one) => match stored.contradicts(one) {
                    Some(what) => (what, true),
                    None => (format!("the letters of {pipeline} are treated as {} says", one.name), false),
                },
            };
            if is_news && self.said.insert(what.clone()) {
                out::say(&format!("tidegate serve: {what}"));
            }
            all.push(what);
        }
        Ok(all)
    }

    fn read(
        &mut self,
        (every, named): (Duration, &[NamedPipeline]),
        seen: &mut StoreSummary,
    ) -> Result<(), LetterError> {
        let mut store = LetterStore::open(&self.place)?;
        let now = now_ms();
        seen.pipelines = self.compare(&mut store, named)?;
        let remedies_due = self.retained.is_none_or(|at| at.elapsed() >= every);
        if remedies_due {
            let archives = named.iter().filter_map(|one| letters::archive(&one.manifest, &one.folder));
            let done = store.retain(now, &archives.collect::<Vec<_>>())?;
            self.retained = Some(Instant::now());
            self.purged += done.purged;
            let why = unarchived(&done);
            if let Some(why) = why.as_ref().filter(|_| self.unarchived != why) {
                warn!(target: "tidegate::serve", store = %self.place, "{why}");
            }
            self.unarchived = why;
            if done.purged > 0 {
                out::say(&format!(
                    "tidegate serve: purged {} past the retention period from {}",
                    counted(done.purged, "letter", "letters"),
                    self.place
                ));
            }
        }
        if remedies_due {
            self.remedy(named);
        }
        let health = store.health(now)?;
        seen.codes = store.stats(&LetterFilter::default(), By::Code, now)?;
        seen.incidents = store.incidents(None)?;
        self.telemetry.letters(health.clone());
        seen.health = Some(health);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_a_name_without_addresses() {
        for (place, expected) in [
            (".tidegate/letters.db", "letters:.tidegate/letters"),
            ("postgres://me@db.example/geo?schema=north", "letters:north"),
            ("postgres://db.example/geo", "letters:tidegate"),
        ] {
            assert_eq!(name(&place.parse().unwrap()), expected);
        }
        let places = ["a.db", "a.sqlite"].map(|place| place.parse().unwrap());
        let keeper = Keeper::new(None, &places, None).unwrap();
        assert_eq!(keeper.stores[1].name, "letters:a#2");
    }

    #[test]
    fn what_is_not_there_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let place = LetterStoreLocation::File(dir.path().join("letters.db"));
        let mut keeper = Keeper::new(Some(dir.path().to_owned()), &[place], None).unwrap();
        let (view, changes) = keeper.look();
        assert!(changes.is_empty() && view.faults().is_empty() && !view.stores[0].there);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
