//! Checks this machine, and the databases that a manifest names.

use std::path::{Path, PathBuf};

use tidegate_core::quote::shell;
use tidegate_geo::Crs;
use tidegate_geo::crs::{Grids, Transform};

use super::Diagnosis;
use super::database::database;
use crate::audit::{AuditLog, Copies, PUBLIC_FILE, PublicKey, Signer, TrustAnchors};
use crate::letter::{LetterError, LetterStore, LetterStoreLocation};
use crate::manifest::Manifest;
use crate::run::{
    AUDIT_COPIES, AUDIT_FILE, NamedPipeline, RunStatus, StateDir, StateError, StoredDefinition, letters, plan,
};
use crate::secret::SecretRef;

/// The checks that every command needs.
pub(super) fn machine(state: &Path, letters: &str) -> Vec<Diagnosis> {
    let next = "choose another directory with --state, or fix its permissions";
    vec![writable("state", state, next), letter_store(letters), projections()]
}

/// The directory itself, or its nearest existing parent.
fn nearest(dir: &Path) -> PathBuf {
    let mut dir = dir;
    while !dir.exists() {
        dir = match dir.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
    }
    dir.to_owned()
}

/// Whether files can be created in a directory, or the directory itself.
pub(super) fn writable(check: &str, dir: &Path, next: &str) -> Diagnosis {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let there = nearest(dir);
    let made = if there == dir { "is writable" } else { "can be created" };
    match tempfile::Builder::new().prefix(".tidegate-doctor-").tempfile_in(&there) {
        Ok(file) => match file.close() {
            Ok(()) => Diagnosis::ok(check, format!("{} {made}", dir.display())),
            Err(e) => Diagnosis::warn(check, format!("{}: cannot remove a file: {e}", there.display()), next),
        },
        Err(e) => Diagnosis::fail(check, format!("{} is not writable: {e}", there.display()), next),
    }
}

fn letter_store(place: &str) -> Diagnosis {
    let check = "dead letters";
    let at = match place.parse::<LetterStoreLocation>() {
        Ok(at) => at,
        Err(e) => return Diagnosis::fail(check, e.to_string(), "choose another store with --store"),
    };
    let mut store = match LetterStore::look(&at) {
        Ok(Some(store)) => store,
        Ok(None) => {
            return match &at {
                LetterStoreLocation::File(path) => {
                    let dir = path.parent().unwrap_or(Path::new("."));
                    writable(check, dir, "choose another store with --store")
                }
                LetterStoreLocation::Url(_) => {
                    Diagnosis::ok(check, format!("{at} is reachable and contains no store yet"))
                }
            };
        }
        Err(e) => {
            let next = match at {
                LetterStoreLocation::File(_) => {
                    "check that it is a dead letter store and that you can read it"
                }
                LetterStoreLocation::Url(_) => {
                    "check that the server is running and that the user and password are correct"
                }
            };
            let finding = Diagnosis::fail(check, format!("{at}: {e}"), next);
            return if matches!(e, LetterError::Unreachable(_)) { finding.theirs() } else { finding };
        }
    };
    if let Some(what) = store.check_signed().ok().and_then(|found| found.into_iter().next()) {
        let next = format!(
            "find out who changed it: `tidegate audit verify --store {0}`; the next run writes its definition anew",
            shell(&at.to_string())
        );
        return Diagnosis::warn(check, format!("{at}: {what}"), next);
    }
    match (store.count(&crate::letter::LetterFilter::default()), store.capacity()) {
        (Ok(held), Ok(capacity)) if held as f64 > capacity as f64 * 0.7 => Diagnosis::warn(
            check,
            format!("{at} holds {held} of {capacity} letters"),
            format!(
                "archive and purge letters, or raise the limit: `tidegate dlq capacity {} --store {}`",
                capacity * 2,
                shell(&at.to_string())
            ),
        ),
        (Ok(held), Ok(capacity)) => Diagnosis::ok(check, format!("{at} holds {held} of {capacity} letters")),
        (Err(e), _) | (_, Err(e)) => Diagnosis::fail(
            check,
            format!("{at}: {e}"),
            format!("inspect the store: `tidegate dlq ls --store {}`", shell(&at.to_string())),
        ),
    }
}

/// Checks a point with known coordinates: on the central meridian, at 48° N, the easting is 500,000
/// m by definition and the northing is the length of the meridian times 0.9996.
fn projections() -> Diagnosis {
    let check = "projections";
    let way = Transform::new(&Crs::wgs84(), &Crs::epsg(25_832)).and_then(|way| way.position(9.0, 48.0, 0.0));
    let next = "this build is broken; reinstall it";
    match way {
        Ok((x, y, _)) if (x - 500_000.0).hypot(y - NORTHING) < 0.01 => Diagnosis::ok(
            check,
            "the CRS table is complete, and a test point in EPSG:25832 is accurate to 1 cm",
        ),
        Ok((x, y, _)) => {
            Diagnosis::fail(check, format!("wrong result for a test point in EPSG:25832: {x} {y}"), next)
        }
        Err(e) => Diagnosis::fail(check, e.to_string(), next),
    }
}

const NORTHING: f64 = 5_316_300.224;

/// Checks the parts of a manifest. A source that does not answer is not read.
pub(super) fn pipeline(manifest: &Manifest, folder: &Path, state: &Path, answers: bool) -> Vec<Diagnosis> {
    let form = &manifest.pipeline;
    let mut found = secrets(manifest);
    found.extend(last_run(manifest, state));
    found.extend(audit(manifest, folder, state));
    found.extend(definition(manifest, folder, state));
    if form.source.is_none() {
        found.push(Diagnosis::warn(
            "pipeline",
            "the manifest contains only policies",
            "add `source` and `sink` to `pipeline`",
        ));
        return found;
    }
    match answers.then(|| plan(manifest, folder)) {
        None => {
            let next = "fix the service first, then run doctor again";
            found.push(Diagnosis::fail("source", "skipped: its service does not respond", next).theirs());
        }
        Some(Ok(plan)) => {
            let records = plan.records.map_or("an unknown number of".to_owned(), |n| n.to_string());
            found.push(Diagnosis::ok("source", format!("{records} records of {}", plan.layer)));
            let grids = crate::run::grids(form, folder).unwrap_or_default();
            found.extend(accuracy(plan.source_crs.as_deref(), &plan.sink_crs, &grids));
            found.extend(plan.sink_problems.iter().map(|problem| {
                let (what, next) = problem.split_once("; ").unwrap_or((problem, "change the table"));
                Diagnosis::fail("sink", what, next)
            }));
        }
        Some(Err(why)) => {
            let finding = Diagnosis::fail("pipeline", why.to_string(), "fix this, then check it once more");
            found.push(if why.status() == RunStatus::Waiting { finding.theirs() } else { finding });
        }
    }
    if let Some(sink) = &form.sink {
        found.push(match (&sink.file, &sink.postgis) {
            (Some(file), _) => {
                let path = folder.join(file);
                let dir = path.parent().unwrap_or(Path::new("."));
                if tidegate_core::bucket::BucketAddress::is_one(file) {
                    // Whether its service answers is checked elsewhere; writing to it is not tried.
                    return found;
                }
                let there =
                    path.exists() && std::fs::metadata(&path).is_ok_and(|m| m.permissions().readonly());
                if there {
                    Diagnosis::fail("sink", format!("{} is read-only", path.display()), "make it writable")
                } else if dir.as_os_str().is_empty() || dir.exists() {
                    writable("sink", dir, "fix the permissions, or choose another file")
                } else {
                    let next = "create the directory, or choose another file";
                    Diagnosis::fail("sink", format!("{} does not exist", dir.display()), next)
                }
            }
            (None, Some(table)) => database(table),
            (None, None) => Diagnosis::fail("sink", "neither a file nor a table", "see `tidegate schema`"),
        });
    }
    found
}

/// The accuracy of the transformation between the coordinate reference systems of a run.
fn accuracy(from: Option<&str>, to: &str, grids: &Grids) -> Option<Diagnosis> {
    let check = "systems";
    let from: Crs = from?.parse().ok()?;
    let to: Crs = to.parse().ok()?;
    if from == to {
        return Some(Diagnosis::ok(check, format!("{to} throughout")));
    }
    let way = match Transform::with_grids(&from, &to, grids) {
        Ok(way) => way,
        Err(e) => {
            let next = "choose other coordinate reference systems";
            return Some(Diagnosis::fail(check, format!("from {from} to {to}: {e}"), next));
        }
    };
    let stated = way.operation();
    let found = match stated.accuracy {
        Some(metres) => format!("from {from} to {to}, accurate to {metres} m"),
        None => format!("from {from} to {to}, ballpark only: no datum parameters are known"),
    };
    Some(match stated.missing.first() {
        Some(missing) => {
            let (grid, file) = (&missing.grid, missing.grid.files.first().copied().unwrap_or_default());
            let next = format!(
                "for a better accuracy, download the grid {file} ({} m for {}) and add its directory to `grids`",
                grid.accuracy, missing.crs
            );
            Diagnosis::warn(check, found, next)
        }
        None if stated.accuracy.is_none() => Diagnosis::warn(
            check,
            found,
            "if you need better accuracy, reproject first with a tool that supports this datum",
        ),
        None => Diagnosis::ok(check, found),
    })
}

fn secrets(manifest: &Manifest) -> Vec<Diagnosis> {
    let form = &manifest.pipeline;
    let keys = form
        .services
        .iter()
        .filter_map(|(name, service)| Some((format!("service {name}: key"), service.key.clone()?)));
    let audit = form.audit.key.clone().map(|key| ("audit: key".to_owned(), key));
    keys.chain(audit)
        .map(|(check, key)| match key.parse::<SecretRef>().and_then(|from| from.fetch()) {
            Ok(_) => Diagnosis::ok(check, format!("{key} is set")),
            Err(e) => Diagnosis::fail(check, e.to_string(), "set it, then run doctor again"),
        })
        .collect()
}

fn last_run(manifest: &Manifest, state: &Path) -> Option<Diagnosis> {
    let check = "last run";
    let id = &manifest.pipeline.id;
    let dir = StateDir::dir_of(state, id);
    if !dir.exists() {
        return None;
    }
    Some(match StateDir::open(state, id) {
        Err(StateError::Locked(what)) => Diagnosis::warn(check, what, "wait until it finishes"),
        Err(StateError::Failed(what)) => {
            Diagnosis::fail(check, what, "check the directory and its permissions")
        }
        Ok(state) => match state.last().map(|last| last.status()) {
            Err(what) => Diagnosis::fail(check, what, "remove the file to start a new run"),
            Ok(None | Some(RunStatus::Done)) => Diagnosis::ok(check, "finished, or no earlier run"),
            Ok(Some(RunStatus::Started | RunStatus::Running)) => {
                Diagnosis::warn(check, "was killed", "continue it: run the manifest with --resume")
            }
            Ok(Some(_)) => {
                Diagnosis::warn(check, "did not finish", "continue it: run the manifest with --resume")
            }
        },
    })
}

fn audit(manifest: &Manifest, folder: &Path, state: &Path) -> Option<Diagnosis> {
    let check = "audit";
    let dir = StateDir::dir_of(state, &manifest.pipeline.id);
    let path = dir.join(AUDIT_FILE);
    if !path.exists() {
        return None;
    }
    let log = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let copy =
        manifest.pipeline.audit.copy.as_ref().map_or_else(|| dir.join(AUDIT_COPIES), |p| folder.join(p));
    let verify = format!("tidegate audit verify --state {}", shell(&state.display().to_string()));
    let looked = || -> Result<Diagnosis, String> {
        let mut keys = Vec::new();
        if let Ok(text) = std::fs::read_to_string(state.join(PUBLIC_FILE)) {
            keys = PublicKey::all_from_text(&text).map_err(|e| e.to_string())?;
        }
        if let Some(key) = &manifest.pipeline.audit.key {
            let from = key.parse::<SecretRef>().map_err(|e| e.to_string())?;
            let text = from.fetch().map_err(|e| e.to_string())?;
            keys.push(Signer::from_text(text.reveal()).map_err(|e| e.to_string())?.public());
        }
        let copies = Copies::new(&copy, &log).read().map_err(|e| e.to_string())?.checkpoints;
        let trust = TrustAnchors { keys, copies };
        let verified = AuditLog::look(&path, &log).and_then(|mut log| log.verify(&trust));
        Ok(match verified.map_err(|e| e.to_string())? {
            Ok(whole) => Diagnosis::ok(check, format!("{} entries, intact", whole.entries)),
            Err(what) => Diagnosis::fail(
                check,
                what.to_string(),
                format!(
                    "investigate who changed it; `{verify}` shows details. To start a new audit, move the directory away"
                ),
            ),
        })
    };
    Some(looked().unwrap_or_else(|e| Diagnosis::fail(check, e, format!("check with `{verify}`"))))
}

/// Compares what the letter store says of the pipeline with its manifest, which applies.
fn definition(manifest: &Manifest, folder: &Path, state: &Path) -> Option<Diagnosis> {
    let check = "definition";
    let id = &manifest.pipeline.id;
    let form = manifest.pipeline.dead_letters.as_ref()?;
    // A store that cannot be reached is reported by a run, and so is a reference that is not set.
    let place = letters::place(form, folder, state).ok()?;
    let mut store = LetterStore::look(&place).ok()??;
    let stored = StoredDefinition::read(&mut store, id).ok()??;
    let named = NamedPipeline {
        manifest: manifest.clone(),
        name: "this manifest".into(),
        folder: folder.to_owned(),
        state: state.to_owned(),
    };
    Some(match stored.contradicts(&named) {
        None => Diagnosis::ok(check, format!("the store of dead letters knows {id} as this manifest has it")),
        Some(what) => Diagnosis::warn(
            check,
            what,
            format!(
                "if nobody has changed the manifest since the last run, somebody has changed the store: `tidegate audit verify --store {}`",
                shell(&place.to_string())
            ),
        ),
    })
}
