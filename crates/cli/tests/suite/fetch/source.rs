//! The interface that pipelines read: batches of one schema, and positions to go on from.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_chaos::Handle;
use tidegate_client::http::{Allow, ClientConfig};
use tidegate_client::lane::Clock;
use tidegate_client::profile::Profiles;
use tidegate_geo::Value;
use tidegate_pipeline::preset;
use tidegate_pipeline::source::{
    Agreement, Ask, CountTolerance, EsriOptions, EsriPaging, FeatureSource, Job, LayerBefore, OgcOptions,
    PagerConfig, Position, SourceError, StacOptions, WfsOptions, WireConfig,
};

use crate::fetch::bench::{chaos, layer};

const N: u64 = 430;

fn job(server: &Handle, path: &str, profile: &str, ask: Ask) -> Job {
    let mut allow = Allow::public();
    allow.addresses.exact.push(server.addr().ip());
    let wire = WireConfig {
        url: format!("{}{path}", server.url()).parse().unwrap(),
        profile: Profiles::embedded().unwrap().get(profile).unwrap().clone(),
        key: None,
        client: ClientConfig { allow, ..ClientConfig::default() },
        policy: preset::policy(),
        classifier: None,
        lane: preset::lane(),
        patience: Duration::from_secs(60),
        seed: 7,
        caller: None,
        lane_state: None,
    };
    Job { wire, ask, pager: PagerConfig { at_once: 3, tolerance: CountTolerance::default() } }
}

fn jobs(server: &Handle) -> Vec<(&'static str, Job)> {
    let esri = "/arcgis/rest/services/parcels/FeatureServer/0";
    let size = Some(100);
    let wfs = WfsOptions { page_size: size, ..WfsOptions::default() };
    let by = |paging| Ask::Esri(EsriOptions { paging, page_size: size, ..EsriOptions::default() });
    vec![
        ("wfs", job(server, "/wfs", "geoserver-wfs", Ask::Wfs(wfs.clone()))),
        ("gml", job(server, "/wfs", "geoserver-wfs", Ask::Wfs(WfsOptions { gml: true, ..wfs }))),
        (
            "ogc",
            job(server, "/ogc", "ogcapi", Ask::Ogc(OgcOptions { page_size: size, ..OgcOptions::default() })),
        ),
        ("ids", job(server, esri, "esri", by(EsriPaging::Ids))),
        ("offset", job(server, esri, "esri", by(EsriPaging::Offset))),
        (
            "stac",
            job(
                server,
                "/stac",
                "stac",
                Ask::Stac(StacOptions { page_size: size, ..StacOptions::default() }),
            ),
        ),
    ]
}

/// Reads on until the end, or until so many chunks were read; each parcel is counted.
async fn read(
    source: &mut dyn FeatureSource,
    chunks: usize,
    seen: &mut BTreeMap<i64, u32>,
) -> Result<Option<Position>, SourceError> {
    let schema = source.layer().schema.clone();
    let id = schema.position("id").or_else(|| schema.position("OBJECTID")).unwrap();
    let mut last = None;
    for _ in 0..chunks {
        let Some(chunk) = source.next().await? else { return Ok(None) };
        assert_eq!(chunk.rejected.len(), 0);
        for row in 0..chunk.batch.len() {
            let Value::Int(id) = chunk.batch.value(row, id) else {
                panic!("{:?}", chunk.batch.value(row, id))
            };
            *seen.entry(id).or_default() += 1;
            assert!(chunk.batch.geometry(row).is_some() && chunk.batch.id(row).is_some());
        }
        last = Some(chunk.position);
    }
    Ok(last)
}

#[test]
fn a_source_goes_on_from_every_position_it_has_given() {
    let server = chaos(layer(N, 100));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for at in 0..jobs(&server).len() {
            let (mut seen, mut position, mut schema, mut runs) = (BTreeMap::new(), None, None, 0);
            let name = loop {
                let (name, job) = jobs(&server).swap_remove(at);
                let from = position.take().map(|text: String| Position::from_json(&text).unwrap());
                let known = LayerBefore { schema: schema.take(), ..LayerBefore::default() };
                let mut source = job.source(Clock::system(), from, known).await.unwrap();
                runs += 1;
                assert_eq!(source.layer().records, Some(N), "{name}");
                // One chunk, and the source is dropped as in a crash.
                match read(&mut *source, 1, &mut seen).await.unwrap() {
                    Some(next) => position = Some(next.to_json()),
                    None => {
                        assert_eq!(source.agreement(), Some(Agreement::Exact), "{name}");
                        assert_eq!(source.tally().received, N, "{name}");
                        break name;
                    }
                }
                schema = Some(source.layer().schema.clone());
            };
            assert!(seen.into_iter().eq((1..=N as i64).map(|id| (id, 1))), "{name}");
            assert!(runs >= 6, "{name}: {runs}");
        }
    });
}

#[test]
fn a_position_of_another_job_is_refused() {
    let server = chaos(layer(N, 100));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut all = jobs(&server);
        let mut source = all.remove(0).1.source(Clock::system(), None, LayerBefore::default()).await.unwrap();
        let position = read(&mut *source, 1, &mut BTreeMap::new()).await.unwrap();
        let refused =
            all.remove(1).1.source(Clock::system(), position, LayerBefore::default()).await.err().unwrap();
        assert!(refused.to_string().contains("another job"), "{refused}");
        assert!(Position::from_json("{}").is_err());
    });
}
