//! ArcGIS FeatureServer and MapServer layers: pages by ranges of object ids, or by offset.
//!
//! By ids is the default. The server lists all object ids; they are cut into ranges that leave no
//! gap, so that every id, also one that is added meanwhile, belongs to exactly one range. A range
//! that has grown beyond the server's limit says `exceededTransferLimit` and is gone on with. At
//! the end the list tells whether any feature that stayed was not received.

use super::error::SourceError;
use super::page::{FeaturePage, geojson};
use super::position::NextPage;
use super::service::PagedLayer;
use super::wire::Wire;
use super::{esri_json, extent};
use crate::http::{Request, Response};
use async_trait::async_trait;
use serde_json::Value;
use std::collections::HashSet;
use tidegate_core::Code;
use tidegate_geo::format::esri::{self, EsriFields};
use tidegate_geo::{Bounds, Crs, Schema};
use url::Url;

/// How pages go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EsriPaging {
    /// By ranges of object ids.
    #[default]
    Ids,
    /// By `resultOffset`.
    Offset,
}

/// What to ask of an ArcGIS server.
#[derive(Clone, Debug, Default)]
pub struct EsriOptions {
    /// The layer, by number or name; may be left out if the URL names it or there is only one.
    pub layer: Option<String>,
    /// How pages go on.
    pub paging: EsriPaging,
    /// The reference system to ask for; the layer's own by default.
    pub crs: Option<Crs>,
    /// Features on a page.
    pub page_size: Option<u64>,
    /// Ask for GeoJSON and not for the server's own form.
    pub geojson: bool,
}

/// A layer of an ArcGIS server.
pub(super) struct Esri {
    query: Url,
    layer: String,
    filter: String,
    key: String,
    paging: EsriPaging,
    crs: Option<Crs>,
    /// The spatial reference of the layer, if it means no system that is known.
    unknown: Option<String>,
    extent: Option<Bounds>,
    size: u64,
    geojson: bool,
    /// Whether the server takes a number of records, and an order. Old ones refuse the question.
    limits: bool,
    orders: bool,
    fields: EsriFields,
    schema: Schema,
    /// The object ids at the start, sorted.
    ids: Vec<i64>,
}

const SIZE: u64 = 1000;

impl Esri {
    pub(super) async fn open(wire: &Wire, url: &Url, options: EsriOptions) -> Result<Esri, SourceError> {
        let (layer_url, about) = place(wire, url, options.layer.as_deref()).await?;
        let text = |name: &str| about.get(name).and_then(Value::as_str).map(str::to_owned);
        let declared = about.get("fields").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let fields = EsriFields::declared(declared);
        let key = text("objectIdField").or_else(|| fields.key.clone());
        let Some(key) = key else {
            return Err(SourceError::setup(format!("{layer_url} has no object id field for paging")));
        };
        let most = about.get("maxRecordCount").and_then(Value::as_u64).filter(|n| *n > 0);
        let size = options.page_size.or(most).unwrap_or(SIZE).min(most.unwrap_or(u64::MAX)).max(2);
        let mut query = layer_url.clone();
        let filter =
            url.query_pairs().find(|(n, _)| n.eq_ignore_ascii_case("where")).map(|(_, v)| v.into_owned());
        query.set_query(None);
        query.set_path(&format!("{}/query", layer_url.path().trim_end_matches('/')));
        let can = |name: &str| {
            let said =
                about.pointer(&format!("/advancedQueryCapabilities/{name}")).or_else(|| about.get(name));
            said.and_then(Value::as_bool) != Some(false)
        };
        let (limits, orders) = (can("supportsPagination"), can("supportsOrderBy"));
        if options.paging == EsriPaging::Offset && !(limits && orders) {
            return Err(SourceError::setup(format!(
                "{layer_url} does not support paging by offset; use --paging ids"
            )));
        }
        let reference = about.pointer("/extent/spatialReference");
        let own = reference.and_then(|reference| esri::crs(reference).ok());
        let extent = extent::of_esri(&about, own.as_ref());
        // A system that nobody can name is worth nothing in a file: then WGS 84 is asked for.
        let unknown = (own.is_none() && options.crs.is_none() && !options.geojson)
            .then(|| reference.map_or("none".into(), |reference| format!("{reference:.80}")));
        let own = own.or_else(|| unknown.as_ref().map(|_| Crs::epsg(4326)));
        let crs = if options.geojson { Some(Crs::wgs84()) } else { options.crs.or(own) };
        let mut esri = Esri {
            query,
            layer: text("name").unwrap_or_else(|| "layer".into()),
            filter: filter.filter(|f| !f.trim().is_empty()).unwrap_or_else(|| "1=1".into()),
            key,
            paging: options.paging,
            crs,
            unknown,
            extent,
            size,
            geojson: options.geojson,
            limits,
            orders,
            schema: fields.schema.clone(),
            fields,
            ids: Vec::new(),
        };
        if esri.paging == EsriPaging::Ids {
            esri.ids = esri.list(wire).await?;
        }
        Ok(esri)
    }

    /// All object ids, sorted.
    async fn list(&self, wire: &Wire) -> Result<Vec<i64>, SourceError> {
        let what = format!("{}, the list of object ids", self.layer);
        let request = self.asking(wire, &self.filter, &[("returnIdsOnly", "true"), ("f", "json")]);
        let value = json(wire, &request, &what).await?;
        let Some(ids) = value.get("objectIds") else {
            return Err(SourceError::broken(Code::UNEXPECTED_BODY, format!("{what}: missing")));
        };
        // An empty layer has `null`.
        let ids = ids.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut ids: Vec<i64> = ids.iter().filter_map(Value::as_i64).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Why a page cannot be used: WGS 84 was asked for because the layer's own system is not known,
    /// and the page does not say that it is in it.
    fn refusal(&self, page: &FeaturePage) -> Option<String> {
        let reference = self.unknown.as_ref()?;
        let crs = page.crs.as_deref().and_then(|name| name.parse::<Crs>().ok());
        let good = page.features.is_empty() || crs.as_ref().is_some_and(Crs::is_wgs84);
        (!good).then(|| {
            format!(
                "the spatial reference of the layer is {reference}, which means no system that is known, and asked \
                 for outSR=4326 the service answers in {}; name a system with --crs, or use --body geojson",
                crs.map_or("none that it names".into(), |crs| crs.to_string())
            )
        })
    }

    fn asking(&self, wire: &Wire, filter: &str, more: &[(&str, &str)]) -> Request {
        let mut url = self.query.clone();
        url.query_pairs_mut().append_pair("where", filter).extend_pairs(more);
        wire.get(url)
    }
}

/// The address of the layer, and what the server says of it.
async fn place(wire: &Wire, url: &Url, layer: Option<&str>) -> Result<(Url, Value), SourceError> {
    let mut base = url.clone();
    base.set_query(None);
    let path = base.path().trim_end_matches('/').trim_end_matches("/query").to_owned();
    let numbered = path.rsplit('/').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    let path = if numbered {
        path
    } else {
        base.set_path(&path);
        let service = about(wire, &base).await?;
        let layers: Vec<(String, String)> = service
            .get("layers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            // The id becomes a part of the path, so it must be the number that it should be.
            .filter_map(|l| Some((l.get("id")?.as_u64()?.to_string(), l.get("name")?.as_str()?.to_owned())))
            .collect();
        let found = match layer {
            Some(wanted) => layers.iter().find(|(id, name)| id == wanted || name == wanted),
            None if layers.len() == 1 => layers.first(),
            None => None,
        };
        let Some((id, _)) = found else {
            let names: Vec<String> = layers.iter().map(|(id, name)| format!("{id} ({name})")).collect();
            let message = match layer {
                Some(wanted) => format!("no layer {wanted:?}; expected one of {}", names.join(", ")),
                None => format!("choose a layer with --layer; expected one of {}", names.join(", ")),
            };
            return Err(SourceError::setup(message));
        };
        format!("{path}/{id}")
    };
    base.set_path(&path);
    let value = about(wire, &base).await?;
    Ok((base, value))
}

async fn about(wire: &Wire, url: &Url) -> Result<Value, SourceError> {
    let mut asked = url.clone();
    asked.query_pairs_mut().append_pair("f", "json");
    json(wire, &wire.get(asked), "the description of the layer").await
}

async fn json(wire: &Wire, request: &Request, what: &str) -> Result<Value, SourceError> {
    let response = wire.ask(request, what).await?;
    serde_json::from_slice(&response.body)
        .map_err(|e| SourceError::broken(Code::UNEXPECTED_BODY, format!("{what}: {e}")))
}

#[async_trait]
impl PagedLayer for Esri {
    fn layer(&self) -> &str {
        &self.layer
    }

    fn first(&self) -> NextPage {
        match self.paging {
            EsriPaging::Offset => NextPage::Offset { start: 0, overlap: false },
            EsriPaging::Ids => self.range(i64::MIN),
        }
    }

    fn request(&self, wire: &Wire, step: &NextPage) -> Result<Request, SourceError> {
        let (key, size) = (&self.key, self.size.to_string());
        let mut more = vec![("outFields", "*"), ("f", if self.geojson { "geojson" } else { "json" })];
        if self.orders {
            more.push(("orderByFields", key.as_str()));
        }
        if self.limits {
            more.push(("resultRecordCount", &size));
        }
        let out = self.crs.as_ref().and_then(Crs::number).map(|code| code.to_string());
        if let Some(out) = out.as_deref().filter(|_| !self.geojson) {
            more.push(("outSR", out));
        }
        Ok(match step {
            NextPage::Offset { start, .. } => {
                let start = start.to_string();
                more.push(("resultOffset", &start));
                self.asking(wire, &self.filter, &more)
            }
            NextPage::Keys { from, to } => {
                let mut parts = Vec::new();
                if self.filter != "1=1" {
                    parts.push(format!("({})", self.filter));
                }
                if *from != i64::MIN {
                    parts.push(format!("{key}>={from}"));
                }
                parts.extend(to.map(|to| format!("{key}<{to}")));
                let filter = if parts.is_empty() { "1=1".into() } else { parts.join(" AND ") };
                self.asking(wire, &filter, &more)
            }
            NextPage::Link { .. } => {
                return Err(SourceError::setup("the saved position is not from an ArcGIS server"));
            }
        })
    }

    fn read(&self, response: &Response) -> Result<FeaturePage, String> {
        if !self.geojson {
            let mut page = esri_json::page(&response.body, &self.fields, &self.key)?;
            page.refusal = self.refusal(&page);
            return Ok(page);
        }
        let (mut page, _) = geojson(&response.body)?;
        for at in 0..page.features.len() {
            let key = page.features.get(at).and_then(|f| esri_json::key_of(page.feature(f), &self.key));
            if let (Some(feature), Some(key)) = (page.features.get_mut(at), key) {
                feature.key = Some(key);
                feature.id = Some(key.to_string().into());
            }
        }
        page.more = Some(page.more.unwrap_or(false));
        Ok(page)
    }

    fn identity(&self, feature: &[u8]) -> Option<Box<str>> {
        if self.geojson {
            return esri_json::key_of(feature, &self.key).map(|key| key.to_string().into());
        }
        super::page::identity(feature)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn range(&self, from: i64) -> NextPage {
        let at = self.ids.partition_point(|id| *id < from);
        let next = usize::try_from(self.size).ok().and_then(|size| at.checked_add(size));
        NextPage::Keys { from, to: next.and_then(|next| self.ids.get(next)).copied() }
    }

    async fn count(&self, wire: &Wire) -> Result<Option<u64>, SourceError> {
        let what = format!("{}, the number of features", self.layer);
        let request = self.asking(wire, &self.filter, &[("returnCountOnly", "true"), ("f", "json")]);
        Ok(json(wire, &request, &what).await?.get("count").and_then(Value::as_u64))
    }

    async fn missing(
        &self,
        wire: &Wire,
        received: &(dyn for<'a> Fn(&'a str) -> bool + Sync),
    ) -> Result<Option<Vec<i64>>, SourceError> {
        let now: HashSet<i64> = self.list(wire).await?.into_iter().collect();
        let stayed = self.ids.iter().filter(|id| now.contains(id));
        Ok(Some(stayed.filter(|id| !received(&id.to_string())).copied().collect()))
    }

    fn described(&self) -> Option<&Schema> {
        Some(&self.schema)
    }

    fn extent(&self) -> Option<Bounds> {
        self.extent
    }

    fn crs(&self) -> Option<Crs> {
        self.crs.clone()
    }
}
