//! The exceptions of Python's HTTP clients, as signals.
//!
//! They are recognised by the names of their classes and packages, so that none of the packages is
//! imported. What they mean is decided by the core, like any other signal; an exception that is not
//! listed here is no outcome of a call, and is left alone.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use tidegate_core::Code;
use tidegate_core::signal::Network;

use super::live::LiveLane;
use super::signal::{self, JudgedAttempt, status_of};

/// How deep causes are followed.
const DEPTH_MAX: usize = 8;

/// A failure without a response.
#[derive(Clone, Copy)]
enum ExceptionKind {
    Network(Network),
    /// The status is in the exception.
    Status,
    /// What it is was told by its cause; a lost connection without one.
    Cause,
}

use ExceptionKind::{Cause, Network as Net, Status};

/// Packages, classes, and what these mean. A class is looked for before its bases.
const CLASSES: &[(&str, &str, ExceptionKind)] = &[
    ("requests", "ConnectTimeout", Net(Network::Timeout)),
    ("requests", "Timeout", Net(Network::Timeout)),
    ("requests", "SSLError", Net(Network::Tls)),
    ("requests", "ChunkedEncodingError", Net(Network::Truncated)),
    ("requests", "ContentDecodingError", Net(Network::Truncated)),
    ("requests", "ConnectionError", Cause),
    ("requests", "RetryError", Cause),
    ("requests", "HTTPError", Status),
    ("urllib3", "TimeoutError", Net(Network::Timeout)),
    ("urllib3", "NameResolutionError", Net(Network::Dns)),
    ("urllib3", "SSLError", Net(Network::Tls)),
    ("urllib3", "IncompleteRead", Net(Network::Truncated)),
    ("urllib3", "InvalidChunkLength", Net(Network::Truncated)),
    ("urllib3", "NewConnectionError", Net(Network::Refused)),
    ("urllib3", "MaxRetryError", Cause),
    ("urllib3", "ProtocolError", Cause),
    ("urllib3", "HTTPError", Cause),
    ("httpx", "TimeoutException", Net(Network::Timeout)),
    ("httpx", "ConnectError", Cause),
    ("httpx", "RemoteProtocolError", Net(Network::Truncated)),
    ("httpx", "DecodingError", Net(Network::Truncated)),
    ("httpx", "NetworkError", Net(Network::Reset)),
    ("httpx", "ProxyError", Net(Network::Refused)),
    ("httpx", "HTTPStatusError", Status),
    ("httpcore", "TimeoutException", Net(Network::Timeout)),
    ("httpcore", "ConnectError", Cause),
    ("httpcore", "RemoteProtocolError", Net(Network::Truncated)),
    ("httpcore", "NetworkError", Net(Network::Reset)),
    ("aiohttp", "ServerTimeoutError", Net(Network::Timeout)),
    ("aiohttp", "ClientConnectorDNSError", Net(Network::Dns)),
    ("aiohttp", "ClientSSLError", Net(Network::Tls)),
    ("aiohttp", "ClientConnectorError", Cause),
    ("aiohttp", "ServerDisconnectedError", Net(Network::Reset)),
    ("aiohttp", "ClientPayloadError", Net(Network::Truncated)),
    ("aiohttp", "ClientResponseError", Status),
    ("aiohttp", "ClientConnectionError", Net(Network::Reset)),
    ("botocore", "ConnectTimeoutError", Net(Network::Timeout)),
    ("botocore", "ReadTimeoutError", Net(Network::Timeout)),
    ("botocore", "SSLError", Net(Network::Tls)),
    ("botocore", "EndpointConnectionError", Net(Network::Refused)),
    ("botocore", "ConnectionClosedError", Net(Network::Reset)),
    ("botocore", "IncompleteReadError", Net(Network::Truncated)),
    ("botocore", "ResponseStreamingError", Net(Network::Truncated)),
    ("botocore", "HTTPClientError", Cause),
    ("botocore", "ClientError", Status),
    ("rasterio", "RasterioIOError", Status),
    ("rasterio", "RasterBlockError", Status),
    ("geopy", "GeocoderRateLimited", Status),
    ("geopy", "GeocoderQuotaExceeded", Status),
    ("geopy", "GeocoderTimedOut", Net(Network::Timeout)),
    ("geopy", "GeocoderUnavailable", Cause),
    ("geopy", "GeocoderServiceError", Status),
    ("urllib", "HTTPError", Status),
    ("urllib", "URLError", Cause),
    ("http", "IncompleteRead", Net(Network::Truncated)),
    ("http", "RemoteDisconnected", Net(Network::Reset)),
    ("socket", "gaierror", Net(Network::Dns)),
    ("ssl", "SSLError", Net(Network::Tls)),
    ("builtins", "TimeoutError", Net(Network::Timeout)),
    ("builtins", "ConnectionRefusedError", Net(Network::Refused)),
    ("builtins", "ConnectionError", Net(Network::Reset)),
];

/// What an exception means for the lane; `None` if it is no outcome of a call.
pub(crate) fn judge(live: &LiveLane, error: &Bound<'_, PyAny>) -> PyResult<Option<JudgedAttempt>> {
    let mut error = error.clone();
    let mut fallback = None;
    for _ in 0..DEPTH_MAX {
        let Some((package, kind)) = kind_of(&error)? else { break };
        match kind {
            Net(network) => return Ok(Some(signal::of_network(live, network))),
            Status => {
                if let Some(judged) = by_status(live, &package, &error)? {
                    return Ok(Some(judged));
                }
                return Ok(fallback.or(by_words(live, &package, &error)?));
            }
            Cause => {
                fallback = Some(signal::of_network(live, Network::Reset));
                match cause(&error)? {
                    Some(cause) => error = cause,
                    None => break,
                }
            }
        }
    }
    Ok(fallback)
}

/// The package of an exception and its kind, by its class or the nearest of its bases.
fn kind_of(error: &Bound<'_, PyAny>) -> PyResult<Option<(String, ExceptionKind)>> {
    let py = error.py();
    for class in error.get_type().mro() {
        let Ok(class) = class.cast_into::<PyType>() else { continue };
        let Ok(module) = class.getattr(intern!(py, "__module__")).and_then(|m| m.extract::<String>()) else {
            continue;
        };
        let package = module.split('.').next().unwrap_or_default();
        // The fork of httpx has the same classes.
        let package =
            package.strip_suffix('2').filter(|of| matches!(*of, "httpx" | "httpcore")).unwrap_or(package);
        let name = class.name()?;
        let name = name.to_str()?;
        if let Some((package, _, kind)) = CLASSES.iter().find(|(p, n, _)| *p == package && *n == name) {
            return Ok(Some(((*package).to_owned(), *kind)));
        }
        // An operating system error says by its number what it is.
        if package == "builtins" && name == "OSError" {
            break;
        }
    }
    Ok(None)
}

/// The exception behind an exception: an attribute, the first argument, or the cause.
fn cause<'py>(error: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = error.py();
    let is_exception =
        |value: &Bound<'py, PyAny>| value.is_instance_of::<pyo3::exceptions::PyBaseException>();
    for name in ["reason", "os_error", "__cause__", "__context__"] {
        if let Some(value) = error.getattr_opt(name)?
            && is_exception(&value)
        {
            return Ok(Some(value));
        }
    }
    let arguments = error.getattr(intern!(py, "args"))?;
    for argument in arguments.try_iter()? {
        let argument = argument?;
        if is_exception(&argument) {
            return Ok(Some(argument));
        }
    }
    Ok(None)
}

/// By the status of the response that an exception carries.
fn by_status(live: &LiveLane, package: &str, error: &Bound<'_, PyAny>) -> PyResult<Option<JudgedAttempt>> {
    let py = error.py();
    let response = error.getattr_opt(intern!(py, "response"))?.filter(|response| !response.is_none());
    if package == "botocore" {
        let Some(response) = response.and_then(|r| r.cast_into::<PyDict>().ok()) else { return Ok(None) };
        let Some(about) =
            response.get_item("ResponseMetadata")?.and_then(|about| about.cast_into::<PyDict>().ok())
        else {
            return Ok(None);
        };
        let status = about.get_item("HTTPStatusCode")?.and_then(|status| status.extract::<u16>().ok());
        let headers = about.get_item("HTTPHeaders")?;
        let Some(status) = status.filter(|status| *status >= 100) else { return Ok(None) };
        // Amazon's services throttle with other statuses too, and say so in a word.
        let word = response.get_item("Error")?.and_then(|error| error.get_item("Code").ok());
        let word = word.and_then(|word| word.extract::<String>().ok()).unwrap_or_default();
        let throttled = word.starts_with("Throttl")
            || matches!(
                word.as_str(),
                "SlowDown"
                    | "TooManyRequests"
                    | "RequestLimitExceeded"
                    | "BandwidthLimitExceeded"
                    | "ProvisionedThroughputExceededException"
                    | "TooManyRequestsException"
            );
        let status = if throttled { 429 } else { status };
        return signal::of_response(live, status, headers.as_ref(), None).map(Some);
    }
    if let Some(response) = &response
        && let Some(status) = status_of(response)
    {
        let headers = response.getattr_opt(intern!(py, "headers"))?;
        return signal::of_response(live, status, headers.as_ref(), None).map(Some);
    }
    let own = status_of(error).or_else(|| {
        let code = error.getattr_opt(intern!(py, "code")).ok().flatten()?.extract::<u16>().ok()?;
        (100..1000).contains(&code).then_some(code)
    });
    if let Some(status) = own {
        let headers = error.getattr_opt(intern!(py, "headers"))?.filter(|headers| !headers.is_none());
        return signal::of_response(live, status, headers.as_ref(), None).map(Some);
    }
    // geopy chains the error of its adapter, which has the status.
    if package == "geopy"
        && let Some(inner) = cause(error)?
        && let Some(status) = status_of(&inner)
    {
        let headers = inner.getattr_opt(intern!(py, "headers"))?.filter(|headers| !headers.is_none());
        return signal::of_response(live, status, headers.as_ref(), None).map(Some);
    }
    Ok(None)
}

/// By the words of an exception that carries no response.
fn by_words(live: &LiveLane, package: &str, error: &Bound<'_, PyAny>) -> PyResult<Option<JudgedAttempt>> {
    let said = error.str()?.to_string();
    match package {
        "rasterio" => {
            // GDAL: "HTTP response code: 503".
            let behind = said.split_once("HTTP response code: ").map(|(_, behind)| behind);
            let digits =
                behind.map(|behind| behind.chars().take_while(char::is_ascii_digit).collect::<String>());
            if let Some(status) = digits.and_then(|digits| digits.parse::<u16>().ok()).filter(|s| *s >= 100) {
                return signal::of_response(live, status, None, None).map(Some);
            }
            let local = ["No such file", "not recognized as", "does not exist in the file system"];
            let is_local = local.iter().any(|words| said.contains(words));
            Ok((!is_local).then(|| signal::transient(Code::UNKNOWN)))
        }
        "geopy" => {
            let class = error.get_type().name()?.to_string();
            let status = match class.as_str() {
                "GeocoderRateLimited" => Some(429),
                "GeocoderQuotaExceeded" => Some(402),
                _ => None,
            };
            match status {
                Some(status) => signal::of_response(live, status, None, None).map(Some),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}
