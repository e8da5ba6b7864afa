//! Requests out of Python arguments.

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use tidegate_client::http::Request;
use tidegate_client::profile::Profile;
use url::Url;

use super::settings::{LaneSettings, headers};
use crate::errors;

/// The arguments of one request.
pub(crate) struct RequestArguments<'a, 'py> {
    pub(crate) url: &'a str,
    pub(crate) params: Option<&'a Bound<'py, PyAny>>,
    pub(crate) headers: Option<&'a Bound<'py, PyAny>>,
    pub(crate) data: Option<&'a Bound<'py, PyAny>>,
    pub(crate) json: Option<&'a Bound<'py, PyAny>>,
}

/// A request through a lane.
pub(crate) fn request(
    py: Python<'_>,
    settings: &LaneSettings,
    method: Method,
    from: &RequestArguments<'_, '_>,
) -> PyResult<Request> {
    let mut url = address(py, settings.url.as_ref(), from.url)?;
    if let Some(params) = from.params {
        let pairs = if params.hasattr("items")? { params.call_method0("items")? } else { params.clone() };
        let mut query = url.query_pairs_mut();
        for pair in pairs.try_iter()? {
            let (name, value): (String, Bound<'_, PyAny>) = pair?.extract()?;
            if value.is_none() {
                continue;
            }
            if let Ok(text) = value.cast::<PyString>() {
                query.append_pair(&name, text.to_str()?);
            } else if value.hasattr("__iter__")? {
                for one in value.try_iter()? {
                    query.append_pair(&name, one?.str()?.to_str()?);
                }
            } else {
                query.append_pair(&name, value.str()?.to_str()?);
            }
        }
    }
    let (body, kind) = body(py, from)?;
    let mut request = Request::new(method, url, body);
    request.headers.clone_from(&settings.headers);
    if let Some(kind) = kind {
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    if let Some(given) = from.headers {
        for (name, value) in &headers(py, given)? {
            request.headers.insert(name, value.clone());
        }
    }
    request.credentials.clone_from(&settings.credentials);
    if let Some(header) = settings.profile.as_ref().and_then(Profile::idempotency_header) {
        request.identify(&header);
    }
    Ok(request)
}

fn address(py: Python<'_>, base: Option<&Url>, text: &str) -> PyResult<Url> {
    let bad = |why: url::ParseError| errors::invalid(py, format!("invalid URL {text:?}: {why}"));
    // A URL inside a query does not make the whole one absolute.
    let has_scheme = text.split_once("://").is_some_and(|(scheme, _)| !scheme.contains(['/', '?', '#']));
    let Some(base) = base.filter(|_| !has_scheme) else { return Url::parse(text).map_err(bad) };
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    let mut url = base.clone();
    if !path.is_empty() {
        url.set_path(&format!("{}/{}", base.path().trim_end_matches('/'), path.trim_start_matches('/')));
        url.set_query(None);
    }
    if query.is_some() {
        url.set_query(query);
    }
    Ok(url)
}

fn body(py: Python<'_>, from: &RequestArguments<'_, '_>) -> PyResult<(Bytes, Option<&'static str>)> {
    match (from.data, from.json) {
        (Some(_), Some(_)) => Err(errors::invalid(py, "give either data or json, not both")),
        (None, None) => Ok((Bytes::new(), None)),
        (None, Some(json)) => {
            let text: String = py.import("json")?.call_method1("dumps", (json,))?.extract()?;
            Ok((Bytes::from(text), Some("application/json")))
        }
        (Some(data), None) => {
            if let Ok(bytes) = data.cast::<PyBytes>() {
                Ok((Bytes::copy_from_slice(bytes.as_bytes()), None))
            } else if data.is_instance_of::<PyDict>() {
                let text = py.import("urllib.parse")?.call_method1("urlencode", (data, true))?;
                Ok((Bytes::from(text.extract::<String>()?), Some("application/x-www-form-urlencoded")))
            } else {
                let text: String = data
                    .extract()
                    .map_err(|_| errors::invalid(py, "data takes bytes, a text, or a dict of form fields"))?;
                Ok((Bytes::from(text), None))
            }
        }
    }
}
