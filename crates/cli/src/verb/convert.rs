//! `tidegate convert`: converts features from one file to another.

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

use crate::complete;
use crate::execute::counted;
use crate::exit::Exit;
use crate::layer::FormatArg;
use crate::progress::thousands;
use crate::{layer, out};
use clap_complete::ArgValueCandidates;

/// Convert features between file formats
///
/// The file extensions select the formats: .gpkg, .geojson, .geojsonl, .geojsons, .fgb, .parquet, .shp, .csv,
/// .gml, .esrijson; IN may also be inside a .zip. Memory use does not depend on the size of the file, and
/// the output file appears only when it is complete. Records that cannot be converted are rejected
/// with a reason; the others are written.
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

--where takes an SQL condition: = <> < <= > >=, AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, IS NULL.
Write field names bare or in \"double quotes\", text in 'single quotes'. $shape, $id and $record can
be used like fields.

Exit codes: 0 success; 1 a file cannot be read or written; 2 invalid options; 4 finished, some records
were rejected.")]
pub(crate) struct Args {
    /// Input file
    #[arg(value_name = "IN")]
    from: PathBuf,

    /// Output file; `-` for standard output, with --to
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// Reproject to this coordinate reference system: EPSG:27700, a URN, or WKT
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    to_crs: Option<Crs>,

    /// Coordinate reference system of an input that does not declare one
    #[arg(long, value_name = "CRS", value_parser = layer::crs)]
    from_crs: Option<Crs>,

    /// Convert only features that match this condition
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,

    /// Layer to read [default: all layers, if OUT can hold them]
    #[arg(long, value_name = "NAME")]
    #[arg(add = ArgValueCandidates::new(complete::layers))]
    layer: Option<String>,

    /// Name of the layer to write [default: the name of OUT]
    #[arg(long, value_name = "NAME")]
    layer_name: Option<String>,

    /// Repair invalid geometries, by the linework or the structure method
    #[arg(long, value_name = "METHOD", value_enum, num_args = 0..=1, require_equals = true,
          default_missing_value = "linework")]
    make_valid: Option<MakeValid>,

    /// Write only these fields, in this order: NAME, NAME=SOURCE, NAME=SOURCE:KIND. Kinds: bool, int,
    /// real, text, date, datetime, json. SOURCE may be a path into JSON: tags.name
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = rule)]
    select: Vec<Rule>,

    /// Convert every geometry to its multi type, such as Polygon to MultiPolygon
    #[arg(long)]
    promote_to_multi: bool,

    /// Add vertices so that no segment is longer than this, in units of the input
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    densify: Option<f64>,

    /// Handling of features outside the area of use of a coordinate reference system
    #[arg(long, value_enum, default_value = "warn")]
    outside: OutsideArg,

    /// Fail if the reprojection is less accurate than this, or of unknown accuracy
    #[arg(long, value_name = "METRES")]
    accuracy: Option<f32>,

    /// Accept coordinates that cannot be in the coordinate reference system that IN or --from-crs declares
    #[arg(long)]
    trust_crs: bool,

    /// Directories with datum shift grids (NTv2 .gsb, GeoTIFF .tif) [default: TIDEGATE_GRIDS or PROJ_DATA]
    #[arg(long, value_name = "DIR")]
    grids: Vec<PathBuf>,

    /// Format of IN [default: decided by its extension, else by its first bytes]
    #[arg(long, value_name = "FORMAT", value_enum)]
    input_format: Option<FormatArg>,

    /// Output format, if the extension of OUT does not select it
    #[arg(long = "to", value_name = "FORMAT", value_enum)]
    to_format: Option<FormatArg>,

    /// Foreign members of GeoJSON features [default: keep from GeoJSON to GeoJSON, otherwise drop]
    #[arg(long, value_enum)]
    foreign: Option<Foreign>,

    /// Geometry encoding in CSV output
    #[arg(long, value_enum, default_value = "auto")]
    csv_geometry: CsvGeometry,

    /// Overwrite OUT if it exists
    #[arg(long, group = "existing")]
    overwrite: bool,

    /// Append to the layer in OUT, which is created if missing (GeoPackage)
    #[arg(long, group = "existing")]
    append: bool,

    /// Append to the layer in OUT, replacing features with the same FIELD value (GeoPackage)
    #[arg(long, value_name = "FIELD", group = "existing")]
    upsert: Option<String>,

    /// Write rejected records to this file, one JSON object per line, with reasons and original bytes
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,

    /// Summary format: text on standard error, or JSON on standard output
    #[arg(long, value_enum, default_value = "words")]
    format: ConvertFormat,
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
    /// Reject them
    Refuse,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Foreign {
    /// Keep them unchanged, beside type, id, properties and geometry
    Keep,
    /// Drop them
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
enum ConvertFormat {
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
        return Err("empty field name".into());
    }
    Ok(Rule { to: to.into(), from: Some(from.into()), kind, ..Rule::default() })
}

fn length(text: &str) -> Result<f64, String> {
    let length = text.parse::<f64>().ok().filter(|x| x.is_finite() && *x > 0.0);
    length.ok_or_else(|| "expected a number greater than 0".into())
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
                format: self.input_format.map(FormatArg::format),
                layer: self.layer.clone(),
                // Invalid geometries must pass the check to be repaired.
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

    /// Whether the format of OUT can hold foreign members.
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

pub(crate) fn run(args: &Args) -> io::Result<Exit> {
    let to_stdout = args.to == Path::new("-");
    if let Some(folder) = args.grids.iter().find(|folder| !folder.is_dir()) {
        out::say(&format!("tidegate convert: --grids {}: no such directory", folder.display()));
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
        ConvertFormat::Json => out::data(&format!("{:#}\n", answer(args, &done)))?,
        ConvertFormat::Words => done.iter().for_each(|layer| say(args, layer)),
    }
    let rejected = done.iter().any(|layer| layer.rejected > 0);
    Ok(if rejected { Exit::DeadLetters } else { Exit::Done })
}

/// The reason why the options are invalid.
fn refusal(args: &Args, to_stdout: bool) -> Option<String> {
    if to_stdout && (args.to_format.is_none() || args.format == ConvertFormat::Json) {
        return Some("writing to standard output requires --to FORMAT and excludes --format json".into());
    }
    if args.foreign == Some(Foreign::Keep) && !args.holds_foreign() {
        return Some("only GeoJSON output can hold foreign members; remove --foreign keep".into());
    }
    let adds = args.overwrite || args.append || args.upsert.is_some();
    if !to_stdout && !adds && args.to.exists() {
        let path = args.to.display();
        return Some(format!(
            "{path} already exists; pass --overwrite to replace it, or --append or --upsert FIELD to add to it"
        ));
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
    out::say(&format!(
        "{name}: {} written to {}{crs}",
        counted(done.features, "feature", "features"),
        args.to.display()
    ));
    if done.left_out > 0 {
        out::say(&format!("  {} excluded by the condition", thousands(done.left_out)));
    }
    if let Some(operation) = &done.operation {
        out::say(&format!("  {}", layer::operation_words(operation)));
        layer::grid_words(operation, "--grids DIR").iter().for_each(|line| out::say(&format!("  {line}")));
    }
    if done.outside > 0 {
        let count = counted(done.outside, "feature", "features");
        out::say(&format!("  warning: {count} outside the area of use of the coordinate reference systems"));
    }
    if let Some(method) = args.method() {
        let r = &done.repaired;
        out::say(&format!(
            "  {} repaired by {}",
            counted(r.geometries, "geometry", "geometries"),
            method.name()
        ));
        for (count, what) in [
            (r.closed, "with rings closed"),
            (r.reshaped, "with a changed geometry type"),
            (r.flattened, "without their Z or M values"),
        ] {
            if count > 0 {
                out::say(&format!("    {} {what}", thousands(count)));
            }
        }
        if r.geometries > 0 {
            out::say(&format!("    total area before {}, after {}", r.area.0, r.area.1));
        }
    }
    if done.rejected > 0 {
        out::say(&format!("  {} rejected:", counted(done.rejected, "record", "records")));
        for rejected in done.first_rejected.iter().take(10) {
            for problem in rejected.problems.iter().take(3) {
                out::say(&format!("    {}", layer::plain(&problem.to_string())));
            }
        }
        if done.rejected > 10 || args.rejects.is_none() {
            let hint = if args.rejects.is_none() { "; use --rejects FILE to save them" } else { "" };
            out::say(&format!("    {} in total{hint}", thousands(done.rejected)));
        }
    }
}
