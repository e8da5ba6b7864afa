//! Web Feature Service, 1.1 and 2.0: pages by `startIndex`, sorted by a key.
//!
//! Without a sort key a server may give each page in another order, and features are lost that
//! nobody misses. So a key is looked for in the description of the layer if none is named.

use super::axis_order::{AxisOrder, AxisRule};
use super::error::SourceError;
use super::page::{FeaturePage, geojson};
use super::position::NextPage;
use super::service::PagedLayer;
use super::since::ChangedSince;
use super::wire::Wire;
use super::{extent, gml};
use crate::http::{Request, Response};
use async_trait::async_trait;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_geo::xml::{self, Node};
use tidegate_geo::{Bounds, Crs, Kind, Schema};
use url::Url;

/// What to ask of a WFS.
#[derive(Clone, Debug, Default)]
pub struct WfsOptions {
    /// The layer; may be left out if there is only one.
    pub layer: Option<String>,
    /// `2.0.0` or `1.1.0`; what the server prefers by default.
    pub version: Option<String>,
    /// The field to sort by.
    pub sort_by: Option<String>,
    /// The reference system to ask for.
    pub crs: Option<Crs>,
    /// Features on a page.
    pub page_size: Option<u64>,
    /// Ask for GML even if the server has GeoJSON.
    pub gml: bool,
    /// Ask for GeoJSON even if the server does not offer it, or not in the system that is asked for.
    pub geojson: bool,
    /// Which coordinate of GML comes first; found out by default.
    pub axis_order: Option<AxisOrder>,
    /// Ask only for features that have changed.
    pub since: Option<ChangedSince>,
}

/// A layer of a WFS.
pub(super) struct Wfs {
    url: Url,
    old: bool,
    layer: String,
    /// What GeoJSON is called there; none asks for GML.
    json: Option<String>,
    sort: Option<String>,
    crs: Option<Crs>,
    /// The layer's own system, as the server names it.
    own: Option<String>,
    /// The server refused to be asked for that.
    plain: AtomicBool,
    rule: AxisRule,
    /// The filter, if not all features are asked for.
    filter: Option<String>,
    size: u64,
    schema: Schema,
    /// The same with the fields that hold a time as an object, to read pages with.
    kinds: Schema,
}

/// Features on a page, if nobody says otherwise.
const SIZE: u64 = 1000;
/// What GeoJSON is usually called.
const USUAL: &str = "application/json";
/// Features of a page whose coordinates are looked at.
const SAMPLE: usize = 100;
/// Fields that are usually the key, best first.
const KEYS: [&str; 9] = ["fid", "ogc_fid", "gid", "objectid", "id", "pk", "uuid", "identifier", "gml_id"];
/// Parameters that are ours; what else stands in the URL goes along.
const OURS: [&str; 13] = [
    "service",
    "version",
    "request",
    "typename",
    "typenames",
    "count",
    "maxfeatures",
    "startindex",
    "sortby",
    "outputformat",
    "resulttype",
    "srsname",
    "acceptversions",
];

impl Wfs {
    pub(super) async fn open(wire: &Wire, url: &Url, options: WfsOptions) -> Result<Wfs, SourceError> {
        let version = options.version.as_deref();
        let wanted: Vec<(&str, &str)> = version.map(|v| ("VERSION", v)).into_iter().collect();
        let capabilities = ask(wire, url, "GetCapabilities", &wanted).await?;
        let old = version.or(capabilities.attribute("version")).is_some_and(|v| v.starts_with("1."));
        let layer = choose(&capabilities, options.layer)?;
        let about = about(&capabilities, &layer);
        let json = json_of(&formats(&capabilities), options.geojson);
        let names = if old { "TYPENAME" } else { "TYPENAMES" };
        let described =
            ask(wire, url, "DescribeFeatureType", &[("VERSION", number(old)), (names, &layer)]).await?;
        let schema = schema(&described);
        let sort = match options.sort_by {
            Some(field) if schema.fields().is_empty() || schema.position(&field).is_some() => Some(field),
            Some(field) => {
                let names: Vec<&str> = schema.fields().iter().map(|f| f.name.as_str()).collect();
                let message = format!(
                    "{layer} has no field {field:?} to sort by; expected one of {}",
                    names.join(", ")
                );
                return Err(SourceError::setup(message));
            }
            None => KEYS.iter().find_map(|key| {
                schema.fields().iter().find(|f| f.name.eq_ignore_ascii_case(key)).map(|f| f.name.clone())
            }),
        };
        // GeoJSON is in WGS 84 with some servers, whatever is asked for; GML is not.
        let other = options.crs.as_ref().is_some_and(|crs| !crs.is_wgs84());
        let json = json.filter(|_| !options.gml && (options.geojson || !other));
        let own = about.and_then(|about| {
            let named = about.child("DefaultCRS").or_else(|| about.child("DefaultSRS"))?;
            Some(named.text.trim().to_owned()).filter(|name| name.parse::<Crs>().is_ok())
        });
        let rule = AxisRule {
            said: options.axis_order,
            extent: about.and_then(extent::of_feature_type),
            ..AxisRule::default()
        };
        let size = options.page_size.unwrap_or(SIZE).max(2);
        Ok(Wfs {
            url: url.clone(),
            old,
            layer,
            json,
            sort,
            crs: options.crs,
            own,
            plain: AtomicBool::new(false),
            rule,
            filter: options.since.map(|since| since.fes(old)),
            size,
            kinds: with_times(&schema, &described),
            schema,
        })
    }

    /// The system to ask for, in the words of the server. By URN where that is possible: a short name
    /// leaves open which coordinate comes first.
    fn srs(&self) -> Option<String> {
        let urn = |crs: &Crs| crs.epsg_code().map(|code| format!("urn:ogc:def:crs:EPSG::{code}"));
        if let Some(crs) = &self.crs {
            return Some(urn(crs).unwrap_or_else(|| crs.to_string()));
        }
        if self.json.is_some() || self.plain.load(Ordering::Relaxed) {
            return None;
        }
        let own = self.own.as_ref()?;
        let crs: Crs = own.parse().ok()?;
        if own.starts_with("EPSG:") && self.old { urn(&crs) } else { Some(own.clone()) }
    }

    /// The system of a page of GeoJSON that names none: WGS 84, as the standard has it, or the one
    /// that was asked for, as some servers have it. The coordinates tell.
    fn system(&self, page: &FeaturePage) -> Result<Option<String>, String> {
        let own = || self.own.as_deref().and_then(|own| own.parse::<Crs>().ok());
        let Some(crs) = self.crs.clone().or_else(own).filter(|crs| !crs.is_wgs84()) else {
            return Ok(None);
        };
        let some = page.features.iter().take(SAMPLE).map(|feature| page.feature(feature));
        let Some(bounds) = extent::of_features(some) else { return Ok(None) };
        // Without a declared extent, the globe.
        let globe = Bounds { min_x: -180.0, min_y: -90.0, max_x: 180.0, max_y: 90.0 };
        let declared = self.rule.extent.unwrap_or(globe);
        if extent::fits(&Crs::wgs84(), bounds, declared) {
            return Ok(Some(Crs::wgs84().to_string()));
        }
        if extent::fits(&crs, bounds, declared) {
            return Ok(Some(crs.to_string()));
        }
        Err(format!(
            "a page of GeoJSON names no system, and its coordinates (such as {} {}) are neither in WGS 84 nor \
             in {crs} where the layer is declared to be; ask for GML with --body gml",
            bounds.min_x, bounds.min_y
        ))
    }

    fn get_feature(&self, wire: &Wire, more: &[(&str, &str)]) -> Request {
        let names = if self.old { "TYPENAME" } else { "TYPENAMES" };
        let mut all = vec![("VERSION", number(self.old)), (names, self.layer.as_str())];
        all.extend(self.filter.iter().map(|filter| ("FILTER", filter.as_str())));
        all.extend_from_slice(more);
        wire.get(with(&self.url, "GetFeature", &all))
    }
}

#[async_trait]
impl PagedLayer for Wfs {
    fn layer(&self) -> &str {
        &self.layer
    }

    fn first(&self) -> NextPage {
        NextPage::Offset { start: 0, overlap: false }
    }

    fn request(&self, wire: &Wire, step: &NextPage) -> Result<Request, SourceError> {
        let NextPage::Offset { start, .. } = step else {
            return Err(SourceError::setup("the saved position is not from a WFS"));
        };
        let (start, size) = (start.to_string(), self.size.to_string());
        let count = if self.old { "MAXFEATURES" } else { "COUNT" };
        let mut all = vec![("STARTINDEX", start.as_str()), (count, size.as_str())];
        if let Some(sort) = &self.sort {
            all.push(("SORTBY", sort));
        }
        if let Some(json) = &self.json {
            all.push(("OUTPUTFORMAT", json));
        }
        let srs = self.srs();
        if let Some(srs) = &srs {
            all.push(("SRSNAME", srs));
        }
        Ok(self.get_feature(wire, &all))
    }

    fn read(&self, response: &Response) -> Result<FeaturePage, String> {
        let body = &response.body;
        if body.trim_ascii_start().first() == Some(&b'<') {
            return gml::page(body, &self.kinds, &self.rule);
        }
        let (mut page, _) = geojson(body)?;
        if page.crs.is_none() {
            match self.system(&page) {
                Ok(crs) => page.crs = crs,
                Err(why) => page.refusal = Some(why),
            }
        }
        Ok(page)
    }

    fn relent(&self) -> bool {
        // Some servers know their own systems by another name only.
        self.crs.is_none() && self.srs().is_some() && !self.plain.swap(true, Ordering::Relaxed)
    }

    fn size(&self) -> u64 {
        self.size
    }

    async fn count(&self, wire: &Wire) -> Result<Option<u64>, SourceError> {
        let what = format!("{}, the number of features", self.layer);
        let request = self.get_feature(wire, &[("RESULTTYPE", "hits")]);
        let response = wire.ask(&request, &what).await?;
        let hits = xml::parse(&response.body)
            .map_err(|why| SourceError::broken(why.code, format!("{what}: {}", why.message)))?;
        let number = if self.old { "numberOfFeatures" } else { "numberMatched" };
        // "unknown" is an answer too.
        Ok(hits.attribute(number).and_then(|n| n.parse().ok()))
    }

    fn described(&self) -> Option<&Schema> {
        Some(&self.schema).filter(|schema| !schema.fields().is_empty())
    }

    fn extent(&self) -> Option<Bounds> {
        self.rule.extent
    }

    fn crs(&self) -> Option<Crs> {
        // Pages of GeoJSON that name no system are in WGS 84, unless their coordinates tell otherwise.
        let own = || self.own.as_deref().and_then(|own| own.parse().ok());
        if self.json.is_some() { None } else { self.crs.clone().or_else(own) }
    }
}

fn number(old: bool) -> &'static str {
    if old { "1.1.0" } else { "2.0.0" }
}

/// The URL with these parameters in place of its own of the same names.
fn with(url: &Url, request: &str, more: &[(&str, &str)]) -> Url {
    let mut out = url.clone();
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(n, _)| !OURS.contains(&n.to_ascii_lowercase().as_str()))
        .map(|(n, v)| (n.into(), v.into()))
        .collect();
    let mut pairs = out.query_pairs_mut();
    pairs.clear();
    pairs.extend_pairs(kept);
    pairs.extend_pairs([("SERVICE", "WFS"), ("REQUEST", request)]);
    pairs.extend_pairs(more);
    drop(pairs);
    out
}

async fn ask(wire: &Wire, url: &Url, request: &str, more: &[(&str, &str)]) -> Result<Node, SourceError> {
    let response = wire.ask(&wire.get(with(url, request, more)), request).await?;
    xml::parse(&response.body)
        .map_err(|why| SourceError::broken(why.code, format!("{request}: {}", why.message)))
}

/// The layer that is meant, under the name that the server gives it.
fn choose(capabilities: &Node, wanted: Option<String>) -> Result<String, SourceError> {
    let types = capabilities.all("FeatureType");
    let names: Vec<&str> = types.iter().filter_map(|t| t.child("Name")).map(|n| n.text.trim()).collect();
    let local = |name: &str| name.rsplit(':').next().unwrap_or_default().to_owned();
    match wanted {
        Some(wanted) => {
            let exact = names.iter().find(|n| **n == wanted);
            let found = exact.or_else(|| names.iter().find(|n| local(n) == wanted));
            match found {
                Some(name) => Ok((*name).to_owned()),
                // Some servers list nothing to those who are not logged in.
                None if names.is_empty() => Ok(wanted),
                None => Err(SourceError::setup(format!(
                    "no layer {wanted:?}; expected one of {}",
                    names.join(", ")
                ))),
            }
        }
        None => match names.as_slice() {
            [one] => Ok((*one).to_owned()),
            [] => Err(SourceError::setup("the service lists no layers; pass one with --layer")),
            many => Err(SourceError::setup(format!(
                "choose a layer with --layer; expected one of {}",
                many.join(", ")
            ))),
        },
    }
}

/// What the server says of a layer.
fn about<'a>(capabilities: &'a Node, layer: &str) -> Option<&'a Node> {
    let types = capabilities.all("FeatureType");
    types.into_iter().find(|t| t.child("Name").is_some_and(|name| name.text.trim() == layer))
}

/// The output formats of GetFeature; none if the server does not say.
fn formats(capabilities: &Node) -> Vec<String> {
    let operations = capabilities.all("Operation");
    let get = operations.iter().find(|o| o.attribute("name") == Some("GetFeature"));
    let formats = get.and_then(|o| {
        o.children.iter().find(|p| p.name == "Parameter" && p.attribute("name") == Some("outputFormat"))
    });
    formats.map(|p| p.all("Value").iter().map(|v| v.text.trim().to_owned()).collect()).unwrap_or_default()
}

/// What GeoJSON is called among the formats: the string that the server offers, because others are
/// refused. A server that offers nothing is asked in the usual way.
fn json_of(formats: &[String], insist: bool) -> Option<String> {
    let usual = || USUAL.to_owned();
    if formats.is_empty() {
        return Some(usual());
    }
    let lower: Vec<String> = formats.iter().map(|f| f.to_ascii_lowercase()).collect();
    // With padding, or as a script, it is none.
    let is_json = |f: &str| f.contains("json") && !f.contains("jsonp") && !f.contains("javascript");
    let by_name = |name: &str| lower.iter().position(|f| f == name);
    let found = [USUAL, "application/geo+json", "application/vnd.geo+json"].iter().find_map(|n| by_name(n));
    let found = found.or_else(|| lower.iter().position(|f| is_json(f) && f.contains("geo")));
    let found = found.or_else(|| lower.iter().position(|f| is_json(f)));
    found.and_then(|at| formats.get(at)).cloned().or_else(|| insist.then(usual))
}

/// The fields with those that hold a time as an object. Which kind of time that is, the pages show; so
/// they are not among the described ones.
fn with_times(schema: &Schema, described: &Node) -> Schema {
    let mut all = schema.clone();
    let is_time = |e: &&Node| e.attribute("type").is_some_and(|kind| kind.starts_with("gml:Time"));
    for element in described.all("element").into_iter().filter(is_time) {
        if let Some(name) = element.attribute("name") {
            all.add(name, Kind::DateTime);
        }
    }
    all
}

/// The fields of a described type, geometry left out.
fn schema(described: &Node) -> Schema {
    let mut schema = Schema::default();
    for element in described.all("element") {
        let (Some(name), Some(kind)) = (element.attribute("name"), element.attribute("type")) else {
            continue;
        };
        if element.attribute("substitutionGroup").is_some() || kind.starts_with("gml:") {
            continue;
        }
        let kind = match kind.rsplit(':').next().unwrap_or_default() {
            "boolean" => Kind::Bool,
            "int" | "integer" | "long" | "short" | "byte" | "unsignedInt" | "unsignedShort"
            | "unsignedByte" | "nonNegativeInteger" | "positiveInteger" => Kind::Int,
            "double" | "float" | "decimal" => Kind::Real,
            "date" => Kind::Date,
            "dateTime" => Kind::DateTime,
            _ => Kind::Text,
        };
        schema.add(name, kind);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geojson_is_asked_for_by_the_name_that_is_offered() {
        let of =
            |offered: &[&str]| json_of(&offered.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>(), false);
        assert_eq!(of(&[]).as_deref(), Some("application/json"));
        assert_eq!(of(&["text/xml; subtype=gml/3.1.1"]), None);
        assert_eq!(of(&["GML2", "text/javascript", "application/json"]).as_deref(), Some("application/json"));
        let subtype = "application/json; subtype=geojson";
        assert_eq!(of(&["text/xml", subtype]).as_deref(), Some(subtype));
        assert_eq!(of(&["GML3", "GEOJSON"]).as_deref(), Some("GEOJSON"));
        assert_eq!(of(&["GML3", "text/javascript; json"]), None);
        assert_eq!(json_of(&["GML3".to_owned()], true).as_deref(), Some("application/json"));
    }
}
