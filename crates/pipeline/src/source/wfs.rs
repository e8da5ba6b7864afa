//! Web Feature Service, 1.1 and 2.0: pages by `startIndex`, sorted by a key.
//!
//! Without a sort key a server may give each page in another order, and features are lost that
//! nobody misses. So a key is looked for in the description of the layer if none is named.

use super::error::SourceError;
use super::gml;
use super::page::{FeaturePage, geojson};
use super::position::NextPage;
use super::service::PagedLayer;
use super::wire::Wire;
use crate::http::{Request, Response};
use async_trait::async_trait;
use tidegate_geo::xml::{self, Node};
use tidegate_geo::{Crs, Kind, Schema};
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
}

/// A layer of a WFS.
pub(super) struct Wfs {
    url: Url,
    old: bool,
    layer: String,
    gml: bool,
    sort: Option<String>,
    crs: Option<Crs>,
    size: u64,
    schema: Schema,
}

/// Features on a page, if nobody says otherwise.
const SIZE: u64 = 1000;
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
        let formats = formats(&capabilities);
        let json = formats.is_empty() || formats.iter().any(|f| f.contains("json"));
        let names = if old { "TYPENAME" } else { "TYPENAMES" };
        let described =
            ask(wire, url, "DescribeFeatureType", &[("VERSION", number(old)), (names, &layer)]).await?;
        let schema = schema(&described);
        let sort = match options.sort_by {
            Some(field) if schema.fields().is_empty() || schema.position(&field).is_some() => Some(field),
            Some(field) => {
                let names: Vec<&str> = schema.fields().iter().map(|f| f.name.as_str()).collect();
                let message =
                    format!("{layer} has no field {field:?} to sort by; it has {}", names.join(", "));
                return Err(SourceError::setup(message));
            }
            None => KEYS.iter().find_map(|key| {
                schema.fields().iter().find(|f| f.name.eq_ignore_ascii_case(key)).map(|f| f.name.clone())
            }),
        };
        let gml = options.gml || !json;
        let size = options.page_size.unwrap_or(SIZE).max(2);
        Ok(Wfs { url: url.clone(), old, layer, gml, sort, crs: options.crs, size, schema })
    }

    fn get_feature(&self, wire: &Wire, more: &[(&str, &str)]) -> Request {
        let names = if self.old { "TYPENAME" } else { "TYPENAMES" };
        let mut all = vec![("VERSION", number(self.old)), (names, self.layer.as_str())];
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
            return Err(SourceError::setup("the position is not one of a WFS"));
        };
        let (start, size) = (start.to_string(), self.size.to_string());
        let count = if self.old { "MAXFEATURES" } else { "COUNT" };
        let mut all = vec![("STARTINDEX", start.as_str()), (count, size.as_str())];
        if let Some(sort) = &self.sort {
            all.push(("SORTBY", sort));
        }
        if !self.gml {
            all.push(("OUTPUTFORMAT", "application/json"));
        }
        let srs = self.crs.as_ref().map(|crs| match crs.epsg_code() {
            Some(code) => format!("urn:ogc:def:crs:EPSG::{code}"),
            None => crs.to_string(),
        });
        if let Some(srs) = &srs {
            all.push(("SRSNAME", srs));
        }
        Ok(self.get_feature(wire, &all))
    }

    fn read(&self, response: &Response) -> Result<FeaturePage, String> {
        let body = &response.body;
        if body.trim_ascii_start().first() == Some(&b'<') {
            return gml::page(body, &self.schema);
        }
        geojson(body).map(|(page, _)| page)
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

    fn crs(&self) -> Option<Crs> {
        self.crs.clone()
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
                None => {
                    Err(SourceError::setup(format!("no layer {wanted:?}; there are {}", names.join(", "))))
                }
            }
        }
        None => match names.as_slice() {
            [one] => Ok((*one).to_owned()),
            [] => Err(SourceError::setup("the service lists no layer; name one with --layer")),
            many => {
                Err(SourceError::setup(format!("name a layer with --layer; there are {}", many.join(", "))))
            }
        },
    }
}

/// The output formats of GetFeature, in lower case; none if the server does not say.
fn formats(capabilities: &Node) -> Vec<String> {
    let operations = capabilities.all("Operation");
    let get = operations.iter().find(|o| o.attribute("name") == Some("GetFeature"));
    let formats = get.and_then(|o| {
        o.children.iter().find(|p| p.name == "Parameter" && p.attribute("name") == Some("outputFormat"))
    });
    formats.map(|p| p.all("Value").iter().map(|v| v.text.to_ascii_lowercase()).collect()).unwrap_or_default()
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
