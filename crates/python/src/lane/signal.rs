//! What a response of any client means: its status and headers, judged by the core.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyDict, PyList, PyTuple};
use tidegate_core::hint::{self, Hints};
use tidegate_core::signal::{Network, Signal};
use tidegate_core::{Code, Verdict, VerdictKind};

use super::live::LiveLane;
use crate::errors;

/// What an attempt meant, and the hints in its headers.
pub(crate) type JudgedAttempt = (Verdict, Hints);

/// A header name or value.
enum HeaderText {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl AsRef<[u8]> for HeaderText {
    fn as_ref(&self) -> &[u8] {
        match self {
            HeaderText::Text(text) => text.as_bytes(),
            HeaderText::Bytes(bytes) => bytes,
        }
    }
}

/// A call that got a response.
pub(crate) fn of_response(
    live: &LiveLane,
    status: u16,
    headers: Option<&Bound<'_, PyAny>>,
    content: Option<&[u8]>,
) -> PyResult<JudgedAttempt> {
    let settings = &live.settings;
    let clock = live.handle.clock();
    let headers = headers.map(pairs).transpose()?.unwrap_or_default();
    let finding = settings.profile.as_ref().zip(content).and_then(|(profile, content)| {
        let is_type =
            |(name, _): &&(HeaderText, HeaderText)| name.as_ref().eq_ignore_ascii_case(b"content-type");
        let kind = headers.iter().find(is_type).and_then(|(_, value)| str::from_utf8(value.as_ref()).ok());
        profile.sniff(status, kind, content)
    });
    let hints = if headers.is_empty() {
        Hints::default()
    } else {
        hint::read(headers.iter().map(|(name, value)| (name, value)), clock.wall(), &settings.hints)
    };
    let signal = Signal::Http { status, finding };
    Ok((settings.classifier.classify(&signal, &hints, clock.mono()), hints))
}

/// A call that got no response.
pub(crate) fn of_network(live: &LiveLane, how: Network) -> JudgedAttempt {
    let hints = Hints::default();
    (live.settings.classifier.classify(&Signal::Network(how), &hints, live.handle.clock().mono()), hints)
}

/// A failure with a code of its own, which a retry may fix.
pub(crate) fn transient(code: Code) -> JudgedAttempt {
    (Verdict { kind: VerdictKind::Transient { until: None }, code, status: None }, Hints::default())
}

/// The status of something that may be a response: `status_code`, or `status`.
pub(crate) fn status_of(value: &Bound<'_, PyAny>) -> Option<u16> {
    let py = value.py();
    for name in [intern!(py, "status_code"), intern!(py, "status")] {
        if let Ok(Some(status)) = value.getattr_opt(name)
            && let Ok(status) = status.extract::<u16>()
        {
            return (100..1000).contains(&status).then_some(status);
        }
    }
    None
}

/// Headers out of a mapping, or pairs of texts or bytes.
fn pairs(headers: &Bound<'_, PyAny>) -> PyResult<Vec<(HeaderText, HeaderText)>> {
    let py = headers.py();
    if let Ok(dict) = headers.cast::<PyDict>() {
        let pairs = dict.iter().filter_map(|(name, value)| Some((text(&name)?, text(&value)?)));
        return Ok(pairs.collect());
    }
    // urllib3 keeps them as lists of the name and its values, which its `items` takes apart in Python.
    if let Some(lists) = headers.getattr_opt(intern!(py, "_container"))?
        && let Ok(lists) = lists.cast::<PyDict>()
    {
        let mut out = Vec::with_capacity(lists.len());
        for (_, list) in lists.iter() {
            let Ok(list) = list.cast::<PyList>() else { continue };
            for value in list.iter().skip(1) {
                if let (Some(name), Some(value)) =
                    (list.get_item(0).ok().and_then(|name| text(&name)), text(&value))
                {
                    out.push((name, value));
                }
            }
        }
        return Ok(out);
    }
    // httpx keeps them as pairs of bytes.
    let all = match headers.getattr_opt(intern!(py, "raw"))? {
        Some(raw) => raw,
        None if headers.hasattr(intern!(py, "items"))? => headers.call_method0(intern!(py, "items"))?,
        None => headers.clone(),
    };
    let mut out = Vec::new();
    for pair in all.try_iter().map_err(|_| errors::invalid(py, "headers: expected a mapping, or pairs"))? {
        let pair = pair?;
        let Ok(pair) = pair.cast::<PyTuple>() else { continue };
        if let (Ok(name), Ok(value)) = (pair.get_item(0), pair.get_item(1))
            && let (Some(name), Some(value)) = (text(&name), text(&value))
        {
            out.push((name, value));
        }
    }
    Ok(out)
}

/// What is neither text nor bytes is no header.
fn text(value: &Bound<'_, PyAny>) -> Option<HeaderText> {
    match value.extract::<PyBackedStr>() {
        Ok(text) => Some(HeaderText::Text(text)),
        Err(_) => value.extract::<PyBackedBytes>().ok().map(HeaderText::Bytes),
    }
}
