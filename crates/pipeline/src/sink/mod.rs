//! Sinks: where batches become durable.
//!
//! A sink makes a batch and a checkpoint durable together, or neither. So a run that was killed at
//! any moment finds, when it resumes, exactly the rows of the checkpoint that it reads. A sink that
//! cannot hold a checkpoint (a GeoJSON file) becomes visible only at the end: an interrupted run
//! has then written nothing, and starts again.
//!
//! | file | writes | checkpoint |
//! |---|---|---|
//! | `gpkg` | GeoPackage | a table in the same file |
//! | `postgis` | PostgreSQL, with PostGIS or without | a table in the same schema |
//! | `file` | GeoJSON, FlatGeobuf, GeoParquet, CSV, GML, ESRI JSON | none |
//! | `splice`, `rewrite` | put records of a replay into such a file: a text, or a binary one | none |
//! | `tasks` | the tasks of a queue, in a table beside the rows of the first two | |
//! | `held` | the geometry types that a sink holds | |
//! | `probe` | finds records that a text format cannot hold | |
//! | `upload` | uploads such a file to a bucket when it is complete | none |
//!
//! With `mode: sync` the first two also remember the keys of a run, to find the rows whose records
//! the source no longer has.

mod file;
mod gpkg;
mod held;
#[cfg(not(feature = "postgres"))]
#[path = "no_postgis.rs"]
mod postgis;
#[cfg(feature = "postgres")]
pub(crate) mod postgis;
mod probe;
mod rewrite;
mod splice;
mod tasks;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use held::HeldShape;
use serde::{Deserialize, Serialize};
pub use tasks::{Claim, TaskEnd, TaskRow, TaskState, TaskTable};
use tidegate_core::Code;
use tidegate_core::time::calendar::rfc3339;
pub use tidegate_geo::format::gpkg::{AbsentRows, ManagedColumns};
use tidegate_geo::format::{self, Format};
use tidegate_geo::{Batch, Crs, Problem, Schema};

use crate::error::SetupError;
use crate::manifest::{self, DeletedRows, WriteMode};
use crate::step::content_key::{CONTENT_KEY, CONTENT_KEY_FIELD};
use crate::step::{Flow, SeenKey};
use crate::traffic::Traffic;

/// Stands between the id of a pipeline and the name of a worker, or of a replay, in the key of a
/// checkpoint.
pub(crate) const WORKER_MARK: char = '#';

/// The outcomes of the rows of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowCounts {
    /// New rows.
    pub inserted: u64,
    /// Rows that changed an existing one.
    pub updated: u64,
    /// Rows that were there already, unchanged.
    pub unchanged: u64,
    /// Of the changed rows, those that were added beside the old one, which is history now.
    pub versions: u64,
    /// Rows that the sink cannot hold.
    pub refused: Vec<(usize, Problem)>,
}

/// The start of a run, in milliseconds since 1970: the time that a sink writes into its own columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime(pub i64);

impl std::fmt::Display for RunTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let second = rfc3339(self.0);
        write!(f, "{}.{:03}Z", second.trim_end_matches('Z'), self.0.rem_euclid(1000))
    }
}

impl RunTime {
    /// The time as a literal of SQL.
    #[cfg(feature = "postgres")]
    fn sql(self) -> String {
        format!("'{self}'")
    }
}

/// Why a sink cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkError {
    /// It may work later: a lock, a connection.
    Transient {
        /// The code of the taxonomy.
        code: Code,
        /// What happened.
        message: String,
    },
    /// It will not work.
    Fatal(String),
}

impl std::fmt::Display for SinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SinkError::Transient { code, message } => write!(f, "{code}: {message}"),
            SinkError::Fatal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for SinkError {}

impl SinkError {
    /// The same error with the operation or place before the message.
    #[must_use]
    fn at(self, place: impl std::fmt::Display) -> SinkError {
        match self {
            SinkError::Transient { code, message } => {
                SinkError::Transient { code, message: format!("{place}: {message}") }
            }
            SinkError::Fatal(message) => SinkError::Fatal(format!("{place}: {message}")),
        }
    }
}

impl From<String> for SinkError {
    fn from(message: String) -> SinkError {
        SinkError::Fatal(message)
    }
}

impl From<SetupError> for SinkError {
    fn from(error: SetupError) -> SinkError {
        SinkError::Fatal(error.into())
    }
}

/// The identity of a sink, and its number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What distinguishes this table or file from another in its place; empty if nothing does.
    pub identity: String,
    /// The number of rows in the table or layer; `None` for a file that is written as a whole.
    pub rows: Option<u64>,
}

/// How far a sink has been brought, and how it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedWatermark {
    /// The watermark, as stored.
    pub watermark: String,
    /// The sink now.
    pub standing: Standing,
}

/// The watermark of a pipeline in its sink; `None` if there is none, or no table.
///
/// # Errors
/// When the sink cannot be read.
pub(crate) fn watermark(
    form: &manifest::SinkSpec,
    pipeline: &str,
    folder: &Path,
) -> Result<Option<SavedWatermark>, SinkError> {
    match (&form.file, &form.postgis) {
        (Some(file), _) => {
            let path = folder.join(file);
            gpkg::watermark(&path, &layer_name(form, &path), pipeline)
        }
        (None, Some(table)) => postgis::watermark(table, pipeline),
        _ => Ok(None),
    }
}

/// The layer of a GeoPackage.
fn layer_name(form: &manifest::SinkSpec, path: &Path) -> String {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer");
    form.layer.clone().unwrap_or_else(|| stem.to_owned())
}

/// The state that an earlier run left in a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The checkpoint, as committed.
    pub checkpoint: String,
    /// The keys that steps and gates must remember.
    pub seen: Vec<SeenKey>,
}

/// Where batches become durable.
pub trait Sink: Send {
    /// The current checkpoint, if any.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn saved(&mut self) -> Result<Option<Saved>, SinkError>;

    /// The identity of the sink and its number of rows, within the transaction if one is open.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn standing(&mut self) -> Result<Standing, SinkError>;

    /// Begins a transaction and writes a batch in it.
    ///
    /// # Errors
    /// When the batch as a whole cannot be written; roll back then.
    fn put(&mut self, batch: &Batch) -> Result<RowCounts, SinkError>;

    /// Makes the batch and its checkpoint durable, together.
    ///
    /// # Errors
    /// When that failed. [`Sink::saved`] then tells whether it was committed nevertheless.
    fn commit(&mut self, checkpoint: &str, seen: &[SeenKey]) -> Result<(), SinkError>;

    /// With `mode: sync`: leaves the rows of these keys as they are, each key as the texts of its
    /// values. They are those of rejected records, which the source still has.
    ///
    /// # Errors
    /// When they cannot be written.
    fn spare(&mut self, keys: &[Vec<String>]) -> Result<(), SinkError> {
        let _ = keys;
        Ok(())
    }

    /// Which of these keys, each as the texts of its values, a current row of the sink has. A sink
    /// that cannot tell has none.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn has(&mut self, keys: &[Vec<String>]) -> Result<Vec<bool>, SinkError> {
        Ok(vec![false; keys.len()])
    }

    /// With `mode: sync`: the number of rows whose keys this run has not seen, asked of the sink in
    /// the open transaction.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn absent(&mut self) -> Result<AbsentRows, SinkError> {
        Ok(AbsentRows::default())
    }

    /// With `mode: sync`: deletes, marks or ends these rows, if `rows`, in the open transaction, and
    /// forgets the keys. Returns the number of rows.
    ///
    /// # Errors
    /// When they cannot be written.
    fn retire(&mut self, rows: bool) -> Result<u64, SinkError> {
        let _ = rows;
        Ok(0)
    }

    /// Stores how far the source was read, in the open transaction.
    ///
    /// # Errors
    /// When it cannot be written.
    fn set_watermark(&mut self, watermark: &str) -> Result<(), SinkError> {
        let _ = watermark;
        Ok(())
    }

    /// Ends the tasks of a queue in the open transaction, if their tokens are current. Returns the keys
    /// of those that are not: their rows must not be committed.
    ///
    /// # Errors
    /// When they cannot be written.
    fn finish_tasks(&mut self, ends: &[TaskEnd]) -> Result<Vec<String>, SinkError> {
        let _ = ends;
        Err(SinkError::Fatal("this sink cannot be used with a queue".into()))
    }

    /// After a replay: counts dead records of tasks as replayed, in the open transaction, one for each
    /// time that the key of a task is given. A task without any left is done.
    ///
    /// # Errors
    /// When they cannot be written.
    fn resolve_tasks(&mut self, keys: &[String]) -> Result<(), SinkError> {
        let _ = keys;
        Ok(())
    }

    /// Rolls back everything since the last commit.
    fn rollback(&mut self);

    /// Notes for people about how it writes.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Completes what was written: indexes, bounds, the final name.
    ///
    /// # Errors
    /// When that failed; a resumed run can repeat it.
    fn finish(&mut self) -> Result<(), SinkError>;
}

/// The specification of a sink.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name of the pipeline, for its checkpoint.
    pub pipeline: String,
    /// Fields and geometry type of the records.
    pub schema: Arc<Schema>,
    /// Their coordinate reference system.
    pub crs: Crs,
    /// What happens to existing records.
    pub mode: WriteMode,
    /// The key fields.
    pub key: Vec<String>,
    /// The columns that the sink writes itself.
    pub managed: ManagedColumns,
    /// The start of the run.
    pub at: RunTime,
    /// Whether to continue from the state that an earlier run left.
    pub resume: bool,
    /// Whether the resumed run has rows in the sink, so that nothing missing is created.
    pub must_exist: bool,
    /// Whether everything becomes visible at once.
    pub atomic: bool,
    /// Whether a row is found by the number of its record, in a replay without a key.
    pub by_number: bool,
    /// Whether the source is a queue. Then several workers write at once, and a file is written in
    /// place.
    pub by_tasks: bool,
    /// The target.
    pub target: SinkTarget,
    /// The traffic whose lanes its calls share.
    pub traffic: Traffic,
}

/// The directories of a sink.
#[derive(Clone, Copy, Debug)]
pub struct SinkFolders<'a> {
    /// The directory that paths in the manifest are relative to.
    pub manifest: &'a Path,
    /// The directory for files to be uploaded.
    pub scratch: &'a Path,
}

/// The target of a sink.
#[derive(Clone, Debug)]
pub enum SinkTarget {
    /// A GeoPackage and its layer.
    GeoPackage(PathBuf, String),
    /// Another file.
    File(PathBuf, Format),
    /// An object of a bucket: the local file to upload, its format, the URL, and how to reach it.
    Object(PathBuf, Format, String, manifest::Bucket),
    /// A table.
    Table(manifest::SinkTable),
}

impl Spec {
    /// The sink of a manifest.
    ///
    /// # Errors
    /// The reason why it cannot work.
    pub fn new(
        pipeline: &str,
        form: &manifest::SinkSpec,
        flow: &Flow,
        SinkFolders { manifest: folder, scratch }: SinkFolders<'_>,
        traffic: Traffic,
    ) -> Result<Spec, SetupError> {
        let own =
            |name: &String| if name == CONTENT_KEY { CONTENT_KEY_FIELD.to_owned() } else { name.clone() };
        let key: Vec<String> = form.key.iter().map(own).collect();
        for name in &key {
            flow.field(name).map_err(|e| format!("sink.key: {e}"))?;
        }
        let Some(crs) = flow.crs.clone() else {
            return Err("the source declares no coordinate reference system; set `source.crs` or add a step `set_crs`".into());
        };
        let target = match (&form.file, &form.postgis) {
            (Some(name), _) => {
                let afar = tidegate_core::bucket::BucketAddress::is_one(name);
                let path = folder.join(name);
                match Format::of_path(&path) {
                    Some(Format::GeoPackage) if !afar => {
                        let layer = layer_name(form, &path);
                        SinkTarget::GeoPackage(path, layer)
                    }
                    Some(format) => {
                        let text =
                            matches!(format, Format::GeoJson | Format::GeoJsonLines | Format::GeoJsonSeq);
                        if text && !crs.is_wgs84() {
                            return Err(format!(
                                "GeoJSON requires longitude and latitude, but the records are in {crs}; add a step `reproject: EPSG:4326`"
                            )
                            .into());
                        }
                        if afar {
                            let local =
                                scratch.join("out").with_extension(path.extension().unwrap_or_default());
                            SinkTarget::Object(
                                local,
                                format,
                                name.clone(),
                                form.store.clone().unwrap_or_default(),
                            )
                        } else {
                            SinkTarget::File(path, format)
                        }
                    }
                    None => {
                        return Err(format!(
                            "{}: unknown file extension; expected one of .gpkg, .geojson, .geojsonl, .fgb, .parquet, .csv",
                            path.display()
                        )
                        .into());
                    }
                }
            }
            (None, Some(table)) => SinkTarget::Table(table.clone()),
            (None, None) => return Err("`sink` has neither `file` nor `postgis`".into()),
        };
        let mode = form.mode();
        let managed = match form.deleted {
            _ if form.history => ManagedColumns::Validity,
            DeletedRows::Mark => ManagedColumns::DeletedAt,
            DeletedRows::Delete => ManagedColumns::None,
        };
        if let Some(name) = managed.names().iter().find(|name| flow.schema.position(name).is_some()) {
            return Err(format!(
                "the field `{name}` has the name of a column that the sink writes; rename it with a step"
            )
            .into());
        }
        let pipeline = pipeline.to_owned();
        Ok(Spec {
            pipeline,
            schema: flow.schema.clone(),
            crs,
            mode,
            key,
            managed,
            at: RunTime::default(),
            resume: false,
            must_exist: false,
            atomic: false,
            by_number: false,
            by_tasks: false,
            target,
            traffic,
        })
    }

    /// The id of the pipeline, without the worker.
    #[must_use]
    pub fn task_pipeline(&self) -> &str {
        self.pipeline.split(WORKER_MARK).next().unwrap_or_default()
    }

    /// The pipeline under which the marks of its replays are stored.
    #[must_use]
    pub fn replay_pipeline(&self) -> String {
        format!("{}{WORKER_MARK}replay", self.task_pipeline())
    }

    /// Whether a run can be resumed at a batch; a file that is written as a whole starts again.
    #[must_use]
    pub fn keeps_checkpoints(&self) -> bool {
        match self.target {
            SinkTarget::GeoPackage(..) => true,
            SinkTarget::File(..) | SinkTarget::Object(..) => false,
            // Then the whole run is one transaction.
            SinkTarget::Table(_) => !self.atomic,
        }
    }

    /// A description of the target.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.target {
            SinkTarget::GeoPackage(path, layer) => format!("{}, layer {layer}", path.display()),
            SinkTarget::File(path, _) => path.display().to_string(),
            SinkTarget::Object(_, _, address, _) => address.clone(),
            SinkTarget::Table(table) => format!("table {}.{}", table.schema, table.table),
        }
    }

    /// Checks whether records can be added to what a run wrote.
    ///
    /// # Errors
    /// The reason why not, and what to do instead.
    pub fn ready_for_replay(&self) -> Result<(), SinkError> {
        let why = match &self.target {
            SinkTarget::File(path, format) => rewrite::cannot(self, path, *format),
            SinkTarget::GeoPackage(path, _) if !path.exists() => {
                Some(format!("{} does not exist; run the pipeline first", path.display()))
            }
            SinkTarget::Object(_, _, address, _) => Some(format!(
                "{address} is uploaded as a whole, so records cannot be added; fix the source and run again, or write to a .gpkg file"
            )),
            SinkTarget::GeoPackage(..) | SinkTarget::Table(_) => None,
        };
        why.map_or(Ok(()), |why| Err(why.into()))
    }

    /// Opens it to add records to what a run wrote. A file that is written as a whole takes them by
    /// key, or by number.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    pub fn open_for_replay(&self) -> Result<Box<dyn Sink>, SinkError> {
        self.ready_for_replay()?;
        match &self.target {
            SinkTarget::File(path, format) if format::is_spliceable(*format) => {
                Ok(splice::open(self, path, *format))
            }
            SinkTarget::File(path, format) => Ok(rewrite::open(self, path, *format)),
            _ => self.open(),
        }
    }

    /// The state of a sink after a kill while it was finished: `None` if it still holds the
    /// checkpoint, so that a resumed run can finish it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn completed(&self) -> Result<Option<Standing>, SinkError> {
        match &self.target {
            SinkTarget::GeoPackage(path, layer) => gpkg::completed(self, path, layer),
            SinkTarget::File(..) | SinkTarget::Object(..) | SinkTarget::Table(_) => Ok(None),
        }
    }

    /// Whether it can hold the states of tasks, without changing anything.
    ///
    /// # Errors
    /// When it cannot.
    pub fn can_hold_tasks(&self) -> Result<(), SinkError> {
        if self.atomic || matches!(self.mode, WriteMode::Replace | WriteMode::Sync) {
            return Err(SinkError::Fatal(
                "with a queue every task is written for itself, so the sink cannot be replaced or synchronised as a whole; use `mode: upsert` with a key, or `mode: append`"
                    .into(),
            ));
        }
        match &self.target {
            SinkTarget::GeoPackage(..) => Ok(()),
            SinkTarget::Table(_) => postgis::is_there(),
            SinkTarget::File(..) | SinkTarget::Object(..) => Err(SinkError::Fatal(format!(
                "{} cannot be used with a queue, because it has no transactions; use a .gpkg file or `postgis`",
                self.describe()
            ))),
        }
    }

    /// Whether several machines can write to it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.target, SinkTarget::Table(_))
    }

    /// Opens the table of tasks, and creates it if it is missing, for a pipeline whose source is a queue.
    ///
    /// # Errors
    /// When the sink has none, or cannot be written.
    pub fn open_tasks(&self) -> Result<Box<dyn TaskTable>, SinkError> {
        self.can_hold_tasks()?;
        if let SinkTarget::GeoPackage(path, layer) = &self.target {
            gpkg::create(self, path, layer)?;
        }
        self.open_tasks_alone()
    }

    /// As [`Spec::open_tasks`], but the layer of the records is not created: whoever submits tasks does
    /// not know its fields.
    ///
    /// # Errors
    /// When the sink has none, or cannot be written.
    pub fn open_tasks_alone(&self) -> Result<Box<dyn TaskTable>, SinkError> {
        self.can_hold_tasks()?;
        match &self.target {
            SinkTarget::GeoPackage(path, layer) => {
                gpkg::create_bare(self, path, layer)?;
                tasks::sqlite::open(path, self.task_pipeline())
            }
            SinkTarget::Table(table) => postgis::open_tasks(table, self.task_pipeline()),
            _ => Err(SinkError::Fatal(format!("{} has no table of tasks", self.describe()))),
        }
    }

    /// Holds an existing table against the records, without changing anything: all that prevents
    /// writing them.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub fn differences(&self) -> Result<Vec<String>, SinkError> {
        match &self.target {
            SinkTarget::Table(table) => postgis::differences(self, table),
            _ => Ok(Vec::new()),
        }
    }

    /// Opens it and creates what is missing.
    ///
    /// # Errors
    /// The reason why it cannot be written.
    pub fn open(&self) -> Result<Box<dyn Sink>, SinkError> {
        match &self.target {
            SinkTarget::GeoPackage(path, layer) => gpkg::open(self, path, layer),
            SinkTarget::File(path, format) => file::open(self, path, *format),
            SinkTarget::Object(path, format, address, bucket) => {
                upload::open(self, path, *format, (address, bucket))
            }
            SinkTarget::Table(table) => postgis::open(self, table),
        }
    }
}
