//! The connection to NATS: from the URL; the client connects again by itself.

use std::fmt::Display;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{Context, Error as Refusal};
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use url::Url;

use crate::error::QueueError;
use crate::parameters::{credentials, only, parameter};

/// The time to connect, and for each answer.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// How long an operation waits while the client connects again.
const RECONNECT: Duration = Duration::from_secs(2);

/// Reads a URL such as `tls+nats://user:password@host:4222/geotasks?ca=ca.pem` and connects.
pub(super) async fn connect(url: &Url, name: &str) -> Result<Client, QueueError> {
    only(url, &["ca", "cert", "creds", "key", "replicas", "sync"])?;
    let refused = |what: String| Err(QueueError::Refused(what));
    let is_tls = url.scheme() == "tls+nats";
    let mut options = ConnectOptions::new()
        .name(name)
        .connection_timeout(ANSWER)
        .request_timeout(Some(ANSWER))
        .require_tls(is_tls)
        .reconnect_delay_callback(|attempts| {
            Duration::from_millis(50 << attempts.min(5)).min(Duration::from_secs(1))
        });
    for name in ["ca", "cert", "creds", "key"] {
        if let Some(path) = parameter(url, name)
            && let Err(e) = std::fs::metadata(&path)
        {
            return refused(format!("{name}={path} in the URL of the queue: {e}"));
        }
    }
    options = match credentials(url) {
        (Some(user), Some(password)) => options.user_and_password(user, password),
        (Some(token), None) => options.token(token),
        _ => options,
    };
    if let Some(path) = parameter(url, "creds") {
        let read = options.credentials_file(&path).await;
        options = read.map_err(|e| QueueError::Refused(format!("the credentials {path}: {e}")))?;
    }
    if let Some(path) = parameter(url, "ca") {
        options = options.add_root_certificates(path.into());
    }
    options = match (parameter(url, "cert"), parameter(url, "key")) {
        (Some(cert), Some(key)) => options.add_client_certificate(cert.into(), key.into()),
        (None, None) => options,
        _ => return refused("cert and key in the URL of the queue belong together".into()),
    };
    // Without the user and the password: the address is part of messages of the client.
    let scheme = if is_tls { "tls" } else { "nats" };
    let host = url.host_str().unwrap_or("localhost");
    let address = format!("{scheme}://{host}:{}", url.port().unwrap_or(4222));
    let connected = tokio::time::timeout(ANSWER + ANSWER, options.connect(address)).await;
    let connected = connected.map_err(|_| QueueError::Unreachable("no connection in time".into()))?;
    connected.map_err(|error| {
        let text = described(&error);
        let is_certificate = text.to_lowercase().contains("certificate");
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation
            | ConnectErrorKind::Authentication
            | ConnectErrorKind::ServerParse
            | ConnectErrorKind::Tls => QueueError::Refused(text),
            _ if is_certificate => QueueError::Refused(text),
            _ => QueueError::Unreachable(text),
        }
    })
}

/// JetStream over a connection.
pub(super) fn jetstream(client: Client) -> Context {
    ContextBuilder::new().timeout(ANSWER).ack_timeout(ANSWER).build(client)
}

/// Waits for the connection. Why not send at once: the client keeps what is sent while it is not
/// connected and sends it later, when a lease may have ended.
pub(super) async fn connected(client: &Client) -> Result<(), QueueError> {
    let wait = async {
        while client.connection_state() != State::Connected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(RECONNECT, wait)
        .await
        .map_err(|_| QueueError::Unreachable("the connection to NATS is lost".into()))
}

/// An error with its causes.
pub(super) fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// It may work later.
pub(super) fn later(error: impl Display) -> QueueError {
    QueueError::Unreachable(error.to_string())
}

/// What a refusal of JetStream means: 500 and 503 pass, others stay.
pub(super) fn refusal(what: &str, error: &Refusal) -> QueueError {
    let text = format!("{what}: {error}");
    if error.code() >= 500 { QueueError::Unreachable(text) } else { QueueError::Refused(text) }
}
