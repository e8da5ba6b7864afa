//! From arguments to a job.

use std::path::Path;

use tidegate_engine::fetch::{Job, What};
use tidegate_engine::geocode;
use tidegate_engine::profile::{Profile, Profiles};
use tidegate_engine::secret::SecretRef;
use tidegate_engine::source::{
    Ask, EsriOptions, EsriPaging, Job as Layer, OgcOptions, PagerConfig, SourceError, StacOptions,
    WfsOptions, WireConfig, file,
};
use tidegate_engine::store::{S3Settings, Settings, Store};
use tidegate_geo::format::Format;
use url::Url;

use super::super::geocode::{allowed, seed};
use super::{Args, Body, Paging};

/// The services that can be asked.
const SERVICES: [&str; 5] = ["geoserver-wfs", "ogcapi", "esri", "stac", "file"];

pub(super) fn job(args: &Args) -> Result<Job, SourceError> {
    let what = match args.url.scheme() {
        "http" | "https" => remote(args)?,
        "s3" => object(args)?,
        other => {
            return Err(SourceError::setup(format!("{other}: is neither http(s): nor s3:")));
        }
    };
    Ok(Job { what, output: args.output.clone(), state: args.state.clone(), resume: args.resume })
}

fn remote(args: &Args) -> Result<What, SourceError> {
    let setup = SourceError::setup;
    let name = match &args.profile {
        Some(name) => name.clone(),
        None => guess(&args.url).ok_or_else(|| setup(unknown(&args.url)))?.to_owned(),
    };
    let (service, profile) = if name == "file" {
        ("file", file::profile()?)
    } else {
        let mut profiles = Profiles::embedded().map_err(|e| setup(e.to_string()))?;
        if let Some(path) = &args.profiles {
            profiles = profiles.with(path).map_err(|e| setup(e.to_string()))?;
        }
        let profile = profiles.get(&name).map_err(setup)?.clone();
        let extended = profile.form().extends.as_ref().map(|base| base.as_str().to_owned());
        let known = [Some(name.clone()), extended].into_iter().flatten();
        let service = known.filter_map(|n| SERVICES.into_iter().find(|s| **s == *n)).next();
        let service = service.ok_or_else(|| {
            setup(format!("profile {name} has no features to fetch; use one of {}", SERVICES.join(", ")))
        })?;
        (service, profile)
    };
    let wire = wire(args, profile)?;
    let layer = args.layer.clone();
    let (crs, page_size) = (args.crs.clone(), args.page_size);
    let geojson = args.body == Body::Geojson;
    let ask = match service {
        "geoserver-wfs" => Ask::Wfs(WfsOptions {
            layer,
            version: args.wfs_version.clone(),
            sort_by: args.sort_by.clone(),
            crs,
            page_size,
            gml: args.body == Body::Gml,
        }),
        "ogcapi" => Ask::Ogc(OgcOptions { layer, crs, page_size }),
        "esri" => {
            let paging = match args.paging {
                Paging::Ids => EsriPaging::Ids,
                Paging::Offset => EsriPaging::Offset,
            };
            Ask::Esri(EsriOptions { layer, paging, crs, page_size, geojson })
        }
        "stac" => Ask::Stac(StacOptions { layer, page_size }),
        _ => return Ok(What::File(Box::new(wire))),
    };
    let at_once = wire.lane.limit.in_flight_max as usize;
    let pager = PagerConfig { at_once, tolerance: args.tolerate };
    Ok(What::Layer(Box::new(Layer { wire, ask, pager })))
}

fn wire(args: &Args, profile: Profile) -> Result<WireConfig, SourceError> {
    let key = match &args.key {
        None => None,
        Some(from) => {
            let secret = from.fetch().map_err(|e| SourceError::setup(format!("--key: {e}")))?;
            Some((from.to_string(), secret))
        }
    };
    let mut client = allowed(&args.url, args.allow_private, &args.allow_host);
    client.body.bytes_max = profile.body_bytes_max();
    let mut lane = geocode::lane();
    lane.limit.rate_max = args.rate;
    lane.limit.in_flight_max = args.at_once.unwrap_or(profile.in_flight());
    let mut policy = geocode::policy();
    policy.attempts_max = args.attempts;
    policy.deadline = args.deadline;
    policy.attempt_timeout = args.timeout.unwrap_or(profile.timeout());
    Ok(WireConfig {
        url: args.url.clone(),
        profile,
        key,
        client,
        policy,
        lane,
        patience: args.patience,
        seed: args.seed.unwrap_or_else(seed),
    })
}

/// The service that a URL tells by its form.
fn guess(url: &Url) -> Option<&'static str> {
    let path = url.path().trim_end_matches('/').to_ascii_lowercase();
    let is_wfs = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
        name.eq_ignore_ascii_case("service") && value.eq_ignore_ascii_case("wfs")
    };
    if path.contains("/featureserver") || path.contains("/mapserver/") {
        Some("esri")
    } else if path.ends_with("/wfs") || path.ends_with("/ows") || url.query_pairs().any(is_wfs) {
        Some("geoserver-wfs")
    } else if path.contains("/collections") {
        Some("ogcapi")
    } else if path.ends_with("/search") || path.contains("/stac") {
        Some("stac")
    } else {
        Format::of_path(Path::new(&path)).map(|_| "file")
    }
}

fn unknown(url: &Url) -> String {
    format!("{url} does not show what it is; say it with --profile: {}", SERVICES.join(", "))
}

fn object(args: &Args) -> Result<What, SourceError> {
    let bucket = args.url.host_str().unwrap_or_default();
    let key = args.url.path().trim_start_matches('/').to_owned();
    let own = |name: &str| {
        let set = std::env::var_os(name).is_some_and(|v| !v.is_empty());
        (set && !args.anonymous).then(|| SecretRef::Env(name.into()))
    };
    let s3 = S3Settings {
        endpoint: args.endpoint.clone(),
        region: args.region.clone().or_else(|| std::env::var("AWS_REGION").ok()),
        access_key: own("AWS_ACCESS_KEY_ID"),
        secret_key: own("AWS_SECRET_ACCESS_KEY"),
        session_token: own("AWS_SESSION_TOKEN"),
        private: args.allow_private,
    };
    let settings = Settings { s3, ..Settings::default() };
    let store =
        Store::open(&format!("s3://{bucket}"), &settings).map_err(|e| SourceError::setup(e.to_string()))?;
    Ok(What::Object(store, key, args.url.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_often_tells_what_it_is() {
        for (url, service) in [
            ("https://x.test/arcgis/rest/services/p/FeatureServer/0", Some("esri")),
            ("https://x.test/geoserver/ows", Some("geoserver-wfs")),
            ("https://x.test/map?SERVICE=WFS", Some("geoserver-wfs")),
            ("https://x.test/api/collections/a/items", Some("ogcapi")),
            ("https://x.test/stac/v1", Some("stac")),
            ("https://x.test/a/roads.FGB?x=1", Some("file")),
            ("https://x.test/api", None),
        ] {
            assert_eq!(guess(&Url::parse(url).unwrap()), service, "{url}");
        }
    }
}
