//! http: values out of what a service answers to an address made of the record's fields.

use std::sync::Arc;

use tidegate_core::Code;
use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::{Batch, Kind, Problem, Schema, Value};
use url::Url;

use super::remote::{Remote, questions};
use super::services::{Services, secret};
use super::{Aside, Flow, Step, StepError};
use crate::http::{Credential, Dialect, Place, Request, Trace};
use crate::manifest::{Http, Missing};
use crate::traffic;

struct HttpStep {
    remote: Remote<()>,
    base: Url,
    parts: Vec<Part>,
    credential: Option<Credential>,
    pointers: Vec<String>,
    no_match: Missing,
    schema: Arc<Schema>,
}

enum Part {
    Text(String),
    Field(usize),
}

pub(super) fn build(form: &Http, flow: &mut Flow, services: &Services) -> Result<Box<dyn Step>, String> {
    let service = services.get(&form.service)?;
    let url =
        service.url.as_deref().ok_or_else(|| format!("the service `{}` names no `url`", form.service))?;
    let base = Url::parse(url).map_err(|e| format!("{url}: {e}"))?;
    let mut parts = Vec::new();
    let mut rest = form.path.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("`{` is not closed by `}` in `path`")?;
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Field(flow.field(name)?));
        rest = after;
    }
    parts.push(Part::Text(rest.to_owned()));
    let mut fields = flow.fields();
    for name in form.take.keys() {
        if fields.iter().any(|(other, _)| other == name) {
            return Err(format!("the records have a field `{name}` already; rename it before"));
        }
        fields.push((name.clone(), Kind::Text));
    }
    flow.with(fields);
    let credential = secret(service)?.map(|(name, secret)| Credential {
        name,
        place: Place::Header(::http::header::AUTHORIZATION, "Bearer ".to_owned()),
        secret,
    });
    let lane = traffic::of_step(&services.policy, service, None);
    let mut remote = services.open(&form.service, &base, Dialect::default(), (lane, Trace::Spans))?;
    remote.not_found_is_answer = true;
    Ok(Box::new(HttpStep {
        remote,
        base,
        parts,
        credential,
        pointers: form.take.values().cloned().collect(),
        no_match: form.no_match,
        schema: flow.schema.clone(),
    }))
}

impl HttpStep {
    fn question(&self, batch: &Batch, row: usize) -> Result<Request, Problem> {
        let mut path = self.base.as_str().trim_end_matches('/').to_owned();
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Field(at) => {
                    let value = match batch.value(row, *at) {
                        Value::Text(text) => text.to_owned(),
                        Value::Int(i) => i.to_string(),
                        Value::Real(x) => x.to_string(),
                        Value::Bool(b) => b.to_string(),
                        Value::Null | Value::Bytes(_) | Value::Json(_) => {
                            let name = self.schema.fields().get(*at).map_or("", |field| field.name.as_str());
                            return Err(Problem::new(Code::UNPROCESSABLE, "there is no value to ask with")
                                .under(name));
                        }
                    };
                    path.extend(
                        url::form_urlencoded::byte_serialize(value.as_bytes())
                            .map(|part| part.replace('+', "%20")),
                    );
                }
            }
        }
        let url = Url::parse(&path).map_err(|e| Problem::new(Code::UNPROCESSABLE, format!("{path}: {e}")))?;
        let mut request = Request::get(url);
        request.credentials.extend(self.credential.clone());
        Ok(request)
    }
}

impl Step for HttpStep {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let (questions, mut refused) = questions(batch.len(), |row| self.question(&batch, row));
        let answers = self.remote.ask(questions, &batch, aside)?;
        let mut columns: Vec<Column> = self.pointers.iter().map(|_| Column::new(Kind::Text)).collect();
        for (row, said) in answers.into_iter().enumerate() {
            let json = match said {
                Some(Ok((status, _, body))) if (200..300).contains(&status) => {
                    match serde_json::from_slice(&body) {
                        Ok(json) => Some(json),
                        Err(e) => {
                            refused.push((
                                row,
                                Problem::new(Code::UNEXPECTED_BODY, format!("the answer is not JSON: {e}")),
                            ));
                            None
                        }
                    }
                }
                Some(Ok(_)) => Some(serde_json::Value::Null),
                Some(Err(problem)) => {
                    refused.push((row, problem));
                    None
                }
                None => None,
            };
            let found: Vec<Option<String>> = self
                .pointers
                .iter()
                .map(|pointer| match json.as_ref().and_then(|json| json.pointer(pointer)) {
                    None | Some(serde_json::Value::Null) => None,
                    Some(serde_json::Value::String(text)) => Some(text.clone()),
                    Some(other) => Some(other.to_string()),
                })
                .collect();
            if json.is_some() && found.iter().all(Option::is_none) {
                if self.no_match == Missing::Reject {
                    refused
                        .push((row, Problem::new(Code::NO_MATCH, "the service has nothing for this record")));
                } else {
                    aside.missed.push(batch.record(row));
                }
            }
            for (column, value) in columns.iter_mut().zip(found) {
                column
                    .push(value.as_deref().map_or(Value::Null, Value::Text))
                    .map_err(|problem| StepError::Broken(problem.to_string()))?;
            }
        }
        let picks =
            (0..batch.columns().len()).map(Pick::Old).chain(columns.into_iter().map(Pick::New)).collect();
        refused.sort_by_key(|(row, _)| *row);
        Ok(aside.set_aside(batch.with_columns(self.schema.clone(), picks), refused))
    }
}
