//! geocode: a place for an address, or an address for a place, by a geocoding service.

use std::path::Path;
use std::sync::Arc;

use tidegate_core::Code;
use tidegate_core::signal::Means;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::wkb::{self, Cursor, Event, Shape, write};
use tidegate_geo::{Batch, Crs, Kind, Problem, Schema, Value};

use super::remote::{AskedRow, OnMissing, RemoteKind};
use super::services::{ProviderParts, Services, secret};
use super::window::Reply;
use super::{Flow, Step, StepError};
use crate::http::{Request, Trace};
use crate::manifest::Geocode;
use crate::profile::{
    GeocodeCandidate, GeocodeInput, GeocodeQuery, Profile, ProfileRequestBuilder, ProfileRequestError,
    Profiles, Refusal, Sniffed,
};
use crate::telemetry::RecordEnd;
use crate::traffic;

struct Geocoding {
    profile: Profile,
    asker: ProfileRequestBuilder,
    user_agent: Option<String>,
    language: Option<String>,
    country: Option<String>,
    asks: Asks,
    /// The field that says what was wrong with the record when it was read.
    row_error: Option<usize>,
    /// The fields that are added, in their order.
    added: Vec<AnswerField>,
    schema: Arc<Schema>,
}

/// What is asked about a record.
#[derive(Clone)]
enum Asks {
    /// The place of the address in these fields.
    Address(Vec<(usize, String)>),
    /// The address at the place in these fields.
    Place([(usize, String); 2]),
    /// The address at the record's own point.
    Point,
}

/// A field that tells what became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerField {
    Outcome,
    Label,
    Score,
    MatchType,
    Attempts,
    ElapsedMs,
    CacheHit,
    Provider,
    ErrorCode,
    Error,
}

impl AnswerField {
    fn kind(self) -> Kind {
        match self {
            AnswerField::Score => Kind::Real,
            AnswerField::Attempts | AnswerField::ElapsedMs => Kind::Int,
            AnswerField::CacheHit => Kind::Bool,
            AnswerField::Outcome
            | AnswerField::Label
            | AnswerField::MatchType
            | AnswerField::Provider
            | AnswerField::ErrorCode
            | AnswerField::Error => Kind::Text,
        }
    }

    fn value<'a>(self, row: &'a AskedRow<'_, GeocodeCandidate>) -> Value<'a> {
        let text = |text: Option<&'a str>| text.map_or(Value::Null, Value::Text);
        match self {
            AnswerField::Outcome => Value::Text(match (row.failure, row.answer) {
                (Some(_), _) => RecordEnd::Failed.word(),
                (None, Some(_)) => RecordEnd::Matched.word(),
                (None, None) => RecordEnd::NoMatch.word(),
            }),
            AnswerField::Label => text(row.answer.and_then(|answer| answer.label.as_deref())),
            AnswerField::Score => row.answer.and_then(|answer| answer.score).map_or(Value::Null, Value::Real),
            AnswerField::MatchType => text(row.answer.and_then(|answer| answer.kind.as_deref())),
            AnswerField::Attempts => Value::Int(i64::from(row.attempts)),
            AnswerField::ElapsedMs => Value::Int(i64::try_from(row.elapsed.as_millis()).unwrap_or(i64::MAX)),
            AnswerField::CacheHit => Value::Bool(row.cached),
            AnswerField::Provider => text(row.provider.filter(|_| row.failure.is_none())),
            AnswerField::ErrorCode => text(row.failure.map(|problem| problem.code.as_str())),
            AnswerField::Error => text(row.failure.map(|problem| problem.message.as_str())),
        }
    }
}

pub(super) fn build(form: &Geocode, flow: &mut Flow, services: &Services) -> Result<Box<dyn Step>, String> {
    profile(&form.service, services)?;
    if flow.crs.as_ref().is_some_and(|crs| !crs.is_wgs84()) {
        return Err("geocoders use longitude and latitude; put this step before `reproject`, or reproject to EPSG:4326 first".into());
    }
    let find = |name: &String| flow.field(name).map(|at| (at, name.clone()));
    let asks = match &form.place {
        Some(place) => Asks::Place([find(&place.lon)?, find(&place.lat)?]),
        None if form.address.is_empty() => Asks::Point,
        None => Asks::Address(form.address.iter().map(find).collect::<Result<_, _>>()?),
    };
    let row_error = form.row_error.as_ref().map(|name| flow.field(name)).transpose()?;
    let mut fields = flow.fields();
    let mut added = Vec::new();
    for (name, field) in [
        (&form.outcome, AnswerField::Outcome),
        (&form.label, AnswerField::Label),
        (&form.score, AnswerField::Score),
        (&form.match_type, AnswerField::MatchType),
        (&form.attempts, AnswerField::Attempts),
        (&form.elapsed_ms, AnswerField::ElapsedMs),
        (&form.cache_hit, AnswerField::CacheHit),
        (&form.provider, AnswerField::Provider),
        (&form.error_code, AnswerField::ErrorCode),
        (&form.error, AnswerField::Error),
    ] {
        let Some(name) = name else { continue };
        if fields.iter().any(|(other, _)| other == name) {
            return Err(format!("the records already have a field `{name}`; rename it first"));
        }
        fields.push((name.clone(), field.kind()));
        added.push(field);
    }
    flow.with(fields);
    if !matches!(asks, Asks::Point) {
        let mut schema = Schema::clone(&flow.schema);
        schema.shape = Some(Shape::Point).filter(|_| schema.shape.is_none_or(|shape| shape == Shape::Point));
        flow.schema = Arc::new(schema);
        flow.multi = flow.schema.shape.map(Shape::multi);
        flow.crs = Some(Crs::wgs84());
    }
    let provider = |name: &str| {
        let (service, policy) = services.get(name)?;
        let profile = profile(name, services)?;
        let asker = profile.asker(secret(service)?.as_ref()).map_err(|e| e.to_string())?;
        let lane = traffic::of_step(policy, service, Some(&profile));
        let trace = Trace::of(profile.trace_context());
        let (base, dialect) = (profile.base_url().map_err(|e| e.to_string())?, profile.dialect());
        let kind = Geocoding {
            profile,
            asker,
            user_agent: service.user_agent.clone(),
            language: service.language.clone(),
            country: service.country.clone(),
            asks: asks.clone(),
            row_error,
            added: added.clone(),
            schema: flow.schema.clone(),
        };
        // GeocodeInput no record can be asked without is missed before the first one.
        kind.asker.request(&kind.ask(kind.sample())).map_err(|e| e.to_string())?;
        Ok(ProviderParts { kind, base, dialect, lane, trace })
    };
    let on = OnMissing { no_match: form.no_match, failure: form.on_failure };
    let remote = services.open(&form.service, provider, on)?;
    Ok(Box::new(remote))
}

/// The profile of a service, at its URL.
fn profile(name: &str, services: &Services) -> Result<Profile, String> {
    let (service, _) = services.get(name)?;
    let profile = service.profile.as_deref().ok_or_else(|| format!("service `{name}` has no `profile`"))?;
    let profile =
        Profiles::one(profile, service.profiles.as_deref().map(Path::new)).map_err(|e| e.to_string())?;
    match &service.url {
        Some(url) => profile.at(url).map_err(|e| e.to_string()),
        None => Ok(profile),
    }
}

impl Geocoding {
    /// A question of this step.
    fn ask<'a>(&'a self, what: GeocodeInput<'a>) -> GeocodeQuery<'a> {
        GeocodeQuery {
            language: self.language.as_deref(),
            country: self.country.as_deref(),
            user_agent: self.user_agent.as_deref(),
            ..GeocodeQuery::new(what)
        }
    }

    /// A question that could be asked.
    fn sample(&self) -> GeocodeInput<'static> {
        match self.asks {
            Asks::Address(_) => GeocodeInput::Forward("a"),
            Asks::Place(_) | Asks::Point => GeocodeInput::Reverse { lon: 0.0, lat: 0.0 },
        }
    }

    /// The place of a row, from its fields.
    fn place(&self, batch: &Batch, row: usize) -> Option<Result<(f64, f64), Problem>> {
        let Asks::Place([lon, lat]) = &self.asks else { return None };
        Some(coordinate(batch, row, lon).and_then(|x| coordinate(batch, row, lat).map(|y| (x, y))))
    }
}

fn bad(message: impl Into<String>) -> Problem {
    Problem::new(Code::BAD_REQUEST, message)
}

/// A coordinate in a field.
fn coordinate(batch: &Batch, row: usize, (at, name): &(usize, String)) -> Result<f64, Problem> {
    let number = match batch.value(row, *at) {
        Value::Real(x) => Ok(x),
        Value::Int(i) => Ok(i as f64),
        Value::Text(text) => text.trim().parse::<f64>().map_err(|_| text.to_owned()),
        _ => Err(String::new()),
    };
    match number {
        Ok(x) if x.is_finite() => Ok(x),
        Ok(x) => Err(bad(format!("field {name:?}: {x} is not a coordinate"))),
        Err(text) => Err(bad(format!("field {name:?}: {text:?} is not a coordinate"))),
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

impl RemoteKind for Geocoding {
    type Parsed = Sniffed;
    type Answer = GeocodeCandidate;

    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem> {
        if let Some(Value::Text(fault)) = self.row_error.map(|at| batch.value(row, at)) {
            return Err(Problem::new(Code::SCHEMA_MISMATCH, fault));
        }
        let mut address = String::new();
        let what = match &self.asks {
            Asks::Point => {
                let point = batch.geometry(row).and_then(point);
                let point = point.ok_or_else(|| Problem::new(Code::UNPROCESSABLE, "no point to geocode"))?;
                GeocodeInput::Reverse { lon: point.0, lat: point.1 }
            }
            Asks::Place(_) => {
                let (lon, lat) = self.place(batch, row).unwrap_or(Ok((0.0, 0.0)))?;
                GeocodeInput::Reverse { lon, lat }
            }
            Asks::Address(fields) => {
                for (at, _) in fields {
                    let number;
                    let part = match batch.value(row, *at) {
                        Value::Text(text) => text.trim(),
                        Value::Int(i) => {
                            number = i.to_string();
                            &number
                        }
                        _ => continue,
                    };
                    if !part.is_empty() {
                        address.push_str(if address.is_empty() { "" } else { ", " });
                        address.push_str(part);
                    }
                }
                if address.is_empty() {
                    let names: Vec<&str> = fields.iter().map(|(_, name)| name.as_str()).collect();
                    return Err(bad(format!("field {:?}: the address is empty", names.join(", "))));
                }
                GeocodeInput::Forward(&address)
            }
        };
        self.asker.request(&self.ask(what)).map_err(|e| match e {
            ProfileRequestError::Refused(Refusal::Path(why)) => {
                Problem::new(Code::PATH_NOT_ALLOWED, why.to_string())
            }
            e => bad(e.to_string()),
        })
    }

    fn body_bytes_max(&self) -> Option<u64> {
        Some(self.profile.body_bytes_max())
    }

    fn read(
        &self,
        status: u16,
        content_type: &str,
        body: &[u8],
        parsed: Option<Sniffed>,
    ) -> Reply<GeocodeCandidate> {
        let read = parsed.unwrap_or_else(|| self.profile.read(status, Some(content_type), body));
        match read.finding {
            // GeocodeInput the body says of itself counts, also when it comes out of the cache.
            Some(found) if found.means != Means::NoMatch => {
                Err(Problem::new(found.code, "the service no longer responds in this form"))
            }
            _ => Ok(read.answers.into_iter().next()),
        }
    }

    fn fill(&self, batch: Batch, rows: &[AskedRow<'_, GeocodeCandidate>]) -> Result<Batch, StepError> {
        let mut picks: Vec<Pick> = (0..batch.columns().len()).map(Pick::Old).collect();
        for field in &self.added {
            let mut column = Column::new(field.kind());
            for row in rows {
                column.push(field.value(row)).map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
            picks.push(Pick::New(column));
        }
        let places: Vec<Option<(f64, f64)>> = match &self.asks {
            Asks::Point => Vec::new(),
            Asks::Place(_) => {
                (0..batch.len()).map(|row| self.place(&batch, row).and_then(Result::ok)).collect()
            }
            Asks::Address(_) => {
                rows.iter().map(|row| row.answer.map(|answer| (answer.lon, answer.lat))).collect()
            }
        };
        let batch = batch.with_columns(self.schema.clone(), picks);
        let (batch, _) = batch.map_geometry(self.schema.clone(), |row, geometry, out| {
            match places.get(row).copied().flatten() {
                Some((lon, lat)) => write::point(out, &[lon, lat]),
                None => out.extend_from_slice(geometry.unwrap_or_default()),
            }
            Ok(())
        });
        Ok(batch)
    }
}
