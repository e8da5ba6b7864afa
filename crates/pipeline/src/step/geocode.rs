//! geocode: a place for an address, or an address for a place, by a geocoding service.

use std::sync::Arc;

use tidegate_core::Code;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::wkb::{self, Cursor, Event, Shape, write};
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema, Value};

use super::remote::RemoteKind;
use super::services::{Services, secret};
use super::window::Reply;
use super::{Flow, Step, StepError};
use crate::http::{Request, Trace};
use crate::manifest::Geocode;
use crate::profile::{
    GeocodeCandidate, GeocodeInput, GeocodeQuery, Profile, ProfileRequestBuilder, Profiles, Sniffed,
};
use crate::traffic;

struct Geocoding {
    profile: Profile,
    asker: ProfileRequestBuilder,
    user_agent: Option<String>,
    address: Vec<usize>,
    label: Option<usize>,
    score: Option<usize>,
    schema: Arc<Schema>,
}

pub(super) fn build(form: &Geocode, flow: &mut Flow, services: &Services) -> Result<Box<dyn Step>, String> {
    let service = services.get(&form.service)?;
    let name = service
        .profile
        .as_deref()
        .ok_or_else(|| format!("the service `{}` names no `profile`", form.service))?;
    let mut profile = Profiles::one(name, None)?;
    if let Some(url) = &service.url {
        profile = profile.at(url)?;
    }
    if flow.crs.as_ref().is_some_and(|crs| !crs.is_wgs84()) {
        return Err("geocoders speak longitude and latitude; put this step before `reproject`, or reproject to EPSG:4326 before it".into());
    }
    let address = form.address.iter().map(|name| flow.field(name)).collect::<Result<Vec<_>, _>>()?;
    let mut fields = flow.fields();
    let mut add = |name: &Option<String>, kind| -> Result<Option<usize>, String> {
        let Some(name) = name else { return Ok(None) };
        if fields.iter().any(|(other, _)| other == name) {
            return Err(format!("the records have a field `{name}` already; rename it before"));
        }
        fields.push((name.clone(), kind));
        Ok(Some(fields.len() - 1))
    };
    let (label, score) = (add(&form.label, Kind::Text)?, add(&form.score, Kind::Real)?);
    flow.with(fields);
    if !address.is_empty() {
        let mut schema = Schema::clone(&flow.schema);
        schema.shape = Some(Shape::Point).filter(|_| schema.shape.is_none_or(|shape| shape == Shape::Point));
        flow.schema = Arc::new(schema);
        flow.multi = flow.schema.shape.map(Shape::multi);
        flow.crs = Some(Crs::wgs84());
    }
    let asker = profile.asker(secret(service)?.as_ref())?;
    let lane = traffic::of_step(&services.policy, service, Some(&profile));
    let trace = Trace::of(profile.trace_context());
    let (base, dialect) = (profile.base_url()?, profile.dialect());
    let kind = Geocoding {
        profile,
        asker,
        user_agent: service.user_agent.clone(),
        address,
        label,
        score,
        schema: flow.schema.clone(),
    };
    let remote = services.open(&form.service, kind, (&base, dialect), (lane, trace), form.no_match)?;
    Ok(Box::new(remote))
}

/// The position of a point.
fn point(wkb: &[u8]) -> Option<(f64, f64)> {
    if wkb::head(wkb)?.0 != Shape::Point {
        return None;
    }
    let mut cursor = Cursor::default();
    while let Ok(Some(event)) = cursor.next(wkb) {
        if let Event::Coords(run) = event {
            return run.xy(wkb).next();
        }
    }
    None
}

impl RemoteKind for Geocoding {
    type Parsed = Sniffed;
    type Answer = GeocodeCandidate;

    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem> {
        let refuse = |message: String| Problem::new(Code::UNPROCESSABLE, message);
        let mut address = String::new();
        let what = if self.address.is_empty() {
            let point = batch
                .geometry(row)
                .and_then(point)
                .ok_or_else(|| refuse("there is no point to ask about".into()))?;
            GeocodeInput::Reverse { lon: point.0, lat: point.1 }
        } else {
            for at in &self.address {
                let part = match batch.value(row, *at) {
                    Value::Text(text) => text.trim().to_owned(),
                    Value::Int(i) => i.to_string(),
                    _ => continue,
                };
                if !part.is_empty() {
                    address.push_str(if address.is_empty() { "" } else { ", " });
                    address.push_str(&part);
                }
            }
            GeocodeInput::Forward(&address)
        };
        self.asker
            .request(&GeocodeQuery { user_agent: self.user_agent.as_deref(), ..GeocodeQuery::new(what) })
            .map_err(refuse)
    }

    fn read(
        &self,
        status: u16,
        content_type: &str,
        body: &[u8],
        parsed: Option<Sniffed>,
    ) -> Reply<GeocodeCandidate> {
        let read = parsed.unwrap_or_else(|| self.profile.read(status, Some(content_type), body));
        Ok(read.answers.into_iter().next())
    }

    fn fill(&self, batch: Batch, answers: &[Option<&GeocodeCandidate>]) -> Result<Batch, StepError> {
        let old = batch.columns().len();
        let mut picks: Vec<Pick> = (0..old).map(Pick::Old).collect();
        for at in [self.label, self.score].into_iter().flatten() {
            let is_label = Some(at) == self.label;
            let mut column = Column::new(if is_label { Kind::Text } else { Kind::Real });
            for answer in answers {
                let value = answer.and_then(|answer| {
                    if is_label {
                        answer.label.as_deref().map(Value::Text)
                    } else {
                        answer.score.map(Value::Real)
                    }
                });
                column
                    .push(value.unwrap_or(Value::Null))
                    .map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
            picks.push(Pick::New(column));
        }
        let forward = !self.address.is_empty();
        let batch = batch.with_columns(self.schema.clone(), picks);
        let (batch, _) = batch.map_geometry(self.schema.clone(), |row, geometry, out| {
            match answers.get(row).copied().flatten().filter(|_| forward) {
                Some(answer) => write::point(out, &[answer.lon, answer.lat]),
                None => out.extend_from_slice(geometry.unwrap_or_default()),
            }
            Ok(())
        });
        Ok(batch)
    }
}
