//! Connections to Redis: from the URL, made on first use and again after they were lost.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, ScriptInvocation, ServerErrorKind, TlsCertificates,
};
use tokio::sync::Mutex;
use url::Url;

use crate::error::QueueError;
use crate::parameters::{credentials, host, only, parameter};

/// The time to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// The time for an answer, beyond the time that the server was asked to wait.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// One connection, which is made when it is needed.
pub(super) struct RedisLink {
    client: Client,
    config: AsyncConnectionConfig,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// Reads a URL such as `rediss://user:password@host:6379/geotasks?db=2&ca=ca.pem`.
pub(super) fn client(url: &Url) -> Result<Client, QueueError> {
    only(url, &["db", "ca"])?;
    let refused = |what: String| QueueError::Refused(what);
    let (host, port) = (host(url), url.port().unwrap_or(6379));
    let is_tls = url.scheme() == "rediss";
    let address = if is_tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let mut settings = RedisConnectionInfo::default();
    let (user, password) = credentials(url);
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    if let Some(db) = parameter(url, "db") {
        let db = db.parse().map_err(|_| refused("db in the URL of the queue is not a number".into()))?;
        settings = settings.set_db(db);
    }
    let info = address.into_connection_info().map_err(failed)?.set_redis_settings(settings);
    match parameter(url, "ca") {
        Some(_) if !is_tls => Err(refused("ca in the URL of the queue needs rediss://".into())),
        Some(path) => {
            let pem = std::fs::read(&path).map_err(|e| refused(format!("the certificate {path}: {e}")))?;
            let trusted = TlsCertificates { client_tls: None, root_cert: Some(pem) };
            Client::build_with_tls(info, trusted).map_err(failed)
        }
        None => Client::open(info).map_err(failed),
    }
}

impl RedisLink {
    /// A connection whose answers may take `wait` longer than usual.
    pub(super) fn new(client: Client, wait: Duration) -> RedisLink {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER + wait));
        RedisLink { client, config, connection: Mutex::new(None) }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, QueueError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        // The time of the crate does not include the first commands.
        let connect = self.client.get_multiplexed_async_connection_with_config(&self.config);
        let made = tokio::time::timeout(CONNECT + ANSWER, connect).await;
        let made = made.map_err(|_| QueueError::Unreachable("no connection in time".into()))?;
        Ok(connection.insert(made.map_err(failed)?).clone())
    }

    /// Notes whether the connection can still be used.
    async fn note<T>(&self, answer: Result<T, RedisError>) -> Result<T, RedisError> {
        if answer.as_ref().is_err_and(|error| error.is_io_error() || error.is_unrecoverable_error()) {
            *self.connection.lock().await = None;
        }
        answer
    }

    /// Runs a script.
    pub(super) async fn script<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, QueueError> {
        let mut connection = self.connection().await?;
        let answer = script.invoke_async(&mut connection).await;
        self.note(answer).await.map_err(failed)
    }

    /// Runs a command.
    pub(super) async fn command<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, QueueError> {
        let mut connection = self.connection().await?;
        let answer = command.query_async(&mut connection).await;
        self.note(answer).await.map_err(failed)
    }
}

/// What a failure of Redis means. The texts of the server do not repeat a password.
pub(super) fn failed(error: RedisError) -> QueueError {
    let text = error.to_string();
    let transient = match error.kind() {
        // A certificate that is not trusted will not be trusted later.
        ErrorKind::Io => !text.contains("certificate"),
        ErrorKind::Parse => true,
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::NoScript
        ),
        // A disk that is full, memory that is used up, a script that takes long.
        _ => matches!(error.code(), Some("MISCONF" | "OOM" | "BUSY" | "NOREPLICAS" | "UNBLOCKED")),
    };
    if transient { QueueError::Unreachable(text) } else { QueueError::Refused(text) }
}

/// Whether the group of the stream is gone, because somebody deleted the stream.
pub(super) fn is_group_missing(error: &QueueError) -> bool {
    matches!(error, QueueError::Refused(text) | QueueError::Unreachable(text) if text.contains("NOGROUP") || text.contains("UNBLOCKED"))
}
