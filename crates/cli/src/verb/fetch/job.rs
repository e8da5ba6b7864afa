//! From arguments to a job.

use tidegate_client::profile::Profile;
use tidegate_client::secret::SecretRef;
use tidegate_client::store::{ObjectStoreClient, S3Settings, StoreSettings};
use tidegate_pipeline::fetch::{Job, What};
use tidegate_pipeline::source::{
    Ask, EsriOptions, EsriPaging, Job as Layer, OgcOptions, PagerConfig, SourceError, StacOptions,
    WfsOptions, Which, WireConfig, file,
};
use url::Url;

use super::super::calls::Held;
use super::{Args, Body, Paging};

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
        Some(name) => name.as_str(),
        None => Which::of_url(&args.url).ok_or_else(|| setup(unknown(&args.url)))?.name(),
    };
    let (which, profile) = if name == Which::File.name() {
        (Which::File, file::profile()?)
    } else {
        let profile = args.reach.profile(name).map_err(setup)?;
        let which = Which::of_profile(&profile).ok_or_else(|| {
            setup(format!("profile {name} has no features to fetch; use one of {}", Which::names()))
        })?;
        (which, profile)
    };
    let wire = wire(args, profile)?;
    let layer = args.layer.clone();
    let (crs, page_size) = (args.crs.clone(), args.page_size);
    let geojson = args.body == Body::Geojson;
    let ask = match which {
        Which::Wfs => Ask::Wfs(WfsOptions {
            layer,
            version: args.wfs_version.clone(),
            sort_by: args.sort_by.clone(),
            crs,
            page_size,
            gml: args.body == Body::Gml,
        }),
        Which::Ogc => Ask::Ogc(OgcOptions { layer, crs, page_size }),
        Which::Esri => {
            let paging = match args.paging {
                Paging::Ids => EsriPaging::Ids,
                Paging::Offset => EsriPaging::Offset,
            };
            Ask::Esri(EsriOptions { layer, paging, crs, page_size, geojson })
        }
        Which::Stac => Ask::Stac(StacOptions { layer, page_size }),
        Which::File => return Ok(What::File(Box::new(wire))),
    };
    let at_once = wire.lane.limit.in_flight_max as usize;
    let pager = PagerConfig { at_once, tolerance: args.tolerate };
    Ok(What::Layer(Box::new(Layer { wire, ask, pager })))
}

fn wire(args: &Args, profile: Profile) -> Result<WireConfig, SourceError> {
    let Held { key, client, policy, mut lane, patience, seed } =
        args.calls.held(&args.reach, args.key.as_ref(), &profile, &args.url).map_err(SourceError::setup)?;
    lane.limit.in_flight_max = args.at_once.unwrap_or(lane.limit.in_flight_max);
    Ok(WireConfig {
        url: args.url.clone(),
        profile,
        key,
        client,
        policy,
        classifier: None,
        lane,
        patience,
        seed,
        caller: None,
        lane_state: Some(args.state.clone()),
    })
}

fn unknown(url: &Url) -> String {
    format!("{url} does not show what it is; say it with --profile: {}", Which::names())
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
        private: args.reach.allow_private,
    };
    let (patience, lane_state) = (args.calls.patience, Some(args.state.clone()));
    let settings = StoreSettings { s3, patience, lane_state, ..StoreSettings::default() };
    let store = ObjectStoreClient::open(&format!("s3://{bucket}"), &settings)
        .map_err(|e| SourceError::setup(e.to_string()))?;
    Ok(What::Object(store, key, args.url.to_string()))
}
