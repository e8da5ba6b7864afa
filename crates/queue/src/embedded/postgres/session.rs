//! A connection that many calls share, and that is made again when it was lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use tidegate_ledger::bounded::{BoundedConfig, no_reply, tls_failure};
use tokio::sync::Mutex;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::error::QueueError;

/// The longest wait for a reply. The server ends a statement a little earlier, so that it does not
/// go on when nobody waits any more.
const REPLY: Duration = Duration::from_secs(30);
const STATEMENT: Duration = Duration::from_secs(25);

/// The parameters of a statement.
pub(super) type SqlParams<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection and its prepared statements.
struct Session {
    client: Client,
    prepared: SyncMutex<HashMap<&'static str, Statement>>,
}

/// A place to connect to, and the connection to it.
pub(super) struct PostgresLink {
    config: BoundedConfig,
    session: Mutex<Option<Arc<Session>>>,
}

impl PostgresLink {
    /// A connection with these settings of the server.
    pub(super) fn new(config: &BoundedConfig, settings: &str) -> PostgresLink {
        let mut config = config.clone();
        config.reply_timeout = config.reply_timeout.min(REPLY);
        let end = STATEMENT.min(config.reply_timeout).as_millis();
        // The statements are made for the indexes; a table without statistics leads the planner astray.
        let options = format!(
            "-c client_min_messages=warning -c statement_timeout={end} -c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off -c jit=off -c plan_cache_mode=force_custom_plan -c idle_in_transaction_session_timeout=60000 {settings} {}",
            config.config.get_options().unwrap_or_default()
        );
        config.config.options(options.trim_end());
        if config.config.get_application_name().is_none() {
            config.config.application_name("tidegate queue");
        }
        PostgresLink { config, session: Mutex::new(None) }
    }

    async fn session(&self) -> Result<Arc<Session>, QueueError> {
        let mut held = self.session.lock().await;
        if let Some(session) = held.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(session.clone());
        }
        let (client, connection) =
            self.config.connect_async().await.map_err(|e| self.could_not_connect(&e))?;
        tokio::spawn(connection);
        let session = Arc::new(Session { client, prepared: SyncMutex::default() });
        *held = Some(session.clone());
        Ok(session)
    }

    /// Runs a call on the connection, and waits for its end or for the end of our patience.
    async fn bounded<T>(
        &self,
        call: impl AsyncFnOnce(&Session) -> Result<T, Error>,
    ) -> Result<T, QueueError> {
        let session = self.session().await?;
        match tokio::time::timeout(self.config.reply_timeout, call(&session)).await {
            Ok(replied) => replied.map_err(|e| failed(&e)),
            Err(_) => {
                let mut held = self.session.lock().await;
                // A late reply does no harm, but the next call had better not wait behind it.
                if held.as_ref().is_some_and(|current| Arc::ptr_eq(current, &session)) {
                    *held = None;
                }
                Err(QueueError::Unreachable("no reply from the database in time".into()))
            }
        }
    }

    /// Runs a query.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: SqlParams<'_>,
    ) -> Result<Vec<Row>, QueueError> {
        self.bounded(async |session| session.query(sql, params).await).await
    }

    /// Runs a statement and a query in one round trip; returns the rows of the query.
    pub(super) async fn query_after(
        &self,
        (first, first_params): (&'static str, SqlParams<'_>),
        (second, params): (&'static str, SqlParams<'_>),
    ) -> Result<Vec<Row>, QueueError> {
        self.bounded(async |session| {
            let (before, rows) =
                tokio::join!(session.execute(first, first_params), session.query(second, params));
            before.and(rows)
        })
        .await
    }

    /// Runs a statement; returns the number of rows.
    pub(super) async fn execute(&self, sql: &'static str, params: SqlParams<'_>) -> Result<u64, QueueError> {
        self.bounded(async |session| session.execute(sql, params).await).await
    }

    /// Runs statements without parameters, in one transaction.
    pub(super) async fn run(&self, sql: &str) -> Result<(), QueueError> {
        self.bounded(async |session| session.client.batch_execute(sql).await).await
    }

    /// Why there is no connection. The error of a client contains no password.
    fn could_not_connect(&self, e: &Error) -> QueueError {
        if e.as_db_error().is_some() {
            return match failed(e) {
                QueueError::Refused(what) => QueueError::Refused(format!("{what}{}", self.config.advice(e))),
                other => other,
            };
        }
        match tls_failure(e) {
            Some(why) => QueueError::Refused(why),
            None => failed(e),
        }
    }
}

impl Session {
    async fn prepared(&self, sql: &'static str) -> Result<Statement, Error> {
        let known = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).insert(sql, statement.clone());
        Ok(statement)
    }

    async fn query(&self, sql: &'static str, params: SqlParams<'_>) -> Result<Vec<Row>, Error> {
        self.client.query(&self.prepared(sql).await?, params).await
    }

    async fn execute(&self, sql: &'static str, params: SqlParams<'_>) -> Result<u64, Error> {
        self.client.execute(&self.prepared(sql).await?, params).await
    }
}

/// Classifies an error of the database.
fn failed(e: &Error) -> QueueError {
    let Some(db) = e.as_db_error() else {
        if no_reply(e) {
            return QueueError::Unreachable("no reply from the database in time".into());
        }
        let cause = std::error::Error::source(e).map_or_else(|| e.to_string(), ToString::to_string);
        return QueueError::Unreachable(format!("{cause} (is the database running?)"));
    };
    // A server may quote the password that it was sent.
    let message = format!("{} ({})", tidegate_client::secret::mask(db.message()), db.code().code());
    match db.code().code().get(..2) {
        // Connection, deadlock, lock, resources, shutdown, input and output.
        Some("08" | "40" | "53" | "55" | "57" | "58") => QueueError::Unreachable(message),
        _ => QueueError::Refused(message),
    }
}
