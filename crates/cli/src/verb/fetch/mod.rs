//! `tidegate fetch`: a remote layer or file into a local one, whole or loudly not.

mod job;
mod tell;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use tidegate_client::lane::Clock;
use tidegate_client::secret::SecretRef;
use tidegate_pipeline::fetch::{End, Job, Run};
use tidegate_pipeline::source::{SourceError, Tolerance, Trouble};
use url::Url;

use super::calls::{Calls, Reach};
use crate::exit::Exit;
use crate::observe::{self, Observer, Subject};
use crate::out::{self, Format};
use crate::progress::Progress;
use crate::stop::Stop;

/// Fetch a layer of a service, or a file, into a local file
///
/// Page by page, each retried and checkpointed; features that come twice are left out, and what
/// was received is compared with what the service declared. The output appears when it is whole.
/// A run that was cut off goes on with --resume.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate fetch https://geo.example/geoserver/wfs --profile geoserver-wfs --layer topp:parcels -o parcels.gpkg
  tidegate fetch https://api.example/ogc --profile ogcapi --layer buildings -o buildings.fgb
  tidegate fetch https://gis.example/arcgis/rest/services/parcels/FeatureServer/0 -o parcels.gpkg --resume
  tidegate fetch https://stac.example/v1 --profile stac --layer sentinel-2-l2a -o scenes.geojson
  tidegate fetch https://data.example/roads.fgb -o roads.gpkg
  tidegate fetch s3://bucket/roads.geojson -o roads.gpkg --endpoint http://127.0.0.1:9000

A filter goes into the URL, in the service's own words: ?cql_filter=…, ?where=…, ?bbox=….

Exit codes: 0 all features are in the output; 4 some cannot be held by it, a file beside it says which and
why; 75 the service asks for time, run again with --resume; 2 the job cannot work as given; 1 a page
could not be had, or received is not declared.")]
#[command(
    mut_arg("attempts", |a| a.help("Attempts per page, at most; throttles and outages do not count")),
    mut_arg("deadline", |a| a.help("Time for one page, from its first attempt").default_value("10m")),
    mut_arg("allow_private", |a| a.help("Let names, links and redirects lead to private and loopback addresses")),
    mut_arg("allow_host", |a| a.help("A further host that links and redirects may lead to")),
)]
pub(crate) struct Args {
    /// The service's or the file's address
    #[arg(value_name = "URL")]
    url: Url,

    /// How the service speaks: geoserver-wfs, ogcapi, esri, stac, file, or an own profile that
    /// extends one of these [default: guessed from the URL]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// The layer, collection or collections [default: the only one]
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,

    /// The output; its name tells the format: .gpkg, .geojson, .geojsonl, .fgb, .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The service's key, by reference: env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    key: Option<SecretRef>,

    /// Features on a page [default: what the service prefers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    page_size: Option<u64>,

    /// Pages under way at once, where they can be foreseen [default: the profile's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: Option<u32>,

    /// The field by which a WFS sorts; it should be unique [default: the key, if one is found]
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,

    /// The version of a WFS: 2.0.0 or 1.1.0 [default: what the server prefers]
    #[arg(long, value_name = "VERSION", value_parser = ["2.0.0", "1.1.0"])]
    wfs_version: Option<String>,

    /// How the pages of an ArcGIS layer go on
    #[arg(long, value_enum, default_value_t = Paging::Ids)]
    paging: Paging,

    /// The language of the pages [default: GeoJSON from a WFS, its own from an ArcGIS server]
    #[arg(long, value_enum, default_value_t = Body::Auto)]
    body: Body,

    /// The reference system to ask the service for, such as EPSG:25832 [default: its own]
    #[arg(long, value_name = "CRS", value_parser = crs)]
    crs: Option<tidegate_geo::Crs>,

    /// How far received may be from declared: a number such as 5, or a share such as 0.1%
    #[arg(long, value_name = "N", default_value = "0", value_parser = Tolerance::parse)]
    tolerate: Tolerance,

    #[command(flatten)]
    calls: Calls,

    /// Go on with a run that was cut off
    #[arg(long)]
    resume: bool,

    /// Where pages are kept until the output is whole
    #[arg(long, value_name = "DIR", default_value = ".tidegate")]
    state: PathBuf,

    #[command(flatten)]
    reach: Reach,

    /// Address of a service that speaks S3, for s3:// URLs
    #[arg(long, value_name = "URL")]
    endpoint: Option<Url>,

    /// Region of the bucket, for s3:// URLs
    #[arg(long)]
    region: Option<String>,

    /// Sign nothing, for public buckets
    #[arg(long)]
    anonymous: bool,

    #[command(flatten)]
    observe: observe::Args,

    /// How to say what happened: words on standard error, or JSON on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Draw no progress
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Paging {
    /// By ranges of object ids
    Ids,
    /// By resultOffset
    Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Body {
    Auto,
    Geojson,
    Gml,
}

fn crs(text: &str) -> Result<tidegate_geo::Crs, String> {
    text.parse().map_err(|problem: tidegate_geo::Problem| problem.message)
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let stem = args.output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let run = Arc::new(Run::new(&format!("fetch:{stem}")));
    let began = Instant::now();
    // Two threads: pages are read on one while they are written from the other.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = match job::job(args) {
        Ok(job) => match Observer::start(subject(&run), &args.observe) {
            Ok(observer) => {
                let ended = runtime.block_on(watched(job, args, &run));
                let failed = ended.is_err();
                let seen = observer.end(if failed { "failed" } else { "done" }, failed);
                tell::report(args, &run, &ended, &seen);
                ended
            }
            Err(why) => Err(SourceError::setup(why)),
        },
        Err(error) => Err(error),
    };
    runtime.shutdown_background();
    let exit = match &ended {
        Ok(End::Done(outcome)) if outcome.rejected > 0 => Exit::DeadLetters,
        Ok(End::Done(_)) => Exit::Done,
        Ok(End::Cancelled) => Exit::Failure,
        Ok(End::TryLater { .. }) => Exit::TryLater,
        Err(error) if error.trouble == Trouble::Setup => Exit::Usage,
        Err(_) => Exit::Failure,
    };
    match args.format {
        Format::Table => out::say(&tell::words(args, &run.seen(), &ended, began.elapsed())),
        Format::Json => out::data(&tell::json(args, &run.seen(), &ended, began.elapsed()))?,
    }
    Ok(exit)
}

fn subject(run: &Run) -> Subject<'_> {
    Subject { telemetry: &run.telemetry, task: "fetch", alerts: None, letters: None }
}

/// Runs the job, drawing progress and listening for Ctrl-C.
async fn watched(job: Job, args: &Args, run: &Arc<Run>) -> Result<End, SourceError> {
    let mut progress = Progress::new(args.quiet, out::color());
    let mut pace = tell::Pace::new();
    let going = job.go(Clock::system(), Arc::clone(run));
    tokio::pin!(going);
    let mut interrupts = Stop::listen().map_err(|e| SourceError::setup(e.to_string()))?;
    let mut interrupted = false;
    loop {
        tokio::select! {
            end = &mut going => {
                if let Some(progress) = &mut progress {
                    progress.clear();
                }
                return end;
            }
            () = tokio::time::sleep(Progress::EVERY) => {
                if let Some(progress) = &mut progress {
                    let seen = run.seen();
                    pace.look(&seen);
                    progress.draw_line(|color| tell::line(&seen, &pace, color));
                }
            }
            _ = interrupts.asked() => {
                if interrupted {
                    return Ok(End::Cancelled);
                }
                interrupted = true;
                run.stop();
                if let Some(progress) = &mut progress {
                    progress.clear();
                }
                out::say("stopping: what was received is kept; once more to stop at once");
            }
        }
    }
}
