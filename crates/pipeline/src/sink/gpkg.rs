//! A GeoPackage: rows, checkpoint and seen keys in one file and one transaction.
//!
//! A new file, a replaced layer and an `--atomic` run are written to a *stage*: a GeoPackage under
//! a hidden name beside the target, which is renamed to the target when it is complete. The stage
//! survives a kill, and a resumed run continues in it. An upsert or append into an existing file
//! writes to it directly, batch by batch.
//!
//! Our two tables are removed when the run is complete, so that no GIS shows them as layers. Only
//! an append into an existing file keeps them, because without them a second resume would append
//! again. The table of tasks of a queue stays too.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};
use tidegate_core::Code;
use tidegate_core::hex::hex;
use tidegate_geo::format::gpkg::{self, Landed, Store, Upsert, Writing};
use tidegate_geo::{Batch, Error};

use super::{
    AbsentRows, RowCounts, Saved, SavedWatermark, Sink, SinkError, Spec, Standing, TaskEnd, WORKER_MARK,
    tasks,
};
use crate::manifest::WriteMode;
use crate::step::SeenKey;

struct GeoPackage {
    store: Option<Store>,
    pipeline: String,
    /// The file being written; `target` is the final path if it differs.
    path: PathBuf,
    target: Option<PathBuf>,
    keep_tables: bool,
    /// Whether a row is found by the number of its record.
    by_number: bool,
    /// Whether to remove what an earlier run left, with the first commit.
    forget: bool,
    /// The pipeline whose tasks these are.
    task_pipeline: String,
    open: bool,
    /// The identity of the target when the stage was started: changes by others are not overwritten
    /// at the end.
    before: String,
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS tidegate_checkpoint (pipeline TEXT PRIMARY KEY NOT NULL, checkpoint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tidegate_seen (pipeline TEXT NOT NULL, scope INTEGER NOT NULL, hash BLOB NOT NULL,
  PRIMARY KEY (pipeline, scope, hash)) WITHOUT ROWID;
";

/// How far the source of each pipeline was read. It stays in the file.
const WATERMARK: &str = "CREATE TABLE IF NOT EXISTS tidegate_watermark (pipeline TEXT PRIMARY KEY NOT NULL, watermark TEXT NOT NULL)";

/// The number of files that this process has begun for workers.
static DRAFTS: AtomicU32 = AtomicU32::new(0);

/// See [`super::watermark`].
pub(super) fn watermark(
    path: &Path,
    layer: &str,
    pipeline: &str,
) -> Result<Option<SavedWatermark>, SinkError> {
    if !path.exists() {
        return Ok(None);
    }
    let look = || -> Result<Option<SavedWatermark>, Error> {
        let db = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let sql = "SELECT count(*) = 2 FROM sqlite_master WHERE type = 'table' AND name IN ('tidegate_watermark', ?1)";
        if !db.query_row(sql, [layer], |row| row.get::<_, bool>(0))? {
            return Ok(None);
        }
        let sql = "SELECT watermark FROM tidegate_watermark WHERE pipeline = ?1";
        let Some(watermark) = db.query_row(sql, [pipeline], |row| row.get(0)).optional()? else {
            return Ok(None);
        };
        let standing = Standing { identity: String::new(), rows: Some(gpkg::count(&db, layer)?) };
        Ok(Some(SavedWatermark { watermark, standing }))
    };
    look().map_err(|e| judge(e).at(path.display()))
}

/// The hidden name of a target's stage, fixed per pipeline.
fn stage_of(target: &Path, pipeline: &str) -> PathBuf {
    let hash: [u8; 32] = Sha256::digest(pipeline.as_bytes()).into();
    let short = hex(&hash[..4]);
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    target.with_file_name(format!(".{name}.stage-{short}"))
}

/// The table with the keys that a run has seen, for `mode: sync`.
fn keys_table(pipeline: &str, layer: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(format!("{pipeline}:{layer}").as_bytes()).into();
    format!("tidegate_keys_{}", hex(&hash[..8]))
}

fn remove(path: &Path) -> Result<(), String> {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    for path in [path, Path::new(&journal)] {
        match fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {e}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn open(spec: &Spec, target: &Path, layer: &str) -> Result<Box<dyn Sink>, SinkError> {
    let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", target.display());
    let stage = stage_of(target, &spec.pipeline);
    if spec.by_tasks {
        create(spec, target, layer)?;
    } else if !spec.resume {
        remove(&stage)?;
    }
    if spec.must_exist && !stage.exists() && !target.exists() {
        return Err(SinkError::Fatal(format!("{} no longer exists", target.display())));
    }
    let staged = !spec.by_tasks
        && (stage.exists() || spec.mode == WriteMode::Replace || spec.atomic || !target.exists());
    if staged && !stage.exists() {
        prepare(spec, target, layer, &stage).map_err(|e| fail(&e))?;
    }
    let path = if staged { stage } else { target.to_owned() };
    let mut store = Store::open(&path, layer, &spec.schema, &spec.crs, writing(spec, layer))
        .map_err(|e| judge(e).at(target.display()))?;
    store.db().execute_batch(TABLES).map_err(|e| judge(e.into()).at(target.display()))?;
    if spec.by_tasks {
        // It does not end, so nobody would make them at the end.
        store.keep_index().map_err(|e| judge(e).at(target.display()))?;
        forget_workers(store.db(), spec).map_err(|e| judge(e.into()).at(target.display()))?;
    }
    Ok(Box::new(GeoPackage {
        store: Some(store),
        pipeline: spec.pipeline.clone(),
        keep_tables: !staged && spec.mode == WriteMode::Append && !spec.by_tasks,
        by_number: spec.by_number,
        before: file_identity(target),
        target: staged.then(|| target.to_owned()),
        path,
        forget: !spec.resume,
        task_pipeline: spec.task_pipeline().to_owned(),
        open: false,
    }))
}

/// Removes the checkpoints of other workers: those that were killed left them. A worker that lives has
/// one again with its next commit. It would miss it only to learn whether a commit succeeded, and the
/// states of the tasks tell that, too.
fn forget_workers(db: &Connection, spec: &Spec) -> rusqlite::Result<()> {
    let prefix = format!("{}{WORKER_MARK}", spec.task_pipeline());
    let replay = spec.replay_pipeline();
    for table in ["tidegate_checkpoint", "tidegate_seen"] {
        let sql = format!(
            "DELETE FROM {table} WHERE substr(pipeline, 1, length(?1)) = ?1 AND pipeline NOT IN (?2, ?3)"
        );
        db.execute(&sql, [&prefix, &spec.pipeline, &replay])?;
    }
    Ok(())
}

fn writing(spec: &Spec, layer: &str) -> Writing {
    if !spec.mode.is_keyed() {
        return Writing::Append;
    }
    Writing::Upsert(Upsert {
        key: spec.key.clone(),
        managed: spec.managed,
        at: spec.at.to_string(),
        keys_table: (spec.mode == WriteMode::Sync).then(|| keys_table(&spec.pipeline, layer)),
    })
}

/// Creates the target with an empty layer, for workers that write in place. Two workers may do it at
/// once: the file gets its name when it is complete, and only if there is none.
pub(super) fn create(spec: &Spec, target: &Path, layer: &str) -> Result<(), SinkError> {
    create_file(spec, target, layer, false)
}

/// Creates the target without the layer, for those who do not know its fields.
pub(super) fn create_bare(spec: &Spec, target: &Path, layer: &str) -> Result<(), SinkError> {
    create_file(spec, target, layer, true)
}

fn create_file(spec: &Spec, target: &Path, layer: &str, is_bare: bool) -> Result<(), SinkError> {
    if target.exists() {
        return Ok(());
    }
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = target.with_file_name(format!(".{name}.new-{}-{number}", std::process::id()));
    let make = || -> Result<(), SinkError> {
        remove(&draft)?;
        let mut store =
            Store::open(&draft, layer, &spec.schema, &spec.crs, writing(spec, layer)).map_err(judge)?;
        store.finish().map_err(judge)?;
        store.close().map_err(judge)?;
        if is_bare {
            Store::drop_layer(&draft, layer).map_err(judge)?;
        }
        File::open(&draft).and_then(|file| file.sync_all()).map_err(|e| e.to_string())?;
        match fs::hard_link(&draft, target) {
            Err(_) if target.exists() => Ok(()),
            // A file system without links.
            Err(_) => fs::rename(&draft, target).map_err(|e| e.to_string().into()),
            Ok(()) => Ok(()),
        }
    };
    let made = make();
    let _ = remove(&draft);
    made.map_err(|e| e.at(target.display()))
}

/// The identity of the file at the target, according to the file system.
fn file_identity(path: &Path) -> String {
    let Ok(about) = fs::metadata(path) else { return "none".to_owned() };
    let changed = about.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{} bytes, changed {}", about.len(), changed.map_or(0, |at| at.as_nanos()))
}

/// See [`Spec::completed`].
pub(super) fn completed(spec: &Spec, target: &Path, layer: &str) -> Result<Option<Standing>, SinkError> {
    if stage_of(target, &spec.pipeline).exists() {
        return Ok(None);
    }
    if !target.exists() {
        return Ok(Some(Standing { identity: String::new(), rows: Some(0) }));
    }
    let look = || -> Result<Option<Standing>, Error> {
        let db = Connection::open_with_flags(target, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let there = |table: &str| {
            let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)";
            db.query_row(sql, [table], |row| row.get::<_, bool>(0))
        };
        if there("tidegate_checkpoint")? {
            let sql = "SELECT EXISTS (SELECT 1 FROM tidegate_checkpoint WHERE pipeline = ?1)";
            if db.query_row(sql, [&spec.pipeline], |row| row.get(0))? {
                return Ok(None);
            }
        }
        let rows = if there(layer)? { gpkg::count(&db, layer)? } else { 0 };
        Ok(Some(Standing { identity: String::new(), rows: Some(rows) }))
    };
    look().map_err(|e| judge(e).at(target.display()))
}

/// Creates a stage from the content of the target without the layer to be replaced. The copy gets
/// its name when it is complete, so a partial one is never used.
fn prepare(spec: &Spec, target: &Path, layer: &str, stage: &Path) -> Result<(), String> {
    if !target.exists() {
        return Ok(());
    }
    let layers = gpkg::layers(target).map_err(|e| e.to_string())?;
    let replaces_all = spec.mode == WriteMode::Replace && layers.iter().all(|name| name == layer);
    if replaces_all {
        return Ok(());
    }
    let copy = stage.with_extension("copy");
    remove(&copy)?;
    let from = Connection::open_with_flags(target, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|e| e.to_string())?;
    from.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).map_err(|e| e.to_string())?;
    drop(from);
    if spec.mode == WriteMode::Replace && layers.iter().any(|name| name == layer) {
        Store::drop_layer(&copy, layer).map_err(|e| e.to_string())?;
    }
    File::open(&copy).and_then(|file| file.sync_all()).map_err(|e| e.to_string())?;
    fs::rename(&copy, stage).map_err(|e| e.to_string())
}

impl GeoPackage {
    /// Begins a transaction, unless one is open.
    fn begin(&mut self) -> Result<&mut Store, SinkError> {
        let (forget, open) = (self.forget, self.open);
        let store =
            self.store.as_mut().ok_or_else(|| SinkError::Fatal("the GeoPackage is finished".into()))?;
        if !open {
            store.begin().map_err(judge)?;
            self.open = true;
            if forget {
                store.track_keys().map_err(judge)?;
            }
        }
        Ok(store)
    }

    fn store(&mut self) -> Result<&mut Store, SinkError> {
        self.store.as_mut().ok_or_else(|| SinkError::Fatal("the GeoPackage is finished".into()))
    }
}

/// Removes the state of a pipeline, and the tables if they are empty then.
fn forget(db: &Connection, pipeline: &str) -> rusqlite::Result<()> {
    db.execute_batch(TABLES)?;
    for table in ["tidegate_checkpoint", "tidegate_seen"] {
        db.execute(&format!("DELETE FROM {table} WHERE pipeline = ?1"), [pipeline])?;
    }
    let kept = "SELECT EXISTS (SELECT 1 FROM tidegate_checkpoint) OR EXISTS (SELECT 1 FROM tidegate_seen)";
    if db.query_row(kept, [], |row| row.get(0))? {
        return Ok(());
    }
    db.execute_batch("DROP TABLE tidegate_checkpoint; DROP TABLE tidegate_seen")
}

fn judge(e: Error) -> SinkError {
    if let Error::Sqlite(rusqlite::Error::SqliteFailure(failure, _)) = &e
        && matches!(failure.code, rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    {
        return SinkError::Transient { code: Code::DATABASE_UNAVAILABLE, message: e.to_string() };
    }
    SinkError::Fatal(e.to_string())
}

/// An error of a statement that uses the table of keys.
fn keys_error(e: Error) -> SinkError {
    if e.to_string().contains("no such table: tidegate_keys") {
        return SinkError::Fatal(
            "the table with the keys of this run was dropped, so rows that the source no longer has cannot be found; run again without --resume".into(),
        );
    }
    judge(e)
}

impl Sink for GeoPackage {
    fn saved(&mut self) -> Result<Option<Saved>, SinkError> {
        let pipeline = self.pipeline.clone();
        let db = self.store()?.db();
        let read = || -> rusqlite::Result<Option<Saved>> {
            db.execute_batch(TABLES)?;
            let sql = "SELECT checkpoint FROM tidegate_checkpoint WHERE pipeline = ?1";
            let Some(checkpoint) = db.query_row(sql, [&pipeline], |row| row.get(0)).optional()? else {
                return Ok(None);
            };
            let mut statement = db.prepare("SELECT scope, hash FROM tidegate_seen WHERE pipeline = ?1")?;
            let seen = statement
                .query_map([&pipeline], |row| Ok(SeenKey { scope: row.get(0)?, hash: row.get(1)? }))?
                .collect::<Result<_, _>>()?;
            Ok(Some(Saved { checkpoint, seen }))
        };
        read().map_err(|e| judge(e.into()))
    }

    fn standing(&mut self) -> Result<Standing, SinkError> {
        // A file that is written in place changes with every batch and is identified by its
        // checkpoint.
        let identity = self.target.as_ref().map(|_| self.before.clone()).unwrap_or_default();
        let rows = self.store()?.rows().map_err(judge)?;
        Ok(Standing { identity, rows: Some(rows) })
    }

    fn put(&mut self, batch: &Batch) -> Result<RowCounts, SinkError> {
        let by_number = self.by_number;
        let store = self.begin()?;
        let mut put = RowCounts::default();
        for row in 0..batch.len() {
            let written = if by_number { store.replace(batch, row) } else { store.write(batch, row) };
            match written {
                Ok(Landed::Inserted) => put.inserted += 1,
                Ok(Landed::Updated) => put.updated += 1,
                Ok(Landed::Versioned) => {
                    put.updated += 1;
                    put.versions += 1;
                }
                Ok(Landed::Unchanged) => put.unchanged += 1,
                Err(Error::Problem(problem)) => put.refused.push((row, *problem)),
                Err(e) => {
                    self.rollback();
                    return Err(judge(e));
                }
            }
        }
        Ok(put)
    }

    fn commit(&mut self, checkpoint: &str, seen: &[SeenKey]) -> Result<(), SinkError> {
        let (pipeline, forget) = (self.pipeline.clone(), self.forget);
        let store = self.begin()?;
        let keep = |db: &Connection| -> rusqlite::Result<()> {
            // Another writer of the same file may have removed them.
            db.execute_batch(TABLES)?;
            if forget {
                db.execute("DELETE FROM tidegate_seen WHERE pipeline = ?1", [&pipeline])?;
            }
            let mut insert = db.prepare_cached("INSERT OR IGNORE INTO tidegate_seen VALUES (?1, ?2, ?3)")?;
            for key in seen {
                insert.execute((&pipeline, key.scope, key.hash.as_slice()))?;
            }
            db.execute(
                "INSERT OR REPLACE INTO tidegate_checkpoint VALUES (?1, ?2)",
                (&pipeline, checkpoint),
            )?;
            Ok(())
        };
        let done = keep(store.db()).map_err(Error::from).and_then(|()| store.commit());
        if done.is_err() {
            store.rollback();
        }
        self.open = false;
        done.map_err(judge)?;
        self.forget = false;
        Ok(())
    }

    fn spare(&mut self, keys: &[Vec<String>]) -> Result<(), SinkError> {
        if keys.is_empty() {
            return Ok(());
        }
        self.begin()?.spare(keys).map_err(keys_error)
    }

    fn has(&mut self, keys: &[Vec<String>]) -> Result<Vec<bool>, SinkError> {
        self.begin()?.has(keys).map_err(judge)
    }

    fn absent(&mut self) -> Result<AbsentRows, SinkError> {
        self.begin()?.absent().map_err(keys_error)
    }

    fn retire(&mut self, rows: bool) -> Result<u64, SinkError> {
        self.begin()?.retire(rows).map_err(keys_error)
    }

    fn set_watermark(&mut self, watermark: &str) -> Result<(), SinkError> {
        let pipeline = self.pipeline.clone();
        let db = self.begin()?.db();
        let write = || -> rusqlite::Result<usize> {
            db.execute_batch(WATERMARK)?;
            db.execute("INSERT OR REPLACE INTO tidegate_watermark VALUES (?1, ?2)", (&pipeline, watermark))
        };
        write().map(drop).map_err(|e| judge(e.into()))
    }

    fn finish_tasks(&mut self, ends: &[TaskEnd]) -> Result<Vec<String>, SinkError> {
        let pipeline = self.task_pipeline.clone();
        tasks::sqlite::finish(self.begin()?.db(), &pipeline, ends)
    }

    fn resolve_tasks(&mut self, keys: &[String]) -> Result<(), SinkError> {
        let pipeline = self.task_pipeline.clone();
        tasks::sqlite::resolve(self.begin()?.db(), &pipeline, keys)
    }

    fn rollback(&mut self) {
        self.open = false;
        if let Some(store) = &mut self.store {
            store.rollback();
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        if let Some(target) = self.target.as_deref().filter(|target| file_identity(target) != self.before) {
            return Err(SinkError::Fatal(format!(
                "{} was changed by another program during this run, so it was not replaced; run again without --resume",
                target.display()
            )));
        }
        let Some(mut store) = self.store.take() else { return Ok(()) };
        store.finish().map_err(judge)?;
        if !self.keep_tables {
            store.begin().map_err(judge)?;
            let forgotten = forget(store.db(), &self.pipeline).map_err(Error::from);
            forgotten.and_then(|()| store.commit()).map_err(judge)?;
        }
        store.close().map_err(judge)?;
        let Some(target) = &self.target else { return Ok(()) };
        let placed = || -> std::io::Result<()> {
            File::open(&self.path)?.sync_all()?;
            fs::rename(&self.path, target)?;
            let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        placed().map_err(|e| SinkError::Fatal(format!("{}: {e}", target.display())))
    }
}
