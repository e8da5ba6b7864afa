//! Geocoders: one lookup with the response formats of many providers.

use serde_json::{Value, json};

use super::{Provider, RefusalReason};
use crate::config::Config;
use crate::fate::{self, RowFate};
use crate::reply::ResponseDraft;
use crate::wire::{self, ReceivedRequest};
use crate::world::{self, AddressPoint};

/// The geocoding operation that is asked for.
enum GeocodeOperation {
    Forward(String),
    Reverse(f64, f64),
    Batch(Vec<String>),
}

pub(super) fn answer(config: &Config, provider: Provider, request: &ReceivedRequest) -> ResponseDraft {
    match ask(request) {
        None => super::refusal(provider, config.bad_status, RefusalReason::Bad),
        Some(GeocodeOperation::Batch(addresses)) => batch(config, &addresses),
        Some(GeocodeOperation::Forward(text)) => {
            one(config, provider, &text, &world::place(config.seed, &text), false)
        }
        Some(GeocodeOperation::Reverse(lat, lon)) => {
            let text = format!("{lat:.5},{lon:.5}");
            one(config, provider, &text, &world::reverse(config.seed, lat, lon), true)
        }
    }
}

fn one(
    config: &Config,
    provider: Provider,
    text: &str,
    place: &AddressPoint,
    reverse: bool,
) -> ResponseDraft {
    match fate::row(config, world::subject(text)) {
        RowFate::Bad => super::refusal(provider, config.bad_status, RefusalReason::Bad),
        RowFate::Good => ResponseDraft::json(200, &found(provider, text, Some(place), reverse)).worked(),
        RowFate::NoMatch => {
            let body = found(provider, text, None, reverse);
            ResponseDraft { row: RowFate::NoMatch, ..ResponseDraft::json(200, &body).worked() }
        }
    }
}

/// Several addresses in one request, as `{"addresses": ["…"]}`; each has its own outcome.
fn batch(config: &Config, addresses: &[String]) -> ResponseDraft {
    let results: Vec<Value> = addresses
        .iter()
        .map(|text| match fate::row(config, world::subject(text)) {
            RowFate::Bad => {
                json!({"query": text, "error": {"code": config.bad_status, "message": "bad address"}})
            }
            RowFate::NoMatch => found(Provider::Generic, text, None, false),
            RowFate::Good => found(Provider::Generic, text, Some(&world::place(config.seed, text)), false),
        })
        .collect();
    ResponseDraft::json(200, &json!({"batch": results})).worked()
}

/// Parses the query in the format of any provider.
fn ask(request: &ReceivedRequest) -> Option<GeocodeOperation> {
    if request.content_type.starts_with("application/json") && !request.body.is_empty() {
        return ask_json(request);
    }
    let path = request.path();
    let number = |name: &str| request.field(name).and_then(|v| v.trim().parse::<f64>().ok());
    let pair = |text: &str| -> Option<(f64, f64)> {
        let (a, b) = text.split_once(',')?;
        Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
    };
    let point = || {
        let names = [("lat", "lon"), ("lat", "lng"), ("latitude", "longitude"), ("point.lat", "point.lon")];
        names.iter().find_map(|(lat, lon)| Some((number(lat)?, number(lon)?)))
    };
    // HERE's `at` together with `q` is only a bias.
    let point_only = path.contains("rev") || request.field("q").is_none();
    let at = request.field("latlng").or_else(|| request.field("at")).filter(|_| point_only);
    if let Some(at) = at {
        return pair(&at).and_then(checked);
    }
    // Mapbox v5 has the query in the path.
    if let Some(text) = path.split("/mapbox.places/").nth(1).and_then(|p| p.strip_suffix(".json")) {
        let text = wire::decode(text);
        return match pair(&text) {
            Some((lon, lat)) => checked((lat, lon)),
            None => Some(GeocodeOperation::Forward(text)),
        };
    }
    // Esri writes longitude first.
    if let Some(at) = request.field("location") {
        return pair(&at).and_then(|(lon, lat)| checked((lat, lon)));
    }
    let text = ["q", "address", "text", "query", "singleline"].iter().find_map(|name| request.field(name));
    if let Some(text) = text.filter(|t| !t.trim().is_empty()) {
        let asks_point = path.contains("rev") || path.starts_with("/opencage");
        return match pair(&text).filter(|_| asks_point) {
            Some(point) => checked(point),
            None => Some(GeocodeOperation::Forward(text)),
        };
    }
    let parts = ["street", "city", "state", "postalcode", "country"];
    let parts: Vec<String> = parts.iter().filter_map(|name| request.field(name)).collect();
    if !parts.is_empty() {
        return Some(GeocodeOperation::Forward(parts.join(", ")));
    }
    point().and_then(checked)
}

fn ask_json(request: &ReceivedRequest) -> Option<GeocodeOperation> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    if let Some(list) = body.get("addresses").and_then(Value::as_array) {
        return list
            .iter()
            .map(|a| a.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .map(GeocodeOperation::Batch);
    }
    let text = ["q", "address", "query"].iter().find_map(|name| body.get(name)?.as_str());
    if let Some(text) = text {
        return Some(GeocodeOperation::Forward(text.to_owned()));
    }
    let number = |names: [&str; 2]| names.iter().find_map(|name| body.get(name)?.as_f64());
    checked((number(["lat", "latitude"])?, number(["lon", "lng"])?))
}

fn checked((lat, lon): (f64, f64)) -> Option<GeocodeOperation> {
    let inside = (-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lon);
    inside.then_some(GeocodeOperation::Reverse(lat, lon))
}

/// A match, or none, in the format of the provider.
fn found(provider: Provider, query: &str, place: Option<&AddressPoint>, reverse: bool) -> Value {
    let list = |item: fn(&AddressPoint) -> Value| -> Vec<Value> { place.iter().map(|p| item(p)).collect() };
    match provider {
        Provider::Google => json!({
            "results": list(|p| json!({
                "formatted_address": p.label,
                "geometry": {"location": {"lat": p.lat, "lng": p.lon}, "location_type": "ROOFTOP"},
                "place_id": format!("chaos{:x}", world::subject(&p.label)),
                "types": ["street_address"],
            })),
            "status": if place.is_some() { "OK" } else { "ZERO_RESULTS" },
        }),
        Provider::Nominatim if reverse => match place {
            None => json!({"error": "Unable to geocode"}),
            Some(p) => nominatim(p),
        },
        Provider::Nominatim => json!(list(nominatim)),
        Provider::Pelias => json!({
            "geocoding": {"version": "0.2", "query": {"text": query}},
            "type": "FeatureCollection",
            "features": list(|p| feature(p, &json!({
                "label": p.label, "name": p.label, "confidence": p.score, "layer": "address",
            }))),
        }),
        Provider::Photon => json!({
            "type": "FeatureCollection",
            "features": list(|p| feature(p, &json!({
                "name": p.label, "osm_type": "N", "osm_id": world::subject(&p.label) >> 20, "type": "house",
            }))),
        }),
        Provider::Mapbox => json!({
            "type": "FeatureCollection",
            "query": [query],
            "features": list(|p| {
                let mut feature = feature(p, &json!({
                    "full_address": p.label, "name": p.label, "feature_type": "address",
                    "coordinates": {"longitude": p.lon, "latitude": p.lat, "accuracy": "rooftop"},
                }));
                feature["place_name"] = json!(p.label);
                feature["center"] = json!([p.lon, p.lat]);
                feature["relevance"] = json!(p.score);
                feature
            }),
            "attribution": "generated",
        }),
        Provider::OpenCage => json!({
            "results": list(|p| json!({
                "formatted": p.label,
                "geometry": {"lat": p.lat, "lng": p.lon},
                "confidence": (p.score * 10.0) as u64,
                "components": {"_type": "building"},
            })),
            "status": {"code": 200, "message": "OK"},
            "total_results": u8::from(place.is_some()),
        }),
        Provider::Here => json!({
            "items": list(|p| json!({
                "title": p.label,
                "resultType": "houseNumber",
                "address": {"label": p.label},
                "position": {"lat": p.lat, "lng": p.lon},
                "scoring": {"queryScore": p.score},
            })),
        }),
        Provider::Esri if reverse => match place {
            None => json!({"error": {
                "code": 400,
                "message": "Cannot perform query. Invalid query parameters.",
                "details": ["Unable to find address for the specified location."],
            }}),
            Some(p) => json!({
                "address": {"LongLabel": p.label, "Match_addr": p.label, "Addr_type": "PointAddress"},
                "location": {"x": p.lon, "y": p.lat, "spatialReference": {"wkid": 4326}},
            }),
        },
        Provider::Esri => json!({
            "spatialReference": {"wkid": 4326},
            "candidates": list(|p| json!({
                "address": p.label,
                "location": {"x": p.lon, "y": p.lat},
                "score": p.score * 100.0,
                "attributes": {"Addr_type": "PointAddress"},
            })),
        }),
        Provider::Census => json!({"result": {
            "input": {"address": {"address": query}},
            "addressMatches": list(|p| json!({
                "matchedAddress": p.label.to_uppercase(),
                "coordinates": {"x": p.lon, "y": p.lat},
            })),
        }}),
        _ => json!({
            "query": query,
            "results": list(|p| json!({
                "lat": p.lat,
                "lon": p.lon,
                "label": p.label,
                "score": p.score,
                "kind": "rooftop",
                "formatted_address": p.label,
                "location": {"lat": p.lat, "lng": p.lon},
                "relevance": p.score,
                "accuracy": "rooftop",
            })),
        }),
    }
}

fn nominatim(p: &AddressPoint) -> Value {
    json!({
        "place_id": world::subject(&p.label) >> 32,
        "lat": p.lat.to_string(),
        "lon": p.lon.to_string(),
        "display_name": p.label,
        "importance": p.score,
        "class": "place",
        "type": "house",
    })
}

fn feature(p: &AddressPoint, properties: &Value) -> Value {
    json!({
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [p.lon, p.lat]},
        "properties": properties,
    })
}

/// An error in the format of the provider.
pub(super) fn refusal(provider: Provider, status: u16, why: RefusalReason) -> ResponseDraft {
    let message = match why {
        RefusalReason::Throttled => "too many requests",
        RefusalReason::Bad => "the address cannot be read",
        RefusalReason::Failed => "something went wrong",
    };
    let body = match provider {
        Provider::Google => {
            let word = match why {
                RefusalReason::Throttled => "OVER_QUERY_LIMIT",
                RefusalReason::Bad => "INVALID_REQUEST",
                RefusalReason::Failed => "UNKNOWN_ERROR",
            };
            // Google returns most errors with status 200.
            let status = if why == RefusalReason::Bad { 200 } else { status };
            let body = json!({"results": [], "status": word, "error_message": message});
            return ResponseDraft::json(status, &body);
        }
        Provider::Nominatim => json!({"error": {"code": status, "message": message}}),
        Provider::Pelias => json!({
            "geocoding": {"version": "0.2", "errors": [message]},
            "type": "FeatureCollection",
            "features": [],
        }),
        Provider::Photon | Provider::Mapbox => json!({"message": message}),
        Provider::OpenCage => {
            let code = if status == 200 { 503 } else { status };
            json!({"results": [], "status": {"code": code, "message": message}, "total_results": 0})
        }
        Provider::Here => json!({"status": status, "title": message, "cause": message}),
        // The error that such services return with status 200.
        _ if status == 200 => {
            json!({"error": {"code": "rate_limited", "message": "rate limit: too many requests"}})
        }
        _ => json!({"error": {"code": status, "message": message}}),
    };
    ResponseDraft::json(status, &body)
}
