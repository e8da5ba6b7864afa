//! `tidegate fetch`: a remote layer or file into a local one, whole or loudly not.
//!
//! A preset over `run`: the options become a manifest, which is executed like any other.

mod preset;

use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tidegate_client::secret::SecretRef;
use tidegate_pipeline::manifest;
use tidegate_pipeline::run::RunOptions;
use tidegate_pipeline::source::CountTolerance;
use url::Url;

use super::calls::{CallArgs, Reach};
use super::plan;
use crate::execute::{Execution, refused};
use crate::exit::Exit;
use crate::observe;
use crate::out::{self, OutputFormat};

/// Fetch a layer of a service, or a file, into a local file
///
/// Page by page, each retried and checkpointed; features that come twice are left out, and what
/// was received is compared with what the service declared. The output appears when it is whole.
/// A run that was cut off continues with --resume.
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

The options become a manifest, which --print-manifest shows and `tidegate run` takes.

Exit codes: 0 all features are in the output; 4 some cannot be held by it, the summary says where they
are; 75 the service is down or asks for time, or the same fetch is under way: run again with --resume;
2 the options cannot work as given; 1 a page could not be had, or received is not declared.")]
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
    #[arg(long, value_enum, default_value_t = PagingArg::Ids)]
    paging: PagingArg,

    /// The language of the pages [default: GeoJSON from a WFS, its own from an ArcGIS server]
    #[arg(long, value_enum, default_value_t = PageEncodingArg::Auto)]
    body: PageEncodingArg,

    /// The reference system to ask the service for, such as EPSG:25832 [default: its own]
    #[arg(long, value_name = "CRS", value_parser = crs)]
    crs: Option<tidegate_geo::Crs>,

    /// Which coordinate comes first in GML: xy is east, yx is north [default: the name of the system
    /// or the extent of the layer tells]
    #[arg(long, value_name = "ORDER", value_parser = ["xy", "yx"])]
    axis_order: Option<String>,

    /// How far received may be from declared: a number such as 5, or a share such as 0.1%
    #[arg(long, value_name = "N", default_value = "0", value_parser = tolerance)]
    tolerate: String,

    #[command(flatten)]
    calls: CallArgs,

    /// Continue the last run if it did not finish; otherwise start a new one
    #[arg(long)]
    resume: bool,

    /// Ask for every record, also when a service refuses one after the other and accepts none
    #[arg(long)]
    keep_going: bool,

    /// Only show what would happen, as `tidegate plan` does
    #[arg(long)]
    dry_run: bool,

    /// Only print the manifest that these options mean, for `tidegate run`
    #[arg(long)]
    print_manifest: bool,

    /// Keep features that cannot be written as dead letters: a file, or postgres://…; see `tidegate dlq`
    #[arg(long, value_name = "STORE")]
    dead_letters: Option<String>,

    /// Keep dead letters so many days, 30 to 90
    #[arg(long, value_name = "DAYS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(30..=90))]
    retention: u32,

    /// Where state is kept: lock, result, rejects, pages until the output is whole
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

    /// What goes to standard output: nothing, or the result as JSON
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,

    /// No progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PagingArg {
    /// By ranges of object ids
    Ids,
    /// By resultOffset
    Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PageEncodingArg {
    Auto,
    Geojson,
    Gml,
}

fn crs(text: &str) -> Result<tidegate_geo::Crs, String> {
    text.parse().map_err(|problem: tidegate_geo::Problem| problem.message)
}

fn tolerance(text: &str) -> Result<String, String> {
    CountTolerance::parse(text).map(|_| text.trim().to_owned())
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let text = match preset::manifest(args) {
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
        return plan::print_plan(&manifest, Path::new("fetch"), args.format, (None, None));
    }
    Execution {
        manifest: &manifest,
        options: RunOptions::of_preset(&args.state, args.resume, args.keep_going),
        observe: &args.observe,
        quiet: args.quiet,
        format: args.format,
        verb: "fetch",
        subject: args.output.display().to_string(),
        resume: "the same command with --resume goes on".to_owned(),
    }
    .run()
}
