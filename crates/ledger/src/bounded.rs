//! A connection to PostgreSQL on which no wait is endless.
//!
//! A server that hangs, or a network that swallows a reply, would hold a caller for ever: TCP has
//! acknowledged everything. So every call has a bound, `reply_timeout` in the URL. A connection
//! whose reply did not come is closed, because a late reply would be taken for the next one. What
//! became of the statement is then asked over a new connection.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use futures_util::future::BoxFuture;
use postgres::types::ToSql;
use postgres::{Error, Row, Statement, ToStatement};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};

pub use tidegate_client::postgres_tls::tls_failure;
use tidegate_client::postgres_tls::{self as tls, PostgresTls, TlsSettings, take_pairs};

/// The name of the bound in a database URL, in seconds.
pub const REPLY_TIMEOUT: &str = "reply_timeout";

/// The longest wait for a reply, unless the URL says otherwise.
const REPLY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// The longest wait for the server to see that we are leaving, or that it need not go on.
const GOODBYE: Duration = Duration::from_secs(2);

/// Where a database is, and how long a reply may take.
#[derive(Clone, Debug)]
pub struct BoundedConfig {
    /// The settings of the connection.
    pub config: Config,
    /// The longest wait for the reply to one statement.
    pub reply_timeout: Duration,
    /// What TLS asks of the server, and what it shows to it.
    pub tls: TlsSettings,
}

impl BoundedConfig {
    /// Reads a URL or a connection string. The error quotes nothing, because the text may contain a
    /// password.
    ///
    /// # Errors
    /// When it is neither, or the bound is not a number of seconds.
    pub fn parse(text: &str) -> Result<BoundedConfig, String> {
        let (text, own) = take_pairs(text, |name| name == REPLY_TIMEOUT || tls::NAMES.contains(&name));
        let reply_timeout = reply_timeout(&own)?;
        // Where there is no query, nothing was taken out: a setting of ours would be lost.
        let lost = !text.contains("://") && tls::NAMES.iter().any(|name| text.contains(&format!("{name}=")));
        let mut config: Config = text.parse().ok().filter(|_| !lost).ok_or_else(|| invalid(&text))?;
        let tls = TlsSettings::read(&own, &mut config)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        config.keepalives_idle(Duration::from_secs(30)).keepalives_interval(Duration::from_secs(10));
        config.keepalives_retries(3);
        Ok(BoundedConfig { config, reply_timeout, tls })
    }

    /// Connects.
    ///
    /// # Errors
    /// The error of the connection, or that it took too long.
    pub fn connect(&self) -> Result<BoundedClient, Error> {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
            return Err(Error::__private_api_timeout());
        };
        let tls::PostgresConnection { client, connection, tls } = runtime.block_on(self.open())?;
        let connection = runtime.spawn(async move { drop(connection.await) });
        let open = Some(OpenConnection { runtime, client, connection });
        Ok(BoundedClient { open, reply_timeout: self.reply_timeout, tls })
    }

    /// Connects, for a caller with a runtime of its own. The future drives the connection: spawn it. The
    /// calls of this client have no bound; the caller sets one.
    ///
    /// # Errors
    /// The error of the connection, or that it took too long.
    pub async fn connect_async(&self) -> Result<(Client, BoxFuture<'static, ()>), Error> {
        let tls::PostgresConnection { client, connection, .. } = self.open().await?;
        Ok((client, Box::pin(async move { drop(connection.await) })))
    }

    async fn open(&self) -> Result<tls::PostgresConnection, Error> {
        let connected = tokio::time::timeout(self.reply_timeout, tls::connect(&self.config, &self.tls)).await;
        connected.unwrap_or_else(|_| Err(Error::__private_api_timeout()))
    }
}

impl BoundedConfig {
    /// What to change in the settings of TLS after the server has refused the connection, as the
    /// end of a sentence; may be empty.
    #[must_use]
    pub fn advice(&self, error: &Error) -> &'static str {
        self.tls.advice(error)
    }
}

/// Whether an error says that no reply came in time.
#[must_use]
pub fn no_reply(error: &Error) -> bool {
    // The kind of an error is private.
    error.to_string() == Error::__private_api_timeout().to_string()
}

/// Why a text is no place of a database. It may contain a password.
fn invalid(text: &str) -> String {
    let named = tls::NAMES.iter().any(|name| text.contains(&format!("{name}=")));
    let form = "postgres://user@host/database";
    if named && !text.contains("://") {
        return format!("TLS is set in a URL: {form}?sslmode=verify-full&sslrootcert=FILE");
    }
    format!("invalid database URL; expected {form}")
}

fn reply_timeout(pairs: &[(String, String)]) -> Result<Duration, String> {
    let Some((_, seconds)) = pairs.iter().rev().find(|(name, _)| name == REPLY_TIMEOUT) else {
        return Ok(REPLY_TIMEOUT_DEFAULT);
    };
    let seconds = seconds.parse::<u32>().ok().filter(|seconds| (1..=86_400).contains(seconds));
    let invalid = || format!("invalid {REPLY_TIMEOUT} in the database URL; expected 1 to 86400 seconds");
    seconds.map(|seconds| Duration::from_secs(seconds.into())).ok_or_else(invalid)
}

/// A connection whose calls end.
pub struct BoundedClient {
    /// None once a reply did not come.
    open: Option<OpenConnection>,
    reply_timeout: Duration,
    tls: PostgresTls,
}

struct OpenConnection {
    runtime: Runtime,
    client: Client,
    connection: JoinHandle<()>,
}

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl BoundedClient {
    /// What the connection uses, and why: TLS, the check of the certificate, the password.
    #[must_use]
    pub fn security(&self) -> String {
        self.tls.used()
    }

    /// Whether anybody between here and another machine may read or change what is sent.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.tls.is_exposed()
    }

    /// Whether a new connection is needed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.client.is_closed())
    }

    /// Runs a call and waits for its end, or for the end of our patience.
    fn bounded<T>(&mut self, call: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Result<T, Error> {
        let Some(open) = &self.open else { return Err(Error::__private_api_timeout()) };
        let (client, wait) = (&open.client, self.reply_timeout);
        if let Ok(replied) = wait_for(&open.runtime, wait, call(client)) {
            return replied;
        }
        // The statement may still run and hold locks.
        let cancel = client.cancel_token();
        let _ = wait_for(&open.runtime, GOODBYE, cancel.cancel_query(self.tls.clone()));
        if let Some(open) = self.open.take() {
            open.runtime.shutdown_background();
        }
        Err(Error::__private_api_timeout())
    }

    /// Runs statements without parameters.
    ///
    /// # Errors
    /// That of the database, or that no reply came.
    pub fn batch_execute(&mut self, sql: &str) -> Result<(), Error> {
        self.bounded(async |client| client.batch_execute(sql).await)
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// See [`BoundedClient::batch_execute`].
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        self.bounded(async |client| client.prepare(sql).await)
    }

    /// Runs a statement; returns the number of rows.
    ///
    /// # Errors
    /// See [`BoundedClient::batch_execute`].
    pub fn execute<S: ?Sized + ToStatement>(&mut self, sql: &S, params: Params<'_>) -> Result<u64, Error> {
        self.bounded(async |client| client.execute(sql, params).await)
    }

    /// Runs a query.
    ///
    /// # Errors
    /// See [`BoundedClient::batch_execute`].
    pub fn query<S: ?Sized + ToStatement>(&mut self, sql: &S, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.bounded(async |client| client.query(sql, params).await)
    }

    /// Runs a query for one row.
    ///
    /// # Errors
    /// See [`BoundedClient::batch_execute`]; also another number of rows.
    pub fn query_one<S: ?Sized + ToStatement>(&mut self, sql: &S, params: Params<'_>) -> Result<Row, Error> {
        self.bounded(async |client| client.query_one(sql, params).await)
    }

    /// Runs a query for at most one row.
    ///
    /// # Errors
    /// See [`BoundedClient::batch_execute`]; also more than one row.
    pub fn query_opt<S: ?Sized + ToStatement>(
        &mut self,
        sql: &S,
        params: Params<'_>,
    ) -> Result<Option<Row>, Error> {
        self.bounded(async |client| client.query_opt(sql, params).await)
    }

    /// Copies text into a table with `COPY … FROM STDIN`; returns the number of rows.
    ///
    /// # Errors
    /// See [`BoundedClient::batch_execute`].
    pub fn copy_in(&mut self, sql: &str, text: &str) -> Result<u64, Error> {
        self.bounded(async |client| {
            let mut sink = Box::pin(client.copy_in::<_, Bytes>(sql).await?);
            for piece in text.as_bytes().chunks(1 << 16) {
                // An error shows at the end, with its cause.
                if sink.send(Bytes::copy_from_slice(piece)).await.is_err() {
                    break;
                }
            }
            sink.as_mut().finish().await
        })
    }
}

fn wait_for<T>(runtime: &Runtime, wait: Duration, call: impl Future<Output = T>) -> Result<T, ()> {
    runtime.block_on(async { tokio::time::timeout(wait, call).await }).map_err(drop)
}

impl Drop for BoundedClient {
    fn drop(&mut self) {
        let Some(OpenConnection { runtime, client, connection }) = self.open.take() else { return };
        // The connection ends with its client, with a word to the server.
        drop(client);
        let _ = wait_for(&runtime, GOODBYE, connection);
        runtime.shutdown_background();
    }
}
