//! What is measured, and how each program is asked to do it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::measure::{self, Sample};

/// The system that `run` reprojects to.
const TARGET: &str = "EPSG:25832";

/// One thing to do.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    kind: Kind,
    /// The ending of the file that comes out.
    to: &'static str,
    /// How many times faster than the fastest peer.
    pub(crate) times_min: Option<f64>,
    /// The most memory, in MB.
    pub(crate) peak_max: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Convert,
    /// Into a new file or table; with a key, so that each row is looked up.
    Run {
        keyed: bool,
    },
    /// The same once more, into what is there.
    Replay,
}

const fn job(name: &'static str, kind: Kind, to: &'static str, times_min: Option<f64>) -> Job {
    Job { name, kind, to, times_min, peak_max: 200.0 }
}

pub(crate) const ALL: [Job; 10] = [
    job("convert-gpkg", Kind::Convert, "gpkg", Some(10.0)),
    job("convert-fgb", Kind::Convert, "fgb", Some(8.0)),
    job("convert-parquet", Kind::Convert, "parquet", Some(8.0)),
    job("run-gpkg", Kind::Run { keyed: false }, "gpkg", Some(4.0)),
    job("run-gpkg-key", Kind::Run { keyed: true }, "gpkg", Some(4.0)),
    job("replay-gpkg", Kind::Replay, "gpkg", None),
    job("run-fgb", Kind::Run { keyed: false }, "fgb", Some(4.0)),
    job("run-parquet", Kind::Run { keyed: false }, "parquet", Some(4.0)),
    job("run-postgis", Kind::Run { keyed: true }, "postgis", Some(1.5)),
    job("replay-postgis", Kind::Replay, "postgis", None),
];

impl Job {
    pub(crate) fn needs_database(&self) -> bool {
        self.to == "postgis"
    }

    /// Whether somebody can do it. GDAL's Parquet driver is neither in Debian nor in the wheels.
    pub(crate) fn can(&self, who: Who) -> bool {
        match who {
            Who::Tidegate => true,
            _ if self.kind == Kind::Replay => false,
            Who::Ogr2ogr => self.to != "parquet",
            Who::Gdal => matches!(self.to, "gpkg" | "fgb"),
            Who::Geopandas => self.to == "parquet",
        }
    }
}

/// Who does it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Tidegate,
    /// The command that is installed.
    Ogr2ogr,
    /// The GDAL inside pyogrio's wheel, called as ogr2ogr calls it.
    Gdal,
    /// pyogrio's reader with Arrow, and geopandas' writer of GeoParquet.
    Geopandas,
}

impl Who {
    pub(crate) const ALL: [Who; 4] = [Who::Tidegate, Who::Ogr2ogr, Who::Gdal, Who::Geopandas];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Who::Tidegate => "tidegate",
            Who::Ogr2ogr => "ogr2ogr",
            Who::Gdal => "gdal",
            Who::Geopandas => "geopandas",
        }
    }
}

/// Where everything is.
pub(crate) struct Place {
    pub(crate) tidegate: PathBuf,
    pub(crate) python: PathBuf,
    pub(crate) source: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) database: Option<String>,
    pub(crate) features: u64,
}

impl Place {
    /// The version of a program, or why it cannot be used.
    pub(crate) fn version(&self, who: Who) -> Result<String, String> {
        let mut command = match who {
            Who::Tidegate => Command::new(&self.tidegate),
            Who::Ogr2ogr => Command::new("ogr2ogr"),
            Who::Gdal | Who::Geopandas => self.script(who),
        };
        command.arg("--version");
        Ok(measure::take(command)?.said.trim().to_owned())
    }

    fn script(&self, who: Who) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/files.py")).arg(who.name());
        command
    }

    /// Does a job once.
    pub(crate) fn run(&self, job: &Job, who: Who) -> Result<Sample, String> {
        let out = self.work.join(format!("{}.{}", who.name(), job.to));
        if job.kind != Kind::Replay && !job.needs_database() {
            remove(&out)?;
        }
        let command = match who {
            Who::Tidegate => self.tidegate(job, &out)?,
            Who::Ogr2ogr => self.ogr2ogr(job, &out),
            Who::Gdal | Who::Geopandas => {
                let mut command = self.script(who);
                command.arg(&self.source).arg(&out);
                if job.kind != Kind::Convert {
                    command.arg(TARGET);
                }
                command
            }
        };
        // What an earlier one left to be written must not be written while this one is timed.
        let _ = Command::new("sync").status();
        let sample = measure::take(command)?;
        if who == Who::Tidegate && job.kind != Kind::Convert {
            self.check(job, &sample)?;
        }
        Ok(sample)
    }

    fn tidegate(&self, job: &Job, out: &Path) -> Result<Command, String> {
        let mut command = Command::new(&self.tidegate);
        if job.kind == Kind::Convert {
            command.arg("convert").arg(&self.source).arg(out);
            return Ok(command);
        }
        let state = self.work.join("state");
        if job.kind != Kind::Replay {
            remove(&state)?;
            if job.needs_database() {
                self.psql("DROP TABLE IF EXISTS bench_tidegate")?;
            }
        }
        let keyed = job.kind != (Kind::Run { keyed: false });
        let path = self.work.join("run.yaml");
        fs::write(&path, self.manifest(job, out, keyed)).map_err(|e| format!("{}: {e}", path.display()))?;
        command.arg("run").arg(&path).arg("--state").arg(&state).args(["--quiet", "--format", "json"]);
        if let Some(database) = &self.database {
            command.env("BENCH_DATABASE", database);
        }
        Ok(command)
    }

    fn manifest(&self, job: &Job, out: &Path, keyed: bool) -> String {
        let key = if keyed { ", key: [id]" } else { "" };
        let sink = if job.needs_database() {
            format!("{{ postgis: {{ url: \"env:BENCH_DATABASE\", table: bench_tidegate }}{key} }}")
        } else {
            format!("{{ file: \"{}\"{key} }}", out.display())
        };
        format!(
            "pipeline:
  id: bench
  source: {{ file: \"{}\" }}
  steps:
    - rename: {{ PARCEL_ID: id, AREA: area }}
    - coerce: {{ fields: {{ area: float }} }}
    - reproject: {TARGET}
  sink: {sink}
  # Validity is looked at in every record.
  tolerance: {{ max_null_rate: 0, halt_on_geometry_invalid: true }}
  retry_policy: {{ max_attempts: 5, base_delay: 1s, retryable_status_codes: [429, 503] }}
",
            self.source.display()
        )
    }

    fn ogr2ogr(&self, job: &Job, out: &Path) -> Command {
        let mut command = Command::new("ogr2ogr");
        match (&self.database, job.needs_database()) {
            (Some(database), true) => {
                command.args(["-f", "PostgreSQL"]).arg(format!("PG:{}", words(database))).arg(&self.source);
                command.args(["-nln", "bench_ogr2ogr", "-lco", "GEOMETRY_NAME=geom", "-overwrite"]);
                command.args(["--config", "PG_USE_COPY", "YES"]);
            }
            _ => {
                command.args(["-f", if job.to == "gpkg" { "GPKG" } else { "FlatGeobuf" }]);
                command.arg(out).arg(&self.source);
            }
        }
        if job.kind != Kind::Convert {
            command.args(["-t_srs", TARGET]);
        }
        command
    }

    /// What a run must say of itself.
    fn check(&self, job: &Job, sample: &Sample) -> Result<(), String> {
        let result: serde_json::Value = serde_json::from_str(&sample.said)
            .map_err(|e| format!("{}: not a result ({e}): {}", job.name, sample.said))?;
        let count = |name: &str| result.get(name).and_then(serde_json::Value::as_u64);
        let wanted = if job.kind == Kind::Replay { "unchanged" } else { "inserted" };
        if count("read") == Some(self.features) && count(wanted) == Some(self.features) {
            return Ok(());
        }
        Err(format!("{}: not all {} are {wanted}: {}", job.name, self.features, sample.said))
    }

    fn psql(&self, sql: &str) -> Result<(), String> {
        let mut command = Command::new("psql");
        command.args(["-wq", "-c", sql]).arg(self.database.as_deref().unwrap_or_default());
        measure::take(command).map(drop)
    }
}

/// The address of a database as GDAL reads it: in words, and not as a URL.
fn words(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (user, rest) = rest.split_once('@').unwrap_or(("postgres", rest));
    let (host, name) = rest.split_once('/').unwrap_or((rest, "postgres"));
    let (host, port) = host.split_once(':').unwrap_or((host, "5432"));
    format!("host={host} port={port} user={user} dbname={name}")
}

fn remove(path: &Path) -> Result<(), String> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", path.display())),
        _ => Ok(()),
    }
}
