//! Failures without a usable response, and the signal of each.

use super::allow::Forbidden;
use std::error::Error;
use std::{fmt, io};
use tidegate_core::Code;
use tidegate_core::signal::{Finding, Means, Network, Signal};

/// Why a connection could not be opened.
#[derive(Debug)]
pub(super) enum ConnectError {
    Timeout,
    Refused,
    Reset,
    Dns(String),
    Tls(String),
    Forbidden(Forbidden),
    Other(String),
}

impl ConnectError {
    pub(super) fn from_io(error: &io::Error) -> ConnectError {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::Refused,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => ConnectError::Reset,
            io::ErrorKind::TimedOut => ConnectError::Timeout,
            _ => ConnectError::Other(error.to_string()),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Timeout => f.write_str("connection timed out"),
            ConnectError::Refused => f.write_str("connection refused (is the service running?)"),
            ConnectError::Reset => f.write_str("connection reset"),
            ConnectError::Dns(why) => write!(f, "cannot resolve the host name: {why}"),
            ConnectError::Tls(why) => write!(f, "TLS error: {why}"),
            ConnectError::Forbidden(why) => write!(f, "{why}"),
            ConnectError::Other(why) => write!(f, "connection failed: {why}"),
        }
    }
}

impl Error for ConnectError {}

/// Why a request has no usable response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpFailure {
    /// A network error.
    Network(Network, String),
    /// The URL or the target of a redirect is not allowed. Nothing was sent there.
    Forbidden(Forbidden),
    /// A redirect that cannot be followed.
    Redirect(String),
    /// The response exceeds a limit of size or compression ratio.
    TooLarge(String),
    /// The response is not HTTP, or has an encoding that was not requested.
    Malformed(String),
}

impl HttpFailure {
    /// The failure as a signal for the classifier.
    #[must_use]
    pub fn signal(&self) -> Signal<'static> {
        let task = |means, code| Signal::Task(Finding { means, code });
        match self {
            HttpFailure::Network(network, _) => Signal::Network(*network),
            HttpFailure::Forbidden(_) => task(Means::Permanent, Code::HOST_NOT_ALLOWED),
            HttpFailure::Redirect(_) => task(Means::Permanent, Code::UNEXPECTED_REDIRECT),
            HttpFailure::TooLarge(_) => task(Means::Permanent, Code::PAYLOAD_TOO_LARGE),
            HttpFailure::Malformed(_) => task(Means::Transient, Code::UNEXPECTED_BODY),
        }
    }

    pub(super) fn of_send(error: &hyper::Error) -> HttpFailure {
        if error.is_parse() {
            return HttpFailure::Malformed(error.to_string());
        }
        HttpFailure::Network(Network::Reset, "the connection was closed before the response".into())
    }

    pub(super) fn of_connect(error: &ConnectError) -> HttpFailure {
        let network = match error {
            ConnectError::Forbidden(why) => return HttpFailure::Forbidden(why.clone()),
            ConnectError::Timeout => Network::Timeout,
            ConnectError::Refused | ConnectError::Other(_) => Network::Refused,
            ConnectError::Reset => Network::Reset,
            ConnectError::Dns(_) => Network::Dns,
            ConnectError::Tls(_) => Network::Tls,
        };
        HttpFailure::Network(network, error.to_string())
    }
}

impl From<Forbidden> for HttpFailure {
    fn from(why: Forbidden) -> HttpFailure {
        HttpFailure::Forbidden(why)
    }
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpFailure::Forbidden(why) => write!(f, "{why}"),
            HttpFailure::Network(_, why)
            | HttpFailure::Redirect(why)
            | HttpFailure::TooLarge(why)
            | HttpFailure::Malformed(why) => f.write_str(why),
        }
    }
}

impl Error for HttpFailure {}
