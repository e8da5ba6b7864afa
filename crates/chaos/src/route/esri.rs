//! An ArcGIS FeatureServer: layer description and `query`, with errors in a 200.

use std::fmt::Write;

use serde_json::{Value, json};

use super::ogc;
use super::{FeatureContext, RefusalReason};
use crate::config::Config;
use crate::layer::LayerSnapshot;
use crate::quirk::Quirk;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;
use crate::world::{self, Parcel};

/// The most object ids in one response; they are not paged.
const IDS_MAX: u64 = 5_000_000;

pub(super) fn answer(context: &FeatureContext<'_>, request: &ReceivedRequest) -> ResponseDraft {
    let config = context.config;
    let path = request.path().trim_end_matches('/');
    if path.ends_with("/query") {
        return query(context, request).unwrap_or_else(|| error(400, "Unable to perform query"));
    }
    if path.ends_with("/FeatureServer/0") {
        return ResponseDraft::json(200, &layer(config));
    }
    if path.ends_with("/FeatureServer") {
        return ResponseDraft::json(
            200,
            &json!({
                "currentVersion": 11.1,
                "maxRecordCount": config.page_max,
                "layers": [{"id": 0, "name": "parcels", "geometryType": "esriGeometryPolygon"}],
            }),
        );
    }
    if path.ends_with("/rest/services") {
        return ResponseDraft::json(
            200,
            &json!({"services": [{"name": "parcels", "type": "FeatureServer"}]}),
        );
    }
    error(404, "Service not found")
}

/// A coordinate reference system that no table contains, as some old layers have.
const NOWHERE: &str = "PROJCS[\"Plant_Grid\",GEOGCS[\"GCS_Plant\",DATUM[\"D_Plant\",SPHEROID[\"Plant\",6378000.0,298.0]],\
    PRIMEM[\"Greenwich\",0.0],UNIT[\"Degree\",0.0174532925199433]],PROJECTION[\"Local\"],UNIT[\"Foot_US\",0.3048006096]]";

fn layer(config: &Config) -> Value {
    let extent = if config.has(Quirk::UnknownSystem) {
        json!({"xmin": -5e6, "ymin": 40e6, "xmax": -4e6, "ymax": 50e6, "spatialReference": {"wkt": NOWHERE}})
    } else {
        json!({"xmin": -5, "ymin": 40, "xmax": -4, "ymax": 50, "spatialReference": {"wkid": 4326}})
    };
    json!({
        "id": 0,
        "name": "parcels",
        "type": "Feature Layer",
        "geometryType": "esriGeometryPolygon",
        "objectIdField": "OBJECTID",
        "maxRecordCount": config.page_max,
        "capabilities": "Query",
        "advancedQueryCapabilities": {"supportsPagination": true, "supportsOrderBy": true},
        "extent": extent,
        "fields": fields(),
    })
}

fn fields() -> Value {
    json!([
        {"name": "OBJECTID", "type": "esriFieldTypeOID"},
        {"name": "name", "type": "esriFieldTypeString", "length": 80},
        {"name": "zone", "type": "esriFieldTypeString", "length": 20},
        {"name": "area", "type": "esriFieldTypeDouble"},
        {"name": "updated", "type": "esriFieldTypeDate"},
    ])
}

/// The requested features.
enum Wanted {
    Range(u64, u64),
    List(Vec<u64>),
}

impl Wanted {
    fn count(&self, view: &LayerSnapshot) -> u64 {
        match self {
            Wanted::Range(lo, hi) => view.count_between(*lo, *hi),
            Wanted::List(ids) => ids.len() as u64,
        }
    }

    fn nth(&self, view: &LayerSnapshot, n: u64) -> Option<u64> {
        match self {
            Wanted::Range(lo, _) => view.nth(view.before(*lo).checked_add(n)?),
            Wanted::List(ids) => usize::try_from(n).ok().and_then(|n| ids.get(n)).copied(),
        }
    }
}

fn query(context: &FeatureContext<'_>, request: &ReceivedRequest) -> Option<ResponseDraft> {
    let (config, view) = (context.config, &context.view);
    let wanted = wanted(view, request)?;
    let total = wanted.count(view);
    let is_true = |name: &str| request.field(name).is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if is_true("returnCountOnly") {
        return Some(
            ResponseDraft::json(200, &json!({"count": total.saturating_add_signed(config.unrest.miscount)}))
                .worked(),
        );
    }
    let down = request.field("orderByFields").is_some_and(|o| o.to_ascii_uppercase().ends_with(" DESC"));
    let place = |n: u64| wanted.nth(view, if down { total - 1 - n } else { n });
    if is_true("returnIdsOnly") && total > IDS_MAX {
        return None;
    }
    if is_true("returnIdsOnly") {
        let ids: Vec<u64> = (0..total).filter_map(place).collect();
        return Some(
            ResponseDraft::json(200, &json!({"objectIdFieldName": "OBJECTID", "objectIds": ids})).worked(),
        );
    }
    let number = |name: &str| match request.field(name).filter(|v| !v.is_empty()) {
        None => Some(None),
        Some(value) => value.parse::<u64>().ok().map(Some),
    };
    let start = number("resultOffset")?.unwrap_or(0).min(total);
    let count = number("resultRecordCount")?.unwrap_or(u64::MAX).min(config.page_max);
    let end = start.saturating_add(count).min(total);
    let parcels: Vec<Parcel> =
        (start..end).filter_map(place).map(|id| world::parcel(config.seed, id)).collect();
    let more = end < total;
    let format = request.field("f").unwrap_or_default();
    let asked = !config.has(Quirk::IgnoredSystem) && request.field("outSR").is_some_and(|sr| sr == "4326");
    let nowhere = config.has(Quirk::UnknownSystem) && !asked;
    let parcels = context.sent_parcels(&parcels);
    let body = if format == "geojson" { geojson(parcels, more) } else { json(parcels, more, nowhere) };
    context.turn();
    Some(ResponseDraft::new(200, "application/json", body).worked())
}

/// Parses `objectIds`, or the few forms of `where` that paging clients send.
fn wanted(view: &LayerSnapshot, request: &ReceivedRequest) -> Option<Wanted> {
    let all = Wanted::Range(0, u64::MAX);
    let listed = |text: &str| -> Option<Wanted> {
        let ids: Result<Vec<u64>, _> = text.split(',').map(|id| id.trim().parse()).collect();
        let known = |id: &u64| view.has(*id);
        ids.ok().map(|ids| Wanted::List(ids.into_iter().filter(known).collect()))
    };
    if let Some(ids) = request.field("objectIds").filter(|v| !v.is_empty()) {
        return listed(&ids);
    }
    let text = request.field("where")?.to_ascii_uppercase().replace("OBJECTID", " OBJECTID ");
    let text = text.replace(">=", " ge ").replace("<=", " le ").replace('>', " gt ").replace('<', " lt ");
    let text = text.replace('=', " eq ").replace('(', " ( ").replace(')', " ) ");
    if let Some((_, list)) = text.split_once(" IN ") {
        return listed(list.trim().trim_start_matches('(').trim_end_matches(')').trim());
    }
    let words: Vec<&str> = text.split_whitespace().filter(|w| !matches!(*w, "(" | ")")).collect();
    if words == ["1", "eq", "1"] || words.is_empty() {
        return Some(all);
    }
    let (mut lo, mut hi) = (0, u64::MAX);
    let mut rest = words.as_slice();
    loop {
        rest = match rest {
            ["OBJECTID", "BETWEEN", from, "AND", to, rest @ ..] => {
                (lo, hi) = (lo.max(from.parse().ok()?), hi.min(to.parse().ok()?));
                rest
            }
            ["OBJECTID", sign, value, rest @ ..] => {
                let value: u64 = value.parse().ok()?;
                match *sign {
                    "ge" => lo = lo.max(value),
                    "gt" => lo = lo.max(value.saturating_add(1)),
                    "le" => hi = hi.min(value),
                    "lt" => hi = hi.min(value.saturating_sub(1)),
                    "eq" => (lo, hi) = (lo.max(value), hi.min(value)),
                    _ => return None,
                }
                rest
            }
            ["1", "eq", "1", rest @ ..] => rest,
            _ => return None,
        };
        match rest {
            [] => return Some(Wanted::Range(lo, hi)),
            ["AND", more @ ..] => rest = more,
            _ => return None,
        }
    }
}

fn json(parcels: &[Parcel], more: bool, nowhere: bool) -> String {
    let (reference, scale) = match nowhere {
        true => (json!({"wkt": NOWHERE}), 1e6),
        false => (json!({"wkid": 4326, "latestWkid": 4326}), 1.0),
    };
    let mut out = format!(
        "{{\"objectIdFieldName\":\"OBJECTID\",\"geometryType\":\"esriGeometryPolygon\",\
         \"spatialReference\":{reference},\"fields\":{},\"features\":[",
        fields()
    );
    for (i, parcel) in parcels.iter().enumerate() {
        let _ = write!(
            out,
            "{}{{\"attributes\":{{\"OBJECTID\":{},\"name\":\"{}\",\"zone\":\"{}\",\"area\":{},\"updated\":{}}},\
             \"geometry\":{{\"rings\":[[",
            if i > 0 { "," } else { "" },
            parcel.id,
            parcel.name,
            parcel.zone,
            parcel.area,
            parcel.updated_ms
        );
        // Outer rings of Esri are clockwise.
        for (i, (lon, lat)) in parcel.ring().into_iter().rev().enumerate() {
            let _ = write!(out, "{}[{},{}]", if i > 0 { "," } else { "" }, lon * scale, lat * scale);
        }
        out.push_str("]]}}");
    }
    out.push(']');
    if more {
        out.push_str(",\"exceededTransferLimit\":true");
    }
    out.push('}');
    out
}

fn geojson(parcels: &[Parcel], more: bool) -> String {
    let mut out = String::from("{\"type\":\"FeatureCollection\",");
    if more {
        out.push_str("\"exceededTransferLimit\":true,\"properties\":{\"exceededTransferLimit\":true},");
    }
    out.push_str("\"features\":[");
    for (i, parcel) in parcels.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        ogc::feature(&mut out, parcel, false, ogc::Coordinates::Degrees);
    }
    out.push_str("]}");
    out
}

fn error(code: u16, message: &str) -> ResponseDraft {
    ResponseDraft::json(200, &json!({"error": {"code": code, "message": message, "details": []}}))
}

pub(super) fn refusal(status: u16, why: RefusalReason) -> ResponseDraft {
    let (code, message) = match why {
        RefusalReason::Throttled => (429, "Too many requests"),
        RefusalReason::Bad => (400, "Unable to perform query"),
        RefusalReason::Failed => (500, "Error performing query operation"),
    };
    ResponseDraft { status, ..error(if status == 200 { code } else { status }, message) }
}
