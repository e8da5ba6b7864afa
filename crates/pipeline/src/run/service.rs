//! Builds the source job for a service of the manifest: profile, URL, key, and the policies that
//! apply.

use std::path::Path;

use tidegate_geo::Crs;
use url::Url;

use crate::error::SetupError;
use crate::http::{Allow, ClientConfig};
use crate::manifest::{self, AxisOrderSpec, Manifest, PageEncoding, PagingBy, Policy, YamlScalar};
use crate::profile::{Profile, Profiles};
use crate::source::{
    Ask, AxisOrder, ChangedSince, CountTolerance, EsriOptions, EsriPaging, Job, OgcOptions, PagerConfig,
    ServiceKind, StacOptions, WfsOptions, WireConfig,
};
use crate::traffic::{self, Caller, Traffic};

/// The tolerated difference between received and declared records.
pub(super) fn tolerance(form: &manifest::SourceSpec) -> Result<CountTolerance, SetupError> {
    match &form.tolerate {
        None | Some(YamlScalar::Null) => Ok(CountTolerance::default()),
        Some(YamlScalar::Int(n)) => CountTolerance::parse(&n.to_string()),
        Some(YamlScalar::Text(text)) => CountTolerance::parse(text),
        Some(other) => Err(format!(
            "invalid tolerance {other:?}; expected a number such as 5, or a percentage such as 0.1%"
        )
        .into()),
    }
}

/// The client for a URL that may be asked, under the policies of the manifest and of its service.
pub(super) fn wire(
    manifest: &Manifest,
    form: &manifest::ServiceSpec,
    (url, profile, allow): (Url, Profile, Allow),
    from: &manifest::SourceSpec,
    caller: Caller,
) -> Result<WireConfig, String> {
    let policy = Policy::of_service(manifest, form);
    let mut client = ClientConfig { allow, ..ClientConfig::default() };
    client.body.bytes_max = profile.body_bytes_max();
    if let Some(agent) = &form.user_agent {
        client.user_agent =
            agent.parse().map_err(|_| format!("user_agent: {agent:?} is not a valid header value"))?;
    }
    let at_once = from.paging.as_ref().and_then(|paging| paging.at_once);
    let lane = traffic::of_source(&policy, form, &profile, at_once);
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|e| e.to_string())?;
    Ok(WireConfig {
        url,
        profile,
        key: crate::step::secret(form)?,
        client,
        policy: policy.call,
        classifier: policy.lists_statuses.then_some(policy.classifier),
        lane,
        patience: tidegate_core::time::seconds(from.patience_seconds),
        seed: u64::from_le_bytes(seed),
        caller: Some(caller),
        lane_state: None,
    })
}

/// The layer of a service that the source names.
pub(super) fn job(
    manifest: &Manifest,
    from: &manifest::SourceSpec,
    name: &str,
    traffic: &Traffic,
) -> Result<Job, String> {
    let at = |e: String| format!("services.{name}: {e}");
    let form = manifest.pipeline.services.get(name).ok_or_else(|| format!("no service `{name}`"))?;
    let address = form.url.as_deref().ok_or_else(|| at("it has no `url`".into()))?;
    let url = Url::parse(address).map_err(|e| at(format!("invalid URL {address:?}: {e}")))?;
    let (which, profile) = match &form.profile {
        Some(name) => {
            let profile = Profiles::one(name, form.profiles.as_deref().map(Path::new))
                .map_err(|e| at(e.to_string()))?;
            let which = ServiceKind::of_profile(&profile).ok_or_else(|| {
                at(format!(
                    "profile {name} does not serve features; expected one of {}",
                    ServiceKind::names()
                ))
            })?;
            (which, profile)
        }
        None => {
            let which = ServiceKind::of_url(&url).ok_or_else(|| {
                at(format!(
                    "cannot detect the protocol of {url}; set `profile` to one of {}",
                    ServiceKind::names()
                ))
            })?;
            (which, which.profile().map_err(|e| at(e.message))?)
        }
    };
    let mut url = url;
    let since = from
        .since
        .as_ref()
        .and_then(|since| Some(ChangedSince { field: since.field.clone(), from: since.from? }));
    if let Some(since) = &since {
        since.restrict(&mut url, which)?;
    }
    let paging = from.paging.clone().unwrap_or_default();
    let crs = paging.crs.as_deref().map(str::parse::<Crs>).transpose();
    let crs = crs.map_err(|problem| format!("source.paging.crs: {}", problem.message))?;
    let (layer, page_size) = (from.layer.clone(), paging.size);
    let ask = match which {
        ServiceKind::Wfs => Ask::Wfs(WfsOptions {
            layer,
            version: paging.version.map(|version| version.as_str().to_owned()),
            sort_by: paging.sort_by,
            crs,
            page_size,
            gml: paging.body == PageEncoding::Gml,
            geojson: paging.body == PageEncoding::Geojson,
            axis_order: paging.axis_order.map(|order| match order {
                AxisOrderSpec::Xy => AxisOrder::Xy,
                AxisOrderSpec::Yx => AxisOrder::Yx,
            }),
            since,
        }),
        ServiceKind::Ogc => Ask::Ogc(OgcOptions { layer, crs, page_size }),
        ServiceKind::Esri => Ask::Esri(EsriOptions {
            layer,
            paging: match paging.by {
                PagingBy::Ids => EsriPaging::Ids,
                PagingBy::Offset => EsriPaging::Offset,
            },
            crs,
            page_size,
            geojson: paging.body == PageEncoding::Geojson,
        }),
        ServiceKind::Stac => Ask::Stac(StacOptions { layer, page_size }),
        ServiceKind::File => {
            return Err(at(format!(
                "{url} is a file; set it as `source.file`, together with `source.service`"
            )));
        }
    };
    let allow = Allow::meant(&url, form.allow_private, &form.allow_hosts);
    let wire = wire(manifest, form, (url, profile, allow), from, traffic.caller(name))?;
    let at_once = wire.lane.limit.in_flight_max as usize;
    Ok(Job { wire, ask, pager: PagerConfig { at_once, tolerance: tolerance(from)? } })
}
