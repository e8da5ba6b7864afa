//! Sinks: where batches become durable.
//!
//! A sink takes a batch and a checkpoint and makes both durable together, or neither. So a run
//! that is killed at any moment finds, when it resumes, exactly the rows of the checkpoint that it
//! reads. What cannot hold a checkpoint (a GeoJSON file) shows nothing before its end instead: a
//! run that is cut off has then written nothing, and begins again.
//!
//! | file | writes | checkpoint |
//! |---|---|---|
//! | `gpkg` | GeoPackage | a table in the same file |
//! | `postgis` | PostgreSQL, with PostGIS or without | a table in the same schema |
//! | `file` | GeoJSON, FlatGeobuf, GeoParquet, CSV, GML, ESRI JSON | none |
//! | `rewrite` | records of a replay into such a file, by their key | none |
//! | `probe` | what a text format cannot hold, before the file meets it | |
//! | `upload` | the same into a bucket, when it is whole | none |

mod file;
mod gpkg;
#[cfg(feature = "postgres")]
pub(crate) mod postgis;
mod probe;
mod rewrite;
mod upload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::Code;
use tidegate_geo::format::Format;
use tidegate_geo::{Batch, Crs, Problem, Schema};

use crate::error::SetupError;
use crate::manifest::{self, WriteMode};
use crate::step::{Flow, SeenKey};
use crate::traffic::Traffic;

/// Why a table cannot be used in a build without PostgreSQL.
#[cfg(not(feature = "postgres"))]
pub(crate) const NO_POSTGRES: &str =
    "this build does not support PostgreSQL; build with the feature `postgres`";

/// What became of the rows of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowCounts {
    /// New rows.
    pub inserted: u64,
    /// Rows that changed a known one.
    pub updated: u64,
    /// Rows that were there already, exactly so.
    pub unchanged: u64,
    /// Rows that the sink cannot hold.
    pub refused: Vec<(usize, Problem)>,
}

/// Why a sink cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkError {
    /// It may work in a moment: a lock, a connection.
    Transient {
        /// The code of the taxonomy.
        code: Code,
        /// What happened.
        message: String,
    },
    /// It will not.
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
    /// The same with what was being done, or where, before the message.
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

/// Which sink it is, and how much is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What tells this table or file from another in its place; empty if nothing does.
    pub identity: String,
    /// Rows in the table or layer; `None` for a file that appears whole at the end.
    pub rows: Option<u64>,
}

/// What an earlier run left in a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The checkpoint, as it was given.
    pub checkpoint: String,
    /// The keys that steps and gates have to know again.
    pub seen: Vec<SeenKey>,
}

/// Where batches become durable.
pub trait Sink: Send {
    /// The checkpoint that is there now, if any.
    ///
    /// # Errors
    /// When the sink cannot be read.
    fn saved(&mut self) -> Result<Option<Saved>, SinkError>;

    /// Asks which sink this is and how many rows it holds, within the transaction if one is open.
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
    /// When that failed. Whether it did is then told by [`Sink::saved`].
    fn commit(&mut self, checkpoint: &str, seen: &[SeenKey]) -> Result<(), SinkError>;

    /// Takes back what was put since the last commit.
    fn rollback(&mut self);

    /// What people should know about how it writes.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Completes what was written: indexes, bounds, the final name.
    ///
    /// # Errors
    /// When that failed; it can be done again by a resumed run.
    fn finish(&mut self) -> Result<(), SinkError>;
}

/// What a sink is to be.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The pipeline, for its checkpoint.
    pub pipeline: String,
    /// Fields and shape of what comes.
    pub schema: Arc<Schema>,
    /// Its reference system.
    pub crs: Crs,
    /// What happens to what is there.
    pub mode: WriteMode,
    /// The fields that tell records apart.
    pub key: Vec<String>,
    /// Go on from what an earlier run left.
    pub resume: bool,
    /// The run that is resumed has rows in the sink, so nothing that is missing is made.
    pub must_exist: bool,
    /// All becomes visible at once.
    pub atomic: bool,
    /// Where it goes.
    pub target: SinkTarget,
    /// With whom what is sent shares its lanes.
    pub traffic: Traffic,
}

/// Where a sink finds its files and leaves them.
#[derive(Clone, Copy, Debug)]
pub struct SinkFolders<'a> {
    /// Relative paths of the manifest start here.
    pub manifest: &'a Path,
    /// What is to be uploaded is written here before.
    pub scratch: &'a Path,
}

/// Where it goes.
#[derive(Clone, Debug)]
pub enum SinkTarget {
    /// A GeoPackage and its layer.
    GeoPackage(PathBuf, String),
    /// Another file.
    File(PathBuf, Format),
    /// An object of a bucket: where the file is written before, its format, the address, and how to
    /// reach it.
    Object(PathBuf, Format, String, manifest::Bucket),
    /// A table.
    Table(manifest::SinkTable),
}

impl Spec {
    /// The sink of a manifest.
    ///
    /// # Errors
    /// Why it cannot work, in a sentence.
    pub fn new(
        pipeline: &str,
        form: &manifest::SinkSpec,
        flow: &Flow,
        SinkFolders { manifest: folder, scratch }: SinkFolders<'_>,
        traffic: Traffic,
    ) -> Result<Spec, SetupError> {
        for name in &form.key {
            flow.field(name).map_err(|e| format!("sink.key: {e}"))?;
        }
        let Some(crs) = flow.crs.clone() else {
            return Err("the source declares no coordinate reference system; set `source.crs` or add a step `set_crs`".into());
        };
        let target = match (&form.file, &form.postgis) {
            (Some(name), _) => {
                let afar = name.starts_with("s3://");
                let path = folder.join(name);
                match Format::of_path(&path) {
                    Some(Format::GeoPackage) if !afar => {
                        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer");
                        let layer = form.layer.clone().unwrap_or_else(|| stem.to_owned());
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
        let (mode, key) = (form.mode(), form.key.clone());
        let pipeline = pipeline.to_owned();
        Ok(Spec {
            pipeline,
            schema: flow.schema.clone(),
            crs,
            mode,
            key,
            resume: false,
            must_exist: false,
            atomic: false,
            target,
            traffic,
        })
    }

    /// Whether what is written can be resumed at a batch; a file that appears whole begins again.
    #[must_use]
    pub fn keeps_checkpoints(&self) -> bool {
        match self.target {
            SinkTarget::GeoPackage(..) => true,
            SinkTarget::File(..) | SinkTarget::Object(..) => false,
            // The whole run is one transaction then.
            SinkTarget::Table(_) => !self.atomic,
        }
    }

    /// Where it goes, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.target {
            SinkTarget::GeoPackage(path, layer) => format!("{}, layer {layer}", path.display()),
            SinkTarget::File(path, _) => path.display().to_string(),
            SinkTarget::Object(_, _, address, _) => address.clone(),
            SinkTarget::Table(table) => format!("table {}.{}", table.schema, table.table),
        }
    }

    /// Whether records can be added to what a run wrote.
    ///
    /// # Errors
    /// Why not, and what to do instead.
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

    /// Opens it for records that are added to what a run wrote. A file that is written whole takes
    /// them by their key.
    ///
    /// # Errors
    /// Why it cannot be written to, in a sentence.
    pub fn open_for_replay(&self) -> Result<Box<dyn Sink>, SinkError> {
        self.ready_for_replay()?;
        match &self.target {
            SinkTarget::File(path, format) => Ok(rewrite::open(self, path, *format)),
            _ => self.open(),
        }
    }

    /// What a run that was killed while it completed the sink has left in its place: `None` if the
    /// sink still holds the checkpoint, so that a resumed run can complete it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn completed(&self) -> Result<Option<Standing>, SinkError> {
        match &self.target {
            SinkTarget::GeoPackage(path, layer) => gpkg::completed(self, path, layer),
            SinkTarget::File(..) | SinkTarget::Object(..) | SinkTarget::Table(_) => Ok(None),
        }
    }

    /// Opens it, making what is missing.
    ///
    /// # Errors
    /// Why it cannot be written to, in a sentence.
    pub fn open(&self) -> Result<Box<dyn Sink>, SinkError> {
        match &self.target {
            SinkTarget::GeoPackage(path, layer) => gpkg::open(self, path, layer),
            SinkTarget::File(path, format) => file::open(self, path, *format),
            SinkTarget::Object(path, format, address, bucket) => {
                upload::open(self, path, *format, (address, bucket))
            }
            #[cfg(feature = "postgres")]
            SinkTarget::Table(table) => postgis::open(self, table),
            #[cfg(not(feature = "postgres"))]
            SinkTarget::Table(_) => Err(SinkError::Fatal(NO_POSTGRES.into())),
        }
    }
}
