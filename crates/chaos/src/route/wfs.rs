//! A Web Feature Service, 1.1 and 2.0: capabilities, hits, pages in GML or GeoJSON.
//!
//! As in GeoServer, coordinates are latitude first if the coordinate reference system is a URN,
//! longitude first if it is `EPSG:4326`. Errors are exception reports, with status 200 if the
//! request was invalid.

use std::fmt::Write;

use super::ogc::{self, PageWindow};
use super::{FeatureContext, RefusalReason};
use crate::config::Config;
use crate::quirk::Quirk;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;
use crate::world::Parcel;

/// The name of GeoJSON in MapServer.
const SUBTYPE: &str = "application/json; subtype=geojson";
const XML: &str = "text/xml;charset=UTF-8";

pub(super) fn answer(context: &FeatureContext<'_>, request: &ReceivedRequest) -> ResponseDraft {
    let config = context.config;
    let operation = request.field("request").unwrap_or_default().to_ascii_lowercase();
    match operation.as_str() {
        "getcapabilities" => ResponseDraft::new(200, XML, capabilities(config, request)),
        "describefeaturetype" => ResponseDraft::new(200, XML, SCHEMA),
        "getfeature" => get_feature(context, request),
        "" => exception(200, "MissingParameterValue", "request", "The parameter request is missing"),
        _ => exception(200, "OperationNotSupported", "request", "No such operation"),
    }
}

fn get_feature(context: &FeatureContext<'_>, request: &ReceivedRequest) -> ResponseDraft {
    let name = request.field("typenames").or_else(|| request.field("typename")).unwrap_or_default();
    if name.rsplit(':').next() != Some("parcels") {
        return exception(200, "InvalidParameterValue", "typeNames", "No such feature type");
    }
    let number = |name: &str| request.field(name).map(|v| v.trim().parse::<u64>());
    let count = number("count").or_else(|| number("maxfeatures"));
    let (Ok(start), Ok(count)) = (number("startindex").transpose(), count.transpose()) else {
        return exception(200, "InvalidParameterValue", "startIndex", "Not a number");
    };
    let old = request.field("version").is_some_and(|v| v.starts_with("1."));
    let hits = request.field("resulttype").is_some_and(|t| t.eq_ignore_ascii_case("hits"));
    let sort = request.field("sortby").unwrap_or_default().to_ascii_uppercase();
    let down = sort.ends_with(" D") || sort.ends_with(" DESC") || sort.ends_with("+D");
    let config = context.config;
    let start = start.filter(|_| !config.has(Quirk::IgnoredStart)).unwrap_or(0);
    let count = count.unwrap_or(u64::MAX).min(config.page_max);
    let (from, to) = if config.has(Quirk::HiddenRow) {
        (without_hidden(start), without_hidden(start.saturating_add(count)))
    } else {
        (start, start.saturating_add(count))
    };
    let page = PageWindow::new(context, from, to - from);
    let parcels = if hits { Vec::new() } else { page.parcels(context, down) };
    if !hits {
        context.turn();
    }
    let format = request.field("outputformat").unwrap_or_default();
    if config.has(Quirk::JsonSubtype) && format.contains("json") && format != SUBTYPE {
        let text = format!("'{format}' is not a permitted output format");
        return exception(400, "InvalidParameterValue", "outputformat", &text);
    }
    if format.contains("json") {
        let body = ogc::collection(context, &parcels, "", true);
        return ResponseDraft::new(200, "application/json;charset=UTF-8", body).worked();
    }
    let lon_first = request.field("srsname").is_some_and(|s| s.eq_ignore_ascii_case("EPSG:4326"));
    let returned = parcels.len() as u64;
    let matched = match config.has(Quirk::HiddenRow) && !hits {
        true if returned < count => (start + returned).to_string(),
        true => "unknown".to_owned(),
        false if config.unknown_total => "unknown".to_owned(),
        false => context.total().to_string(),
    };
    ResponseDraft::new(200, XML, gml(context, &parcels, &matched, old, hits, lon_first)).worked()
}

/// The row without a geometry, which is not sent.
const HIDDEN: u64 = 3;

/// Converts a position among all rows to a position among those that are sent.
fn without_hidden(place: u64) -> u64 {
    place - u64::from(place > HIDDEN)
}

fn gml(
    context: &FeatureContext<'_>,
    parcels: &[Parcel],
    matched: &str,
    old: bool,
    hits: bool,
    lon_first: bool,
) -> String {
    let returned = parcels.len();
    let mercator = context.config.has(Quirk::JsonDegrees);
    let srs = match (context.config.has(Quirk::NorthFirst), lon_first) {
        _ if mercator => "urn:ogc:def:crs:EPSG::3857",
        (true, _) | (false, true) => "EPSG:4326",
        (false, false) => "urn:ogc:def:crs:EPSG::4326",
    };
    let lon_first = lon_first && !context.config.has(Quirk::NorthFirst);
    let (wfs, gml) = if old { ("wfs", "gml") } else { ("wfs/2.0", "gml/3.2") };
    let mut out = String::with_capacity(400 + 900 * parcels.len());
    let _ = write!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><wfs:FeatureCollection \
         xmlns:wfs=\"http://www.opengis.net/{wfs}\" xmlns:gml=\"http://www.opengis.net/{gml}\" \
         xmlns:tide=\"urn:tidegate:chaos\" timeStamp=\"2026-01-01T00:00:00Z\" "
    );
    // Version 1.1 has one number: for hits all that match, otherwise those on the page.
    let _ = if old {
        let most = if context.config.has(Quirk::CappedHits) { context.config.page_max } else { u64::MAX };
        let number = if hits { context.total().min(most) } else { returned as u64 };
        write!(out, "numberOfFeatures=\"{number}\">")
    } else {
        write!(out, "numberMatched=\"{matched}\" numberReturned=\"{returned}\">")
    };
    let (open, close) =
        if old { ("<gml:featureMember>", "</gml:featureMember>") } else { ("<wfs:member>", "</wfs:member>") };
    for parcel in context.sent_parcels(parcels) {
        let _ = write!(
            out,
            "{open}<tide:parcels gml:id=\"parcels.{0}\"><tide:id>{0}</tide:id><tide:name>{1}</tide:name>\
             <tide:zone>{2}</tide:zone><tide:area>{3}</tide:area><tide:updated>{4}</tide:updated>\
             <tide:geom><gml:Polygon gml:id=\"parcels.{0}.geom\" srsName=\"{srs}\"><gml:exterior>\
             <gml:LinearRing><gml:posList>",
            parcel.id,
            parcel.name,
            parcel.zone,
            parcel.area,
            parcel.updated()
        );
        for (i, (lon, lat)) in parcel.ring().into_iter().enumerate() {
            let (a, b) = match (mercator, lon_first) {
                (true, _) => to_mercator(lon, lat),
                (false, true) => (lon, lat),
                (false, false) => (lat, lon),
            };
            let _ = write!(out, "{}{a} {b}", if i > 0 { " " } else { "" });
        }
        out.push_str(
            "</gml:posList></gml:LinearRing></gml:exterior></gml:Polygon></tide:geom></tide:parcels>",
        );
        out.push_str(close);
    }
    out.push_str("</wfs:FeatureCollection>");
    out
}

/// Converts degrees to EPSG:3857.
pub(super) fn to_mercator(lon: f64, lat: f64) -> (f64, f64) {
    const RADIUS: f64 = 6_378_137.0;
    (lon.to_radians() * RADIUS, (std::f64::consts::FRAC_PI_4 + lat.to_radians() / 2.0).tan().ln() * RADIUS)
}

fn capabilities(config: &Config, request: &ReceivedRequest) -> String {
    let version = request.field("version").filter(|v| v.starts_with("1.")).map_or("2.0.0", |_| "1.1.0");
    let (wfs, ows) = if version == "2.0.0" { ("wfs/2.0", "ows/1.1") } else { ("wfs", "ows") };
    let url = format!("http://{}/wfs", request.host.replace(['<', '>', '&', '"'], ""));
    let formats = if config.has(Quirk::JsonSubtype) {
        format!(
            "<ows:Parameter name=\"outputFormat\"><ows:Value>text/xml; subtype=gml/3.2.1</ows:Value>\
             <ows:Value>{SUBTYPE}</ows:Value></ows:Parameter>"
        )
    } else {
        String::new()
    };
    let own = match (config.has(Quirk::JsonDegrees), config.has(Quirk::NorthFirst)) {
        (true, _) => "urn:ogc:def:crs:EPSG::3857",
        (false, true) => "EPSG:4326",
        (false, false) => "urn:ogc:def:crs:EPSG::4326",
    };
    // A thousand columns from here to the north, whatever the number of rows.
    let extent = if config.has(Quirk::NoExtent) {
        ""
    } else {
        "<ows:WGS84BoundingBox><ows:LowerCorner>-5 40</ows:LowerCorner><ows:UpperCorner>-3.99 50.01\
         </ows:UpperCorner></ows:WGS84BoundingBox>"
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><wfs:WFS_Capabilities version=\"{version}\" \
         xmlns:wfs=\"http://www.opengis.net/{wfs}\" xmlns:ows=\"http://www.opengis.net/{ows}\" \
         xmlns:xlink=\"http://www.w3.org/1999/xlink\"><ows:ServiceIdentification><ows:Title>Generated \
         parcels</ows:Title><ows:ServiceType>WFS</ows:ServiceType><ows:ServiceTypeVersion>{version}\
         </ows:ServiceTypeVersion></ows:ServiceIdentification><ows:OperationsMetadata><ows:Operation \
         name=\"GetFeature\"><ows:DCP><ows:HTTP><ows:Get xlink:href=\"{url}\"/></ows:HTTP></ows:DCP>\
         {formats}<ows:Constraint name=\"CountDefault\"><ows:DefaultValue>{}</ows:DefaultValue></ows:Constraint>\
         </ows:Operation><ows:Constraint name=\"ImplementsResultPaging\"><ows:DefaultValue>TRUE\
         </ows:DefaultValue></ows:Constraint></ows:OperationsMetadata><wfs:FeatureTypeList>\
         <wfs:FeatureType xmlns:tide=\"urn:tidegate:chaos\"><wfs:Name>tide:parcels</wfs:Name><wfs:Title>\
         Parcels</wfs:Title><wfs:DefaultCRS>{own}</wfs:DefaultCRS>{extent}</wfs:FeatureType>\
         </wfs:FeatureTypeList></wfs:WFS_Capabilities>",
        config.page_max
    )
}

const SCHEMA: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><xsd:schema \
    xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" xmlns:gml=\"http://www.opengis.net/gml/3.2\" \
    xmlns:tide=\"urn:tidegate:chaos\" targetNamespace=\"urn:tidegate:chaos\"><xsd:complexType \
    name=\"parcelsType\"><xsd:complexContent><xsd:extension base=\"gml:AbstractFeatureType\"><xsd:sequence>\
    <xsd:element name=\"id\" type=\"xsd:long\"/><xsd:element name=\"name\" type=\"xsd:string\"/>\
    <xsd:element name=\"zone\" type=\"xsd:string\"/><xsd:element name=\"area\" type=\"xsd:double\"/>\
    <xsd:element name=\"updated\" type=\"xsd:dateTime\"/><xsd:element name=\"geom\" \
    type=\"gml:SurfacePropertyType\"/></xsd:sequence></xsd:extension></xsd:complexContent></xsd:complexType>\
    <xsd:element name=\"parcels\" type=\"tide:parcelsType\" substitutionGroup=\"gml:AbstractFeature\"/>\
    </xsd:schema>";

fn exception(status: u16, code: &str, locator: &str, text: &str) -> ResponseDraft {
    ResponseDraft::new(
        status,
        XML,
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ows:ExceptionReport \
             xmlns:ows=\"http://www.opengis.net/ows/1.1\" version=\"2.0.0\"><ows:Exception \
             exceptionCode=\"{code}\" locator=\"{locator}\"><ows:ExceptionText>{text}</ows:ExceptionText>\
             </ows:Exception></ows:ExceptionReport>"
        ),
    )
}

pub(super) fn refusal(status: u16, why: RefusalReason) -> ResponseDraft {
    match why {
        RefusalReason::Throttled => {
            ResponseDraft::new(status, "text/plain", "Request rate too high, slow down")
        }
        RefusalReason::Bad => exception(status, "InvalidParameterValue", "", "The request cannot be read"),
        RefusalReason::Failed => exception(status, "NoApplicableCode", "", "Error occurred getting features"),
    }
}
