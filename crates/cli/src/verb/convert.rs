//! `tidegate convert`: from one file of features to another.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Value, json};
use tidegate_geo::Crs;
use tidegate_geo::convert::{Converted, Outside, Steps, convert_with};
use tidegate_geo::format::geojson::{ReadOptions, Rules};
use tidegate_geo::format::{Format, Mode, Options, csv};
use tidegate_geo::mapping::Rule;
use tidegate_geo::repair::Method;
use tidegate_geo::schema::Kind;

use crate::exit::Exit;
use crate::progress::thousands;
use crate::{layer, out};

/// Convert features from one file to another
///
/// The names of the files say the formats: .gpkg, .geojson, .geojsonl, .geojsons, .fgb, .parquet, .shp, .csv,
/// .gml, .esrijson; IN may also lie in a .zip. Memory does not depend on the size of the file, and
/// the output appears whole or not at all. A record that cannot be handled is set aside with its
/// reason; the others go on.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  tidegate convert parcels.geojson parcels.gpkg
  tidegate convert parcels.gpkg parcels.parquet --where \"zone IN ('A', 'B') AND area > 100\"
  tidegate convert grid.shp wgs84.geojsonl --to-crs EPSG:4326 --rejects rejects.ndjson
  tidegate convert broken.geojson fixed.gpkg --make-valid
  tidegate convert news.geojsonl parcels.gpkg --layer-name parcels --upsert parcel_id
  tidegate convert places.csv places.fgb --select 'name,inhabitants=pop:int'
  tidegate convert parcels.gpkg - --to geojsonl | jq .properties.name

Conditions are those of SQL: = <> < <= > >=, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL;
a field's name bare or in \"double quotes\", a text in 'single quotes'; besides the fields $shape,
$id and $record.

Exit codes: 0 all done; 4 done, some records were set aside; 2 the job cannot work as given;
1 a file cannot be read or written.")]
pub(crate) struct Args {
    /// The file to read
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// The file to write; `-` is standard output, in the format of --to
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// Bring coordinates to this system: EPSG:27700, a URN, well-known text
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    to_crs: Option<Crs>,

    /// The system of a source that does not say its own
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    from_crs: Option<Crs>,

    /// Only the features for which this condition is true
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,

    /// The layer to read, of a file that has several; all if OUT can hold them
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,

    /// The name of the layer to write; the name of OUT by default
    #[arg(long, value_name = "NAME")]
    layer_name: Option<String>,

    /// Make invalid geometry valid, by its linework or by its structure
    #[arg(long, value_name = "METHOD", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "linework")]
    make_valid: Option<MakeValid>,

    /// Only these fields, in this order: NAME, NAME=SOURCE, NAME=SOURCE:KIND. Kinds: bool, int,
    /// real, text, date, datetime, json. SOURCE may be a path into JSON: tags.name
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = rule)]
    select: Vec<Rule>,

    /// Make every shape the multi of itself
    #[arg(long)]
    promote_to_multi: bool,

    /// Add positions so that no edge is longer than this, in the unit of the source
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    densify: Option<f64>,

    /// Features outside the area that a system is meant for
    #[arg(long, value_enum, default_value = "warn")]
    outside: OutsideArg,

    /// Refuse a reprojection less accurate than this, or of unknown accuracy
    #[arg(long, value_name = "METRES")]
    accuracy: Option<f32>,

    /// Take the coordinates to be in the system that IN or --from-crs says, even if they cannot be
    #[arg(long)]
    trust_crs: bool,

    /// Folders with grids of datum shifts (NTv2 .gsb, GeoTIFF .tif); else those of TIDEGATE_GRIDS or PROJ_DATA
    #[arg(long, value_name = "DIR")]
    grids: Vec<PathBuf>,

    /// The format to write, if the name of OUT does not say it
    #[arg(long = "to", value_name = "FORMAT", value_enum)]
    to_format: Option<FormatArg>,

    /// The members of GeoJSON features that the standard does not name; kept from GeoJSON to GeoJSON
    /// unless you say drop, dropped elsewhere
    #[arg(long, value_enum)]
    foreign: Option<Foreign>,

    /// How CSV shows the geometry
    #[arg(long, value_enum, default_value = "auto")]
    csv_geometry: CsvGeometry,

    /// Replace OUT if it exists
    #[arg(long, group = "existing")]
    overwrite: bool,

    /// Add to the layer in OUT, which is made if it is not there (GeoPackage)
    #[arg(long, group = "existing")]
    append: bool,

    /// Add to the layer in OUT; a feature whose FIELD is there already replaces it (GeoPackage)
    #[arg(long, value_name = "FIELD", group = "existing")]
    upsert: Option<String>,

    /// Write what was set aside here, one JSON object per line, with reasons and original bytes
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,

    /// How to answer: words on standard error, or JSON on standard output
    #[arg(long, value_enum, default_value = "words")]
    format: Answer,
}

#[derive(Clone, Copy, ValueEnum)]
enum MakeValid {
    Linework,
    Structure,
}

#[derive(Clone, Copy, ValueEnum)]
enum OutsideArg {
    /// Convert and count them
    Warn,
    /// Set them aside
    Refuse,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormatArg {
    Gpkg,
    Geojson,
    Geojsonl,
    Geojsons,
    Csv,
    Fgb,
    Parquet,
    Shp,
    Gml,
    Esrijson,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Foreign {
    /// As they are spelt, beside type, id, properties and geometry
    Keep,
    /// Left out
    Drop,
}

#[derive(Clone, Copy, ValueEnum)]
enum CsvGeometry {
    Auto,
    Lonlat,
    Wkt,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Answer {
    Words,
    Json,
}

fn rule(text: &str) -> Result<Rule, String> {
    let (to, from) = text.split_once('=').map_or((text, None), |(to, from)| (to, Some(from)));
    let (from, kind) = match from.unwrap_or(to).rsplit_once(':') {
        Some((from, kind)) => (from, Some(kind.parse::<Kind>()?)),
        None => (from.unwrap_or(to), None),
    };
    let to = to.split_once(':').map_or(to, |(to, _)| to);
    if to.is_empty() || from.is_empty() {
        return Err("a field has no name".into());
    }
    Ok(Rule { to: to.into(), from: Some(from.into()), kind, ..Rule::default() })
}

fn length(text: &str) -> Result<f64, String> {
    let length = text.parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
    length.ok_or_else(|| "a length must be a number above 0".into())
}

impl Args {
    fn steps(&self) -> Steps {
        let mode = match &self.upsert {
            Some(key) => Mode::Upsert(key.clone()),
            None if self.append => Mode::Append,
            None => Mode::New,
        };
        Steps {
            read: ReadOptions {
                layer: self.layer.clone(),
                // What will be repaired must first be let in.
                rules: if self.make_valid.is_some() { Rules::Pass } else { Rules::Refuse },
                keep_raw: self.rejects.is_some(),
                keep_foreign: self.holds_foreign() && self.foreign != Some(Foreign::Drop),
                ..ReadOptions::default()
            },
            write: Options {
                format: self.to_format.map(FormatArg::format),
                layer: self.layer_name.clone(),
                csv_geometry: match self.csv_geometry {
                    CsvGeometry::Auto => csv::Geometry::Auto,
                    CsvGeometry::Lonlat => csv::Geometry::LonLat,
                    CsvGeometry::Wkt => csv::Geometry::Wkt,
                    CsvGeometry::None => csv::Geometry::None,
                },
                mode,
                ..Options::default()
            },
            filter: self.condition.clone(),
            fields: (!self.select.is_empty()).then(|| self.select.clone()),
            to_crs: self.to_crs.clone(),
            from_crs: self.from_crs.clone(),
            make_valid: self.method(),
            promote: self.promote_to_multi,
            densify: self.densify,
            outside: match self.outside {
                OutsideArg::Warn => Outside::Warn,
                OutsideArg::Refuse => Outside::Refuse,
            },
            accuracy_max: self.accuracy,
            grids: layer::grids(&self.grids),
            trust_crs: self.trust_crs,
        }
    }

    /// Whether OUT has a place for foreign members.
    fn holds_foreign(&self) -> bool {
        let format = self.to_format.map(FormatArg::format).or_else(|| Format::of_path(&self.to));
        format.is_some_and(Format::is_only_wgs84)
    }

    fn method(&self) -> Option<Method> {
        self.make_valid.map(|method| match method {
            MakeValid::Linework => Method::Linework,
            MakeValid::Structure => Method::Structure,
        })
    }
}

impl FormatArg {
    fn format(self) -> Format {
        match self {
            FormatArg::Gpkg => Format::GeoPackage,
            FormatArg::Geojson => Format::GeoJson,
            FormatArg::Geojsonl => Format::GeoJsonLines,
            FormatArg::Geojsons => Format::GeoJsonSeq,
            FormatArg::Csv => Format::Csv,
            FormatArg::Fgb => Format::FlatGeobuf,
            FormatArg::Parquet => Format::GeoParquet,
            FormatArg::Shp => Format::Shapefile,
            FormatArg::Gml => Format::Gml,
            FormatArg::Esrijson => Format::EsriJson,
        }
    }
}

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let to_stdout = args.to == Path::new("-");
    if let Some(folder) = args.grids.iter().find(|folder| !folder.is_dir()) {
        out::say(&format!("tidegate convert: --grids {}: there is no such folder", folder.display()));
        return Ok(Exit::Usage);
    }
    if let Some(why) = refusal(args, to_stdout) {
        out::say(&format!("tidegate convert: {why}"));
        return Ok(Exit::Usage);
    }
    let mut rejects = match args.rejects.as_deref().map(File::create).transpose() {
        Ok(file) => file.map(BufWriter::new),
        Err(e) => {
            let path = args.rejects.as_deref().unwrap_or(Path::new("")).display();
            out::say(&format!("tidegate convert: {path}: {e}"));
            return Ok(Exit::Failure);
        }
    };
    let mut tell = |rejected: &tidegate_geo::format::Rejected| match &mut rejects {
        Some(file) => writeln!(file, "{}", layer::rejected(rejected)),
        None => Ok(()),
    };
    let done = match convert_with(&args.from, &args.to, &args.steps(), &mut tell) {
        Ok(done) => done,
        Err(tidegate_geo::Error::Io(e)) if e.kind() == io::ErrorKind::BrokenPipe && to_stdout => {
            return Err(e);
        }
        Err(error) => return Ok(layer::give_up("convert", &args.from, &error)),
    };
    if let Some(mut file) = rejects {
        file.flush()?;
    }
    match args.format {
        Answer::Json => out::data(&format!("{:#}\n", answer(args, &done)))?,
        Answer::Words => done.iter().for_each(|layer| say(args, layer)),
    }
    let rejected = done.iter().any(|layer| layer.rejected > 0);
    Ok(if rejected { Exit::DeadLetters } else { Exit::Done })
}

/// Why nothing is begun.
fn refusal(args: &Args, to_stdout: bool) -> Option<String> {
    if to_stdout && (args.to_format.is_none() || args.format == Answer::Json) {
        return Some("standard output needs --to FORMAT, and cannot carry --format json besides".into());
    }
    if args.foreign == Some(Foreign::Keep) && !args.holds_foreign() {
        return Some("only GeoJSON has a place for foreign members; leave --foreign keep out".into());
    }
    let adds = args.overwrite || args.append || args.upsert.is_some();
    if !to_stdout && !adds && args.to.exists() {
        let path = args.to.display();
        return Some(format!("{path} exists; say --overwrite, or --append or --upsert FIELD to add to it"));
    }
    if super::same_file(&args.from, &args.to) && !args.overwrite {
        return Some("IN and OUT are the same file".into());
    }
    None
}

fn answer(args: &Args, done: &[Converted]) -> Value {
    let layers: Vec<Value> = done
        .iter()
        .map(|layer| {
            let repaired = &layer.repaired;
            json!({
                "layer": layer.layer,
                "read": layer.read,
                "written": layer.features,
                "left_out": layer.left_out,
                "rejected": layer.rejected,
                "outside_area_of_use": layer.outside,
                "crs": layer.crs.as_ref().map(ToString::to_string),
                "operation": layer.operation.as_ref().map(tidegate_pipeline::run::operation),
                "repair": args.method().map(|method| json!({
                    "method": method.name(),
                    "geometries": repaired.geometries,
                    "rings_closed": repaired.closed,
                    "shape_changed": repaired.reshaped,
                    "flattened": repaired.flattened,
                    "emptied": repaired.emptied,
                    "area_before": repaired.area.0,
                    "area_after": repaired.area.1,
                    "length_before": repaired.length.0,
                    "length_after": repaired.length.1,
                })),
                "problems": layer.first_rejected.iter().flat_map(|r| &r.problems).map(layer::problem).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "from": args.from.display().to_string(), "to": args.to.display().to_string(), "layers": layers })
}

fn say(args: &Args, done: &Converted) {
    let crs = done.crs.as_ref().map_or_else(String::new, |crs| format!(" in {crs}"));
    let name = layer::plain(&done.layer);
    out::say(&format!("{name}: {} features written to {}{crs}", thousands(done.features), args.to.display()));
    if done.left_out > 0 {
        out::say(&format!("  {} left out by the condition", thousands(done.left_out)));
    }
    if let Some(operation) = &done.operation {
        out::say(&format!("  {}", layer::operation_words(operation)));
        layer::grid_words(operation, "--grids DIR").iter().for_each(|line| out::say(&format!("  {line}")));
    }
    if done.outside > 0 {
        let count = thousands(done.outside);
        out::say(&format!("  warning: {count} reach outside the area that the systems are meant for"));
    }
    if let Some(method) = args.method() {
        let r = &done.repaired;
        out::say(&format!("  {} made valid by {}", thousands(r.geometries), method.name()));
        for (count, what) in [
            (r.closed, "had rings to close"),
            (r.reshaped, "changed their shape"),
            (r.flattened, "lost heights or measures"),
            (r.emptied, "have nothing left"),
        ] {
            if count > 0 {
                out::say(&format!("    {} {what}", thousands(count)));
            }
        }
        if r.geometries > 0 {
            out::say(&format!("    their area was {} and is {}", r.area.0, r.area.1));
        }
    }
    if done.rejected > 0 {
        out::say(&format!("  {} records set aside:", thousands(done.rejected)));
        for rejected in done.first_rejected.iter().take(10) {
            for problem in rejected.problems.iter().take(3) {
                out::say(&format!("    {}", layer::plain(&problem.to_string())));
            }
        }
        if done.rejected > 10 || args.rejects.is_none() {
            let hint = if args.rejects.is_none() { "; --rejects FILE keeps them" } else { "" };
            out::say(&format!("    {} in all{hint}", thousands(done.rejected)));
        }
    }
}
