//! `tidegate geocode`: adds coordinates to the rows of a CSV file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tidegate_client::durable;
use tidegate_pipeline::error::SetupError;
use tidegate_pipeline::manifest::{CsvRows, ServiceSpec};
use tidegate_pipeline::preset::{self, CallOptions, GeocodeOptions, PresetManifest, Question, to_yaml};
use tidegate_pipeline::run::{RunOptions, csv_delimiter, csv_encoding};

use super::calls::{CallArgs, Reach, time};
use super::{plan, same_file};
use crate::complete;
use crate::execute::{Execution, refused};
use crate::exit::Exit;
use crate::given::{GivenAddress, PlainAddress, Reference};
use crate::observe;
use crate::out::{self, OutputFormat};
use clap_complete::ArgValueCandidates;

/// Geocode the rows of a CSV file
///
/// Every row ends as matched, no_match or failed with a reason; no row is lost. Responses are
/// stored in the response cache of the state directory, so an interrupted run repeats no paid
/// call. The call rate adapts to the limits of the service.
///
/// The options are translated into a manifest: --print-manifest prints it, `tidegate run` runs it,
/// and steps, gates, alerts and an audit can be added to it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate geocode addresses.csv --address street,city --profile opencage --key env:OPENCAGE_KEY -o out.gpkg
  tidegate geocode addresses.csv --address full --profile nominatim --url http://localhost:8080 -o out.geojson
  tidegate geocode places.csv --lon x --lat y --profile pelias --url http://localhost:4000 -o out.csv
  tidegate geocode addresses.csv --address full --profile pelias --url http://localhost:4000 -o out.gpkg \\
      --dead-letters .tidegate/letters.db
  tidegate geocode addresses.csv --address full --profile generic \\
      --url 'https://geo.example/find?q={address}&token={key}' --key file:token.txt -o out.csv --resume

Columns added: outcome, label, score, match_type, attempts, elapsed_ms, cache_hit, error_code,
error; and the geometry (in CSV as lon and lat).

Exit codes: 0 no row failed; 1 failure; 2 the options, the input or the output cannot be used; 4 some
rows failed, the output shows which and why; 75 try again later: the service or the server of the dead
letters is down or asked to wait, another run is active, or an incident suspended the pipeline.")]
pub(crate) struct Args {
    /// CSV file to read; `-` for standard input
    #[arg(value_name = "FILE")]
    input: PathBuf,

    /// Columns of the address, separated by commas
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', required_unless_present = "lon")]
    address: Vec<String>,

    /// Column of the longitude, for reverse geocoding
    #[arg(long, value_name = "COLUMN", requires = "lat", conflicts_with = "address")]
    lon: Option<String>,

    /// Column of the latitude, for reverse geocoding
    #[arg(long, value_name = "COLUMN", requires = "lon")]
    lat: Option<String>,

    /// Provider profile; `tidegate profiles ls` lists them
    #[arg(long, value_name = "NAME", default_value = "generic")]
    #[arg(add = ArgValueCandidates::new(complete::profiles))]
    profile: String,

    /// URL of the service, or a template with {address}, {lat}, {lon}, {key}
    #[arg(long, value_name = "URL")]
    url: Option<PlainAddress>,

    /// Output file; the extension selects the format: .gpkg, .geojson, .geojsonl, .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Reference to the API key of the service: env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    key: Option<Reference>,

    /// Maximum number of concurrent calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    in_flight: Option<u32>,

    #[command(flatten)]
    calls: CallArgs,

    /// Keep calling a service that rejects every row and has accepted none
    #[arg(long)]
    keep_going: bool,

    /// Continue the last run if it did not finish; otherwise start a new one. Rows that failed in
    /// the continued run are not sent again
    #[arg(long)]
    resume: bool,

    /// Show what the run would do and exit, as `tidegate plan` does: calls, time, cost and the first
    /// ten requests, without secrets
    #[arg(long)]
    dry_run: bool,

    /// Price of 1,000 calls, for the estimate of --dry-run
    #[arg(long, value_name = "PRICE", requires = "dry_run", value_parser = plan::price)]
    price: Option<f64>,

    /// Print the manifest for these options and exit; `tidegate run` runs it
    #[arg(long)]
    print_manifest: bool,

    /// State directory: run state, response cache, waits requested by servers
    #[arg(long, value_name = "DIR", default_value = ".tidegate", value_parser = super::calls::state_dir())]
    state: PathBuf,

    /// Do not use the response cache; an interrupted run then repeats its calls
    #[arg(long, conflicts_with = "resume")]
    no_cache: bool,

    /// Maximum age of cached responses; older ones are requested again
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
    cache_ttl: Duration,

    /// Language of the results, such as `de`
    #[arg(long, value_name = "CODE")]
    language: Option<String>,

    /// Country of the addresses, such as `at`
    #[arg(long, value_name = "CODE")]
    country: Option<String>,

    /// User-Agent header; some services require a name and a contact
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,

    #[command(flatten)]
    reach: Reach,

    /// Field delimiter of the CSV file [default: detected from the header]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<String>,

    /// Character encoding of the CSV file, such as windows-1252 [default: utf-8]
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    encoding: Option<String>,

    #[command(flatten)]
    observe: observe::Args,

    /// Summary format: text on standard error (table), or JSON on standard output
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,

    /// Print no progress
    #[arg(short, long)]
    quiet: bool,

    /// Store failed rows as dead letters: a file, postgres://…, or env:NAME and
    /// file:PATH that contain either; see `tidegate dlq`
    #[arg(long, value_name = "STORE")]
    dead_letters: Option<GivenAddress>,

    /// Days to keep dead letters, 30 to 90
    #[arg(long, value_name = "DAYS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(30..=90))]
    retention: u32,
}

fn delimiter(text: &str) -> Result<String, SetupError> {
    csv_delimiter(text).map(|_| text.to_owned())
}

fn encoding(text: &str) -> Result<String, SetupError> {
    csv_encoding(text).map(|_| text.to_owned())
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let input = match Input::open(&args.input, &args.state) {
        Ok(input) => input,
        Err(why) => return refused(&why, args.format),
    };
    let preset = match preset(args, &input.path) {
        Ok(preset) => preset,
        Err(why) => return refused(&why.to_string(), args.format),
    };
    if args.print_manifest {
        out::data(&to_yaml(&preset.keys))?;
        return Ok(Exit::Done);
    }
    if args.dry_run {
        let estimate = plan::Estimate { price: args.price, records: None };
        return plan::print_plan(&preset.manifest, Path::new(""), args.format, estimate);
    }
    Execution {
        manifest: &preset.manifest,
        options: RunOptions::of_preset(&args.state, args.resume, args.keep_going),
        observe: &args.observe,
        quiet: args.quiet,
        format: args.format,
        verb: "geocode",
        subject: String::new(),
        resume: out::resume_command(),
        is_part: false,
    }
    .run()
}

/// Builds the manifest from the options.
fn preset(args: &Args, input: &Path) -> Result<PresetManifest, SetupError> {
    let mut profile = args.reach.profile(&args.profile)?;
    if let Some(url) = &args.url {
        profile = profile.at(url).map_err(|e| format!("--url: {e}"))?;
    }
    if let Some(from) = &args.key {
        from.fetch().map_err(|e| format!("--key: {e}"))?;
    }
    if same_file(input, &args.output) {
        return Err(format!(
            "{} is both input and output; choose another output file",
            args.output.display()
        )
        .into());
    }
    let text = |path: &Path| path.display().to_string();
    // The limits of a profile are those of its public service; for another URL the lane learns
    // them.
    let in_flight_max = if args.url.is_none() { profile.in_flight() } else { IN_FLIGHT_MAX };
    preset::geocode(&GeocodeOptions {
        id: pipeline(args)?,
        input: input.to_owned(),
        csv: CsvRows {
            delimiter: args.delimiter.clone(),
            encoding: args.encoding.clone(),
            ..CsvRows::default()
        },
        question: match (&args.lon, &args.lat) {
            (Some(lon), Some(lat)) => Question::Place { lon: lon.clone(), lat: lat.clone() },
            _ => Question::Address(args.address.iter().map(|c| c.trim().to_string()).collect()),
        },
        service: ServiceSpec {
            profile: Some(args.profile.clone()),
            profiles: args.reach.profiles.as_deref().map(text),
            url: args.url.as_ref().map(ToString::to_string),
            key: args.key.as_ref().map(|key| key.to_string()),
            user_agent: args.user_agent.clone(),
            language: args.language.clone(),
            country: args.country.clone(),
            cache: !args.no_cache,
            cache_max_age_seconds: args.cache_ttl.as_secs_f64(),
            requests_per_second: args.calls.rate,
            allow_private: args.reach.allow_private,
            allow_hosts: args.reach.allow_host.clone(),
            ..ServiceSpec::default()
        },
        calls: CallOptions {
            attempts: args.calls.attempts,
            timeout: args.calls.timeout.unwrap_or(profile.timeout()),
            deadline: args.calls.deadline.unwrap_or(DEADLINE),
            in_flight_max: Some(args.in_flight.unwrap_or(in_flight_max)),
        },
        patience: args.calls.patience(),
        output: args.output.clone(),
        dead_letters: args.dead_letters.as_ref().map(|store| (store.to_string(), args.retention)),
    })
}

/// The default deadline of one row.
const DEADLINE: Duration = Duration::from_secs(300);
/// The most concurrent calls to a service with a URL of its own.
const IN_FLIGHT_MAX: u32 = 256;

/// A readable pipeline name that is unique per input and output, so that another table of the same
/// name neither waits for this one nor continues it.
fn pipeline(args: &Args) -> Result<String, String> {
    let stem = args.input.file_stem().filter(|stem| *stem != "-");
    let stem = stem.map_or_else(|| "stdin".into(), |stem| stem.to_string_lossy());
    let absolute = |path: &Path| std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()));
    let paths = [absolute(&args.input)?, absolute(&args.output)?];
    Ok(preset::id("geocode", &stem, &json!(paths.map(|path| path.to_string_lossy().into_owned()))))
}

/// The input as a file. Standard input is copied to one, because it is read more than once.
struct Input {
    path: PathBuf,
    /// Whether the file is a copy, to be deleted at the end.
    is_copy: bool,
}

impl Input {
    fn open(input: &Path, state: &Path) -> Result<Input, String> {
        if input != Path::new("-") {
            return Ok(Input { path: input.to_owned(), is_copy: false });
        }
        let at = |path: &Path, e: io::Error| format!("cannot copy standard input to {}: {e}", path.display());
        durable::make_dir(state).map_err(|e| at(state, e))?;
        let path = state.join(format!("stdin-{}.csv", std::process::id()));
        let copy = Input { path: path.clone(), is_copy: true };
        durable::private(&path)
            .and_then(|mut file| io::copy(&mut out::input(), &mut file))
            .map_err(|e| at(&path, e))?;
        Ok(copy)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if self.is_copy {
            // A copy that cannot be deleted stays in the state directory.
            let _ = fs::remove_file(&self.path);
        }
    }
}
