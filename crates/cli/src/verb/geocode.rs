//! `tidegate geocode`: a CSV of addresses in, the same rows with places out.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tidegate_client::secret::SecretRef;
use tidegate_pipeline::manifest::{CsvRows, ServiceSpec};
use tidegate_pipeline::preset::{self, CallOptions, GeocodeOptions, PresetManifest, Question, to_yaml};
use tidegate_pipeline::run::{RunOptions, csv_delimiter, csv_encoding};

use super::calls::{CallArgs, Reach, time};
use super::{plan, same_file};
use crate::execute::{Execution, refused};
use crate::exit::Exit;
use crate::observe;
use crate::out::{self, OutputFormat};

/// Geocode the rows of a CSV file
///
/// Every row comes out matched, no_match or failed with a reason; none is lost and none is paid
/// for twice. Answers are kept in the response cache of the state directory, so a run that was cut
/// off asks for nothing twice. The calls are paced by what the service allows.
///
/// It is a pipeline like any other: --print-manifest shows the manifest that these options make,
/// for `tidegate run`, where steps, gates, alerts and the audit can be added to it.
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

Exit codes: 0 no row failed; 4 some rows failed, the output says which and why; 75 the service
asks for time, another run is under way, or an incident suspends the pipeline: try later; 2 the
options, the input or the output cannot be used; 1 anything else.")]
pub(crate) struct Args {
    /// The CSV file; `-` is standard input
    #[arg(value_name = "FILE")]
    input: PathBuf,

    /// The columns that make up the address, joined by commas
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', required_unless_present = "lon")]
    address: Vec<String>,

    /// The column of the longitude, for asking which address is at a place
    #[arg(long, value_name = "COLUMN", requires = "lat", conflicts_with = "address")]
    lon: Option<String>,

    /// The column of the latitude
    #[arg(long, value_name = "COLUMN", requires = "lon")]
    lat: Option<String>,

    /// The service's profile; `tidegate profiles ls` lists them
    #[arg(long, value_name = "NAME", default_value = "generic")]
    profile: String,

    /// The service's address, or a template with {address}, {lat}, {lon}, {key}
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// The output; its name tells the format: .gpkg, .geojson, .geojsonl, .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The service's key, by reference: env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    key: Option<SecretRef>,

    /// Calls under way at once, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    in_flight: Option<u32>,

    #[command(flatten)]
    calls: CallArgs,

    /// Ask for every row, also when the service refuses one after the other and accepts none
    #[arg(long)]
    keep_going: bool,

    /// Continue the last run if it did not finish, and otherwise start a new one: rows that failed
    /// in the run that is continued are not asked again
    #[arg(long)]
    resume: bool,

    /// Only show what would happen, as `tidegate plan` does
    #[arg(long)]
    dry_run: bool,

    /// Print the manifest that these options make, and do nothing else
    #[arg(long)]
    print_manifest: bool,

    /// Where state is kept: the run, the response cache, what servers asked for
    #[arg(long, value_name = "DIR", default_value = ".tidegate")]
    state: PathBuf,

    /// Keep no answers in the response cache; a run that is cut off then pays for them again
    #[arg(long, conflicts_with = "resume")]
    no_cache: bool,

    /// Cached answers older than this are asked for again
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
    cache_ttl: Duration,

    /// Language of the answers, such as `de`
    #[arg(long, value_name = "CODE")]
    language: Option<String>,

    /// Country of the addresses, such as `at`
    #[arg(long, value_name = "CODE")]
    country: Option<String>,

    /// Who asks; some services demand a name and a contact
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,

    #[command(flatten)]
    reach: Reach,

    /// Between the cells [default: guessed from the header]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<String>,

    /// Encoding of the file, such as windows-1252 [default: utf-8]
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    encoding: Option<String>,

    #[command(flatten)]
    observe: observe::Args,

    /// How to say what happened: words on standard error, or JSON on standard output
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,

    /// Draw no progress
    #[arg(short, long)]
    quiet: bool,

    /// Keep rows that failed as dead letters: a file, or postgres://…; see `tidegate dlq`
    #[arg(long, value_name = "STORE")]
    dead_letters: Option<String>,

    /// Keep dead letters so many days, 30 to 90
    #[arg(long, value_name = "DAYS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(30..=90))]
    retention: u32,
}

fn delimiter(text: &str) -> Result<String, String> {
    csv_delimiter(text).map(|_| text.to_owned())
}

fn encoding(text: &str) -> Result<String, String> {
    csv_encoding(text).map(|_| text.to_owned())
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let input = match Input::open(&args.input, &args.state) {
        Ok(input) => input,
        Err(why) => return refused(&why, args.format),
    };
    let preset = match preset(args, &input.path) {
        Ok(preset) => preset,
        Err(why) => return refused(&why, args.format),
    };
    if args.print_manifest {
        out::data(&to_yaml(&preset.keys))?;
        return Ok(Exit::Done);
    }
    if args.dry_run {
        return plan::print_plan(&preset.manifest, Path::new(""), args.format, (None, None));
    }
    Execution {
        manifest: &preset.manifest,
        options: RunOptions::of_preset(&args.state, args.resume, args.keep_going),
        observe: &args.observe,
        quiet: args.quiet,
        format: args.format,
        verb: "geocode",
        subject: String::new(),
        resume: "the same command with --resume continues".into(),
    }
    .run()
}

/// The manifest that these options make.
fn preset(args: &Args, input: &Path) -> Result<PresetManifest, String> {
    let mut profile = args.reach.profile(&args.profile)?;
    if let Some(url) = &args.url {
        profile = profile.at(url).map_err(|e| format!("--url: {e}"))?;
    }
    if let Some(from) = &args.key {
        from.fetch().map_err(|e| format!("--key: {e}"))?;
    }
    if same_file(input, &args.output) {
        return Err(format!("{} is both input and output; name another output", args.output.display()));
    }
    let text = |path: &Path| path.display().to_string();
    // The profile's limits are what its public service allows; elsewhere the lane learns.
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
            url: args.url.clone(),
            key: args.key.as_ref().map(ToString::to_string),
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
            deadline: args.calls.deadline,
            in_flight_max: Some(args.in_flight.unwrap_or(in_flight_max)),
        },
        patience: args.calls.patience,
        output: args.output.clone(),
        dead_letters: args.dead_letters.as_ref().map(|store| (store.clone(), args.retention)),
    })
}

/// Calls under way at once to a service of one's own, at most.
const IN_FLIGHT_MAX: u32 = 256;

/// A name of its own for each input and output, still telling: another table of the same name must
/// neither wait for this one nor continue it.
fn pipeline(args: &Args) -> Result<String, String> {
    let stem = args.input.file_stem().filter(|stem| *stem != "-");
    let stem = stem.map_or_else(|| "stdin".into(), |stem| stem.to_string_lossy());
    let absolute = |path: &Path| std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()));
    let paths = [absolute(&args.input)?, absolute(&args.output)?];
    Ok(preset::id("geocode", &stem, &json!(paths.map(|path| path.to_string_lossy().into_owned()))))
}

/// The input as a file: standard input is copied into one, because it is read more than once.
struct Input {
    path: PathBuf,
    /// It goes when it is done with.
    is_copy: bool,
}

impl Input {
    fn open(input: &Path, state: &Path) -> Result<Input, String> {
        if input != Path::new("-") {
            return Ok(Input { path: input.to_owned(), is_copy: false });
        }
        let at =
            |path: &Path, e: io::Error| format!("standard input cannot be kept in {}: {e}", path.display());
        fs::create_dir_all(state).map_err(|e| at(state, e))?;
        let path = state.join(format!("stdin-{}.csv", std::process::id()));
        let copy = Input { path: path.clone(), is_copy: true };
        File::create(&path)
            .and_then(|mut file| io::copy(&mut io::stdin().lock(), &mut file))
            .map_err(|e| at(&path, e))?;
        Ok(copy)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if self.is_copy {
            // What stays is in the state directory.
            let _ = fs::remove_file(&self.path);
        }
    }
}
