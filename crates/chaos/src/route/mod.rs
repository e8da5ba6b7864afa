//! Routes a request to a provider.
//!
//! The first path segment selects the provider, so that one server can play all of them. The rest
//! is parsed leniently: a path that contains `reverse` is a reverse query whatever its version
//! number.

mod asset;
mod census;
mod esri;
mod file;
mod geocode;
mod object;
mod ogc;
mod raster;
mod stac;
mod tile;
mod wfs;

use serde_json::json;

pub(crate) use object::Objects;

use super::config::{Config, RangeFault};
use super::fate::RowFate;
use super::hash;
use super::layer::{FeatureLayer, LayerSnapshot};
use super::reply::ResponseDraft;
use super::wire::ReceivedRequest;
use super::world::Parcel;

/// The provider that the server imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Generic,
    Google,
    Nominatim,
    Pelias,
    Photon,
    Mapbox,
    OpenCage,
    Here,
    Census,
    Wfs,
    Ogc,
    Esri,
    Stac,
    File,
    Object,
    Tile,
    Raster,
    Unknown,
}

/// The path segment of each provider, for the start page and the documentation.
const NAMES: [(&str, Provider); 20] = [
    ("geocode", Provider::Generic),
    ("reverse", Provider::Generic),
    ("csv2geo", Provider::Generic),
    ("google", Provider::Google),
    ("nominatim", Provider::Nominatim),
    ("pelias", Provider::Pelias),
    ("photon", Provider::Photon),
    ("mapbox", Provider::Mapbox),
    ("opencage", Provider::OpenCage),
    ("here", Provider::Here),
    ("census", Provider::Census),
    ("wfs", Provider::Wfs),
    ("ogc", Provider::Ogc),
    ("arcgis", Provider::Esri),
    ("stac", Provider::Stac),
    ("file", Provider::File),
    ("s3", Provider::Object),
    ("tiles", Provider::Tile),
    ("raster", Provider::Raster),
    ("", Provider::Unknown),
];

/// The context of a response with features.
pub(crate) struct FeatureContext<'a> {
    pub(crate) config: &'a Config,
    layer: &'a FeatureLayer,
    pub(crate) view: LayerSnapshot,
    /// Whether the second half of the page is omitted.
    short: bool,
    /// How the answer to a request for a range is spoiled.
    pub(crate) range_fault: Option<RangeFault>,
}

impl<'a> FeatureContext<'a> {
    pub(crate) fn new(config: &'a Config, layer: &'a FeatureLayer, short: bool) -> FeatureContext<'a> {
        FeatureContext { config, layer, view: layer.view(config), short, range_fault: None }
    }

    /// The declared number of features.
    fn total(&self) -> u64 {
        self.view.count().saturating_add_signed(self.config.unrest.miscount)
    }

    /// The parcels of a page that are sent.
    fn sent_parcels<'p>(&self, parcels: &'p [Parcel]) -> &'p [Parcel] {
        let end = if self.short { parcels.len() / 2 } else { parcels.len() };
        parcels.get(..end).unwrap_or_default()
    }

    /// Lets the layer change after a page.
    fn turn(&self) {
        self.layer.turn(self.config);
    }
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// The call is throttled.
    Throttled,
    /// The row is invalid, permanently.
    Bad,
    /// The server failed.
    Failed,
}

impl Provider {
    /// The provider of a path.
    pub(crate) fn of(path: &str) -> Provider {
        let segment = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        NAMES.iter().find(|(name, _)| *name == segment).map_or(Provider::Unknown, |(_, p)| *p)
    }

    /// The lane of a path if each prefix has its own.
    pub(crate) fn lane(self, path: &str) -> u64 {
        let deep = if self == Provider::Object { 3 } else { 1 };
        path.trim_matches('/').split('/').take(deep).fold(5, |acc, part| hash::bytes(acc, part.as_bytes()))
    }
}

/// The response without faults.
pub(crate) fn answer(
    context: &FeatureContext<'_>,
    objects: &Objects,
    provider: Provider,
    request: &ReceivedRequest,
) -> ResponseDraft {
    let config = context.config;
    let path = request.path();
    match provider {
        Provider::Wfs => wfs::answer(context, request),
        Provider::Ogc => ogc::answer(context, request),
        Provider::Esri if path.ends_with("/findAddressCandidates") || path.ends_with("/reverseGeocode") => {
            geocode::answer(config, provider, request)
        }
        Provider::Census if path.ends_with("/onelineaddress") => geocode::answer(config, provider, request),
        Provider::Esri => esri::answer(context, request),
        Provider::Stac => stac::answer(context, request),
        Provider::File => file::answer(context, request),
        Provider::Raster => {
            raster::answer(config, path.trim_start_matches("/raster/"), request, context.range_fault)
                .unwrap_or_else(|| ResponseDraft::new(404, "text/plain", "no such file\n"))
        }
        Provider::Object => {
            let key = path.trim_start_matches("/s3/").split_once('/').map_or("", |(_, key)| key);
            let file = raster::answer(config, key, request, context.range_fault);
            file.filter(|_| matches!(request.method.as_str(), "GET" | "HEAD"))
                .unwrap_or_else(|| object::answer(objects, request))
        }
        Provider::Tile => tile::answer(config, request),
        Provider::Census => census::answer(config, request),
        Provider::Unknown if path == "/" => start(),
        Provider::Unknown => {
            ResponseDraft::json(404, &json!({"error": {"code": 404, "message": "no such path"}}))
        }
        _ => geocode::answer(config, provider, request),
    }
}

fn start() -> ResponseDraft {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
    ResponseDraft::json(200, &json!({"tidegate": "chaos", "paths": names, "stats": "/__stats"}))
}

/// An error response in the format of the provider; with status 200, its error in a 200.
pub(crate) fn refusal(provider: Provider, status: u16, why: RefusalReason) -> ResponseDraft {
    let reply = match provider {
        // These have no error with status 200; a gateway's error page is sent instead.
        Provider::Nominatim
        | Provider::Pelias
        | Provider::Photon
        | Provider::Mapbox
        | Provider::Here
        | Provider::Ogc
        | Provider::Stac
        | Provider::File
        | Provider::Raster
            if status == 200 && why == RefusalReason::Failed =>
        {
            page(status)
        }
        Provider::Wfs => wfs::refusal(status, why),
        Provider::Ogc | Provider::Stac | Provider::File | Provider::Raster => ogc::refusal(status, why),
        Provider::Esri => esri::refusal(status, why),
        Provider::Object => object::refusal(status, why),
        Provider::Tile => tile::refusal(status),
        Provider::Census => page(status),
        _ => geocode::refusal(provider, status, why),
    };
    let row = if why == RefusalReason::Bad { RowFate::Bad } else { RowFate::Good };
    ResponseDraft { row, ..reply }
}

fn page(status: u16) -> ResponseDraft {
    ResponseDraft::new(status, "text/html", "<html><body><h1>The service is busy</h1></body></html>")
}
