//! Reading feature collections.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;

use super::geometry::{self, PositionLayout, geometry_of, system_of};
use crate::batch::{Batch, Span};
use crate::crs::Crs;
use crate::error::{Error, Problem};
use crate::format::geojson::ReadOptions;
use crate::format::{Layer, Rejected, json};
use crate::mapping::Owned;
use crate::schema::{FIELDS_MAX, Kind, Schema, is_date, is_date_time, too_many_fields};
use crate::wkb::{Dim, Shape};
use crate::xml::{self, DEPTH_MAX, ELEMENTS_MAX, Node, Xml, XmlToken};

/// A feature collection being read.
pub struct GmlReader {
    features: GmlFeatures,
    layer: Layer,
    /// The system that geometries without a name of their own are in, and its axis order.
    system: Option<(Crs, bool)>,
    record: u64,
    options: ReadOptions,
}

impl GmlReader {
    /// Opens a file and infers its fields and its system.
    ///
    /// # Errors
    /// If it is not XML, holds a server's exception, or its features are in several systems.
    pub fn open(path: &Path, options: ReadOptions) -> Result<GmlReader, Error> {
        let mut features = GmlFeatures::open(path, options.limits.record_bytes_max)?;
        let mut found = FirstPass::default();
        let mut records = 0;
        while let Some(feature) = features.next()? {
            found.see(&feature);
            records += 1;
            if found.fields.fields().len() > FIELDS_MAX {
                return Err(too_many_fields().of_record(records - 1).into());
            }
        }
        let system = match found.systems.as_slice() {
            [] => features.system.as_deref().map(geometry::system).transpose()?,
            [only] => Some(geometry::system(only)?),
            several => {
                let message = format!("the features are in several systems: {several:?}");
                return Err(Problem::new(Code::CRS_MISMATCH, message).into());
            }
        };
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("layer");
        let name = found.name.clone().unwrap_or_else(|| stem.to_owned());
        let crs = system.as_ref().map(|(crs, _)| crs.clone());
        let layer = Layer { name, schema: Arc::new(found.schema()), crs, records: Some(records) };
        Ok(GmlReader {
            features: GmlFeatures::open(path, options.limits.record_bytes_max)?,
            layer,
            system,
            record: 0,
            options,
        })
    }

    fn push(&self, feature: &Node, batch: &mut Batch) -> Result<(), Problem> {
        let mut values = vec![Owned::Null; self.layer.schema.fields().len()];
        let mut wkb = Vec::new();
        for (name, properties) in grouped(feature) {
            if let Some(shape) = properties.first().and_then(|property| geometry_of(property)) {
                if wkb.is_empty() {
                    let turned = match shape.attribute("srsName") {
                        Some(own) => geometry::system(own)?.1,
                        None => self.system.as_ref().is_some_and(|(_, turned)| *turned),
                    };
                    let frame = PositionLayout::of(shape, turned)?;
                    geometry::geometry(shape, frame, &mut wkb).map_err(|problem| problem.under(name))?;
                }
                continue;
            }
            let Some(at) = self.layer.schema.position(name) else { continue };
            let kind = self.layer.schema.fields().get(at).map_or(Kind::Text, |field| field.kind);
            if let Some(slot) = values.get_mut(at) {
                *slot = value(&properties, kind);
            }
        }
        let given = (!wkb.is_empty()).then_some(wkb.as_slice());
        batch.push(given, values.iter().map(Owned::value))?;
        if let Some(id) = feature.attribute("id").or_else(|| feature.attribute("fid")) {
            let mut text = Vec::new();
            json::write_text(&mut text, id);
            batch.set_id(&String::from_utf8_lossy(&text));
        }
        Ok(())
    }
}

impl crate::format::Reader for GmlReader {
    fn layer(&self) -> &Layer {
        &self.layer
    }

    fn next_batch(&mut self, rejected: &mut Vec<Rejected>) -> Result<Option<Batch>, Error> {
        let mut batch = Batch::new(self.layer.schema.clone()).from_record(self.record);
        let mut aside = 0;
        while batch.len() < self.options.batch_rows_max
            && batch.full_len() + aside < self.options.batch_bytes_max
        {
            let offset = self.features.xml.position();
            let Some(feature) = self.features.next()? else {
                return Ok((!batch.is_empty()).then_some(batch));
            };
            let span = Span { offset, len: self.features.xml.position() - offset };
            if let Err(problem) = self.push(&feature, &mut batch) {
                let problems = vec![problem.of_record(self.record).at(offset)];
                let id = feature.attribute("id").unwrap_or_default();
                let raw = format!("<{} id=\"{id}\">", feature.name).into_bytes();
                rejected.push(Rejected { record: self.record, span, raw, problems });
                aside += rejected.last().map_or(0, Rejected::byte_len);
                batch.go_to_record(self.record + 1);
            } else {
                batch.set_origin(span, &[]);
            }
            self.record += 1;
        }
        Ok(Some(batch))
    }
}

/// The features of a file, one after another.
struct GmlFeatures {
    xml: Xml<BufReader<File>>,
    /// The elements around the place where the stream stands; of each, whether it holds features.
    open: Vec<bool>,
    /// The system of the collection's own box.
    system: Option<String>,
    /// Whether there was an element at all.
    rooted: bool,
}

impl GmlFeatures {
    fn open(path: &Path, len_max: usize) -> Result<GmlFeatures, Error> {
        let input = BufReader::with_capacity(1 << 18, File::open(path)?);
        Ok(GmlFeatures { xml: Xml::new(input, len_max), open: Vec::new(), system: None, rooted: false })
    }

    fn next(&mut self) -> Result<Option<Node>, Error> {
        loop {
            let at = self.xml.position();
            match self.xml.next()? {
                // A collection within a collection, as WFS 2.0 answers several queries at once, is no feature.
                XmlToken::Start(node) if self.open.last() == Some(&true) && !is_collection(&node) => {
                    return self.xml.rest(node, ELEMENTS_MAX).map(Some);
                }
                XmlToken::Start(node) => {
                    match node.name.as_str() {
                        "boundedBy" => {
                            let whole = self.xml.rest(node, ELEMENTS_MAX)?;
                            self.system = system_of(&whole).map(str::to_owned).or(self.system.take());
                            continue;
                        }
                        "ExceptionReport" | "ServiceExceptionReport" => {
                            let whole = self.xml.rest(node, ELEMENTS_MAX)?;
                            let message =
                                format!("the server answered with an exception: {:.200}", text_of(&whole));
                            return Err(Problem::new(Code::SERVICE_EXCEPTION, message).into());
                        }
                        _ => {}
                    }
                    self.rooted = true;
                    self.open.push(is_holder(&node));
                    if self.open.len() > DEPTH_MAX {
                        return Err(xml::broken("elements nest too deep").at(at).into());
                    }
                }
                XmlToken::Empty(_) => self.rooted = true,
                XmlToken::End => {
                    self.open.pop();
                }
                XmlToken::Text if !self.open.is_empty() => {}
                XmlToken::Text => return Err(xml::broken("text outside of the root").at(at).into()),
                XmlToken::Eof if !self.open.is_empty() => {
                    let problem = Problem::new(Code::TRUNCATED_BODY, "the text ends within the collection");
                    return Err(problem.at(at).into());
                }
                XmlToken::Eof if !self.rooted => {
                    return Err(xml::broken("the file contains no element").into());
                }
                XmlToken::Eof => return Ok(None),
            }
        }
    }
}

/// Whether an element holds features of a collection.
pub(super) fn is_holder(node: &Node) -> bool {
    ["featureMember", "featureMembers", "member"].contains(&node.name.as_str())
}

pub(super) fn is_collection(node: &Node) -> bool {
    ["FeatureCollection", "SimpleFeatureCollection"].contains(&node.name.as_str())
}

/// What holds the text of a property: a moment is wrapped in one or two elements of its own.
pub(super) fn plain(property: &Node) -> &Node {
    match property.children.as_slice() {
        [only] if ["TimeInstant", "timePosition"].contains(&only.name.as_str()) => plain(only),
        _ => property,
    }
}

fn text_of(node: &Node) -> String {
    let own = node.text.trim().to_owned();
    let parts = node.children.iter().map(text_of);
    [own].into_iter().chain(parts).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The properties of a feature, those of one name together.
pub(super) fn grouped(feature: &Node) -> Vec<(&str, Vec<&Node>)> {
    let mut all: Vec<(&str, Vec<&Node>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    // A feature's own box is not one of its properties.
    for property in feature.children.iter().filter(|property| property.name != "boundedBy") {
        let place = if all.len() < 16 {
            all.iter().position(|(name, _)| *name == property.name)
        } else {
            if places.is_empty() {
                places = all.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
            }
            places.get(property.name.as_str()).copied()
        };
        match place.and_then(|at| all.get_mut(at)) {
            Some((_, list)) => list.push(property),
            None => {
                if !places.is_empty() {
                    places.insert(&property.name, all.len());
                }
                all.push((&property.name, vec![property]));
            }
        }
    }
    all
}

/// The result of the first pass.
#[derive(Default)]
struct FirstPass {
    name: Option<String>,
    fields: Schema,
    shape: Option<Shape>,
    mixed: bool,
    dim: Dim,
    systems: Vec<String>,
}

impl FirstPass {
    fn see(&mut self, feature: &Node) {
        self.name.get_or_insert_with(|| feature.name.clone());
        for (name, properties) in grouped(feature) {
            if let Some(shape) = properties.first().and_then(|property| geometry_of(property)) {
                self.see_geometry(shape);
            } else if let Some(kind) = kind_of(&properties) {
                self.fields.add(name, kind);
            } else if self.fields.position(name).is_none() && !is_nil(&properties) {
                self.fields.add(name, Kind::Text);
            }
        }
    }

    fn see_geometry(&mut self, node: &Node) {
        let shape = match node.name.as_str() {
            "Point" => Shape::Point,
            "LineString" | "Curve" | "CompositeCurve" | "LinearRing" => Shape::LineString,
            "Polygon" | "Envelope" => Shape::Polygon,
            "MultiPoint" => Shape::MultiPoint,
            "MultiLineString" | "MultiCurve" => Shape::MultiLineString,
            "MultiPolygon" | "MultiSurface" => Shape::MultiPolygon,
            "MultiGeometry" => Shape::GeometryCollection,
            // One patch or many.
            _ => {
                self.mixed = true;
                Shape::Polygon
            }
        };
        self.mixed |= self.shape.is_some_and(|other| other != shape);
        self.shape = Some(shape);
        let size = geometry::dimension(node).or_else(|| geometry::guess(node));
        self.dim = self.dim.union(Dim::new(size == Some(3), false));
        // Two are told to be several; more are not needed for that.
        if let Some(name) = system_of(node)
            && self.systems.len() < 9
            && !self.systems.iter().any(|known| known == name)
        {
            self.systems.push(name.to_owned());
        }
    }

    fn schema(self) -> Schema {
        let mut schema = self.fields;
        schema.shape = self.shape.filter(|_| !self.mixed);
        schema.dim = self.dim;
        schema
    }
}

fn is_nil(properties: &[&Node]) -> bool {
    properties.iter().all(|property| property.attribute("nil") == Some("true"))
}

/// The kind that the text of a property suggests; `None` if there is nothing to see.
fn kind_of(properties: &[&Node]) -> Option<Kind> {
    let [only] = properties else { return Some(Kind::Json) };
    let only = plain(only);
    if !only.children.is_empty() {
        return Some(Kind::Json);
    }
    let text = only.text.trim();
    if text.is_empty() {
        return None;
    }
    // `007` is text, not a number.
    let digits = text.strip_prefix('-').unwrap_or(text);
    let padded = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    Some(match text {
        "true" | "false" => Kind::Bool,
        _ if padded || text.starts_with('+') => Kind::Text,
        _ if text.parse::<i64>().is_ok() => Kind::Int,
        _ if digits.starts_with(|c: char| c.is_ascii_digit())
            && fast_float2::parse::<f64, _>(text).is_ok() =>
        {
            Kind::Real
        }
        _ if is_date(text) => Kind::Date,
        _ if is_date_time(text) => Kind::DateTime,
        _ => Kind::Text,
    })
}

/// A property in the kind of its field.
fn value(properties: &[&Node], kind: Kind) -> Owned {
    let text = match properties {
        [only] if plain(only).children.is_empty() => Some(plain(only).text.trim()),
        _ => None,
    };
    let is_empty = text == Some("");
    let text = text.unwrap_or_default();
    match kind {
        _ if is_nil(properties) || is_empty => Owned::Null,
        Kind::Json => {
            let mut out = Vec::new();
            write_json(properties, &mut out);
            Owned::Json(String::from_utf8_lossy(&out).into_owned())
        }
        _ if text.is_empty() => Owned::Null,
        Kind::Bool => Owned::Bool(text == "true"),
        Kind::Int => text.parse().map_or(Owned::Null, Owned::Int),
        Kind::Real => fast_float2::parse(text).map_or(Owned::Null, Owned::Real),
        _ => Owned::Text(text.to_owned()),
    }
}

fn write_json(nodes: &[&Node], out: &mut Vec<u8>) {
    if let [only] = nodes {
        if only.children.is_empty() {
            return json::write_text(out, only.text.trim());
        }
        out.push(b'{');
        for (at, (name, members)) in grouped(only).iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            json::write_text(out, name);
            out.push(b':');
            write_json(members, out);
        }
        return out.push(b'}');
    }
    out.push(b'[');
    for (at, node) in nodes.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_json(&[*node], out);
    }
    out.push(b']');
}
