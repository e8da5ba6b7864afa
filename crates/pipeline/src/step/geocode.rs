//! geocode: a place for an address, or an address for a place, by a geocoding service.

use std::sync::Arc;

use tidegate_core::Code;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::wkb::{self, Cursor, Event, Shape, write};
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema, Value};

use super::remote::{Remote, questions};
use super::services::{Services, secret};
use super::{Aside, Flow, Step, StepError};
use crate::http::{Request, Trace};
use crate::manifest::{Geocode, Missing};
use crate::profile::{Ask, Asker, Profile, Profiles, Sniffed, What};
use crate::traffic;

struct GeocodeStep {
    remote: Remote<Sniffed>,
    profile: Profile,
    asker: Asker,
    user_agent: Option<String>,
    address: Vec<usize>,
    label: Option<usize>,
    score: Option<usize>,
    no_match: Missing,
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
    let remote = services.open(&form.service, &profile.base_url()?, profile.dialect(), (lane, trace))?;
    Ok(Box::new(GeocodeStep {
        remote,
        profile,
        asker,
        user_agent: service.user_agent.clone(),
        address,
        label,
        score,
        no_match: form.no_match,
        schema: flow.schema.clone(),
    }))
}

impl GeocodeStep {
    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem> {
        let refuse = |message: String| Problem::new(Code::UNPROCESSABLE, message);
        let mut address = String::new();
        let what = if self.address.is_empty() {
            let point = batch
                .geometry(row)
                .and_then(point)
                .ok_or_else(|| refuse("there is no point to ask about".into()))?;
            What::Reverse { lon: point.0, lat: point.1 }
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
            What::Forward(&address)
        };
        self.asker.request(&Ask { user_agent: self.user_agent.as_deref(), ..Ask::new(what) }).map_err(refuse)
    }
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

impl Step for GeocodeStep {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let (questions, mut refused) = questions(batch.len(), |row| self.question(&batch, row));
        let answers = self.remote.ask(questions, &batch, aside)?;
        let mut best = Vec::with_capacity(batch.len());
        for (row, said) in answers.into_iter().enumerate() {
            best.push(match said {
                Some(Ok((status, content_type, body))) => {
                    let read = self.profile.read(status, Some(&content_type), &body);
                    let answer = read.answers.into_iter().next();
                    if answer.is_none() {
                        if self.no_match == Missing::Reject {
                            refused.push((
                                row,
                                Problem::new(Code::NO_MATCH, "the service has nothing for this record"),
                            ));
                        } else {
                            aside.missed.push(batch.record(row));
                        }
                    }
                    answer
                }
                Some(Err(problem)) => {
                    refused.push((row, problem));
                    None
                }
                None => None,
            });
        }
        let old = batch.columns().len();
        let mut picks: Vec<Pick> = (0..old).map(Pick::Old).collect();
        for at in [self.label, self.score].into_iter().flatten() {
            let is_label = Some(at) == self.label;
            let mut column = Column::new(if is_label { Kind::Text } else { Kind::Real });
            for answer in &best {
                let value = answer.as_ref().and_then(|answer| {
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
            match best.get(row).and_then(Option::as_ref).filter(|_| forward) {
                Some(answer) => write::point(out, &[answer.lon, answer.lat]),
                None => out.extend_from_slice(geometry.unwrap_or_default()),
            }
            Ok(())
        });
        refused.sort_by_key(|(row, _)| *row);
        Ok(aside.set_aside(batch, refused))
    }
}
