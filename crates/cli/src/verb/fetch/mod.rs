//! `tidegate fetch`: downloads a remote layer or file completely, or fails with a reason.
//!
//! A preset of `run`: the options become a manifest, which is executed like any other.

mod objects;
mod preset;
mod tiles;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use tidegate_pipeline::error::SetupError;
use tidegate_pipeline::manifest;
use tidegate_pipeline::run::RunOptions;
use tidegate_pipeline::source::CountTolerance;
use tidegate_pipeline::tiles::TileTemplate;
pub(in crate::verb) use tiles::{bbox, zooms};

use super::calls::{CallArgs, Reach};
use super::cloud::CloudArgs;
use super::plan;
use crate::complete;
use crate::execute::{Execution, refused};
use crate::exit::Exit;
use crate::given::{GivenAddress, Reference, ServiceUrl};
use crate::layer::FormatArg;
use crate::observe;
use crate::out::{self, OutputFormat};
use clap_complete::ArgValueCandidates;

/// Download a layer of a service, a remote file, or tiles, to a local file
///
/// Read the layer page by page, with retries and a checkpoint after each page. Duplicate features
/// are skipped, and the number received is compared with the number that the service declared.
/// The output file appears when it is complete. Use --resume to continue an interrupted download.
/// A URL with {z}, {x} and {y} is a tile service: its tiles go into an MBTiles or PMTiles file or a
/// directory, and the same command continues.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate fetch https://geo.example/geoserver/wfs --profile geoserver-wfs --layer topp:parcels -o parcels.gpkg
  tidegate fetch https://api.example/ogc --profile ogcapi --layer buildings -o buildings.fgb
  tidegate fetch https://gis.example/arcgis/rest/services/parcels/FeatureServer/0 -o parcels.gpkg --resume
  tidegate fetch https://stac.example/v1 --profile stac --layer sentinel-2-l2a -o scenes.geojson
  tidegate fetch https://stac.example/v1 --layer sentinel-2-l2a --assets B04,B08 -o scenes --allow-host data.example
  tidegate fetch https://data.example/roads.fgb -o roads.gpkg
  tidegate fetch 'https://tiles.example/{z}/{x}/{y}.png' --bbox 16.1,48.1,16.6,48.4 --zoom 0..14 -o vienna.mbtiles
  tidegate fetch s3://bucket/roads.geojson -o roads.gpkg --endpoint http://127.0.0.1:9000

Put filters into the URL, in the syntax of the service: ?cql_filter=…, ?where=…, ?bbox=….

The options are translated into a manifest: --print-manifest prints it, `tidegate run` runs it.

Exit codes: 0 success, all features are in the output; 1 a page cannot be read, or the number of features
differs from the declared one; 2 invalid options; 4 some features were rejected, the summary shows where
they are; 75 the service is down or asked to wait, or the same fetch is active: try again with --resume.")]
#[command(
    mut_arg("attempts", |a| a.help("Maximum attempts per page; throttled calls and outages do not count")),
    mut_arg("deadline", |a| a.help("Deadline for one page, from its first attempt; stop with exit code 75 if the service asks to wait, or fails, for longer [default: 10m, without that stop]")),
    mut_arg("allow_private", |a| a.help("Allow host names, links and redirects to resolve to private and loopback addresses")),
    mut_arg("allow_host", |a| a.help("Additional host that links and redirects may lead to")),
)]
pub(crate) struct Args {
    /// URL of the service or file
    #[arg(value_name = "URL")]
    url: ServiceUrl,

    /// Protocol of the service: geoserver-wfs, ogcapi, esri, stac, file, or a custom profile that
    /// extends one of these [default: detected from the URL]
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::profiles))]
    profile: Option<String>,

    /// Layer or collection; several STAC collections separated by commas [default: the only one]
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::layers))]
    layer: Option<String>,

    /// Format of a remote file [default: decided by its extension, else by the Content-Type]
    #[arg(long, value_name = "FORMAT", value_enum)]
    input_format: Option<FormatArg>,

    /// Assets of STAC items to download, separated by commas, such as B04,B08; -o is then a directory
    /// or a store
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["requests", "input_format", "print_manifest"])]
    assets: Vec<String>,

    /// File of requests to process into images, such as those of Sentinel Hub: a line of JSON each,
    /// {"key": "name.tif", "body": {…}}; -o is then a directory or a store
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input_format", "print_manifest", "layer"])]
    requests: Option<PathBuf>,

    /// Output file; the extension selects the format: .gpkg, .geojson, .geojsonl, .fgb, .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Box of tiles to fetch: west,south,east,north in degrees
    #[arg(long, value_name = "W,S,E,N", value_parser = tiles::bbox, allow_hyphen_values = true)]
    bbox: Option<[f64; 4]>,

    /// Zoom levels of tiles to fetch, such as 12 or 0..12
    #[arg(long, value_name = "ZOOM", value_parser = tiles::zooms)]
    zoom: Option<(u8, u8)>,

    /// User-Agent for tile services, which often require one that names you
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,

    /// Reference to the API key of the service: env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    key: Option<Reference>,

    /// Features per page [default: chosen by the service]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    page_size: Option<u64>,

    /// Pages to request in parallel, if their positions are known in advance [default: from the profile]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: Option<u32>,

    /// Field to sort a WFS by; it should be unique [default: the key, if one is found]
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,

    /// WFS version: 2.0.0 or 1.1.0 [default: chosen by the server]
    #[arg(long, value_name = "VERSION", value_parser = ["2.0.0", "1.1.0"])]
    wfs_version: Option<String>,

    /// Paging method of an ArcGIS layer
    #[arg(long, value_enum, default_value_t = PagingArg::Ids)]
    paging: PagingArg,

    /// Response format of the pages [default: GeoJSON from a WFS, Esri JSON from an ArcGIS server]
    #[arg(long, value_enum, default_value_t = PageEncodingArg::Auto)]
    body: PageEncodingArg,

    /// Coordinate reference system to request, such as EPSG:25832 [default: that of the layer]
    #[arg(long, value_name = "CRS", value_parser = crs)]
    crs: Option<tidegate_geo::Crs>,

    /// Order of the coordinates in GML: xy is east first, yx north first [default: decided by the name
    /// of the system or the extent of the layer]
    #[arg(long, value_name = "ORDER", value_parser = ["xy", "yx"])]
    axis_order: Option<String>,

    /// Accept coordinates that cannot be in the coordinate reference system that the service declares
    #[arg(long)]
    trust_crs: bool,

    /// Tolerated difference between received and declared features: a number such as 5, or a percentage such as 0.1%
    #[arg(long, value_name = "N", default_value = "0", value_parser = tolerance)]
    tolerate: String,

    #[command(flatten)]
    calls: CallArgs,

    /// Continue the last run if it did not finish; otherwise start a new one
    #[arg(long)]
    resume: bool,

    /// Keep calling a service that rejects every request and has accepted none
    #[arg(long)]
    keep_going: bool,

    /// Show what the run would do and exit, as `tidegate plan` does
    #[arg(long)]
    dry_run: bool,

    /// Print the manifest for these options and exit; `tidegate run` runs it
    #[arg(long)]
    print_manifest: bool,

    /// Store features that cannot be written as dead letters: a file, postgres://…, or
    /// env:NAME and file:PATH that contain either; see `tidegate dlq`
    #[arg(long, value_name = "STORE")]
    dead_letters: Option<GivenAddress>,

    /// Days to keep dead letters, 30 to 90
    #[arg(long, value_name = "DAYS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(30..=90))]
    retention: u32,

    /// State directory: lock, results, rejected records, pages until the output is complete
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = super::calls::state_dir())]
    state: PathBuf,

    #[command(flatten)]
    reach: Reach,

    #[command(flatten)]
    cloud: CloudArgs,

    #[command(flatten)]
    observe: observe::Args,

    /// Output on standard output: none (table) or the result as JSON
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,

    /// Print no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PagingArg {
    /// Ranges of object ids
    Ids,
    /// The resultOffset parameter
    Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PageEncodingArg {
    Auto,
    Geojson,
    Gml,
}

/// The time for one page, unless told otherwise.
const DEADLINE: Duration = Duration::from_secs(600);

fn crs(text: &str) -> Result<tidegate_geo::Crs, String> {
    text.parse().map_err(|problem: tidegate_geo::Problem| problem.message)
}

fn tolerance(text: &str) -> Result<String, SetupError> {
    CountTolerance::parse(text).map(|_| text.trim().to_owned())
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    match TileTemplate::parse(args.url.as_str()) {
        Some(template) => return tiles::run(args, &template),
        None if args.bbox.is_some() || args.zoom.is_some() => {
            let why = "--bbox and --zoom are for tiles; write {z}, {x} and {y} into the URL, or {bbox}";
            return refused(why, args.format);
        }
        None => {}
    }
    if !args.assets.is_empty() || args.requests.is_some() {
        return objects::run(args);
    }
    let text = match preset::manifest(args, &args.output) {
        Ok(text) => text,
        Err(why) => return refused(&why, args.format),
    };
    if args.print_manifest {
        out::data(&text)?;
        return Ok(Exit::Done);
    }
    let manifest = match manifest::from_bytes("the manifest of these options", text.as_bytes()) {
        Ok(manifest) => manifest,
        Err(rejection) => return refused(rejection.render(out::color()).trim_end(), args.format),
    };
    if args.dry_run {
        return plan::print_plan(&manifest, Path::new("fetch"), args.format, plan::Estimate::default());
    }
    Execution {
        manifest: &manifest,
        options: RunOptions::of_preset(&args.state, args.resume, args.keep_going),
        observe: &args.observe,
        quiet: args.quiet,
        format: args.format,
        verb: "fetch",
        subject: args.output.display().to_string(),
        resume: out::resume_command(),
        is_part: false,
    }
    .run()
}
