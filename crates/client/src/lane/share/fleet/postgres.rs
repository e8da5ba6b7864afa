//! PostgreSQL: a row with an expiry for the lease, `NOTIFY` for messages.
//!
//! A notification is not stored and costs no write to disk. It reaches only who listens on a connection of its
//! own, so the URL must not be that of a pooler that hands connections to others after each transaction.

use super::address::ServerAddress;
use super::backend::{FleetBackend, KnownLane, LaneClaim, LeaseKey};
use super::{CHECKPOINT_KEPT, LEASE};
use crate::postgres_tls::{NAMES, PostgresConnection, TlsSettings, take_pairs, tls_failure};
use crate::secret::mask;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use std::error::Error as _;
use std::io;
use tokio::sync::mpsc;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Error};

/// The lock held while the table is created.
const LOCK: i64 = 0x6c61_6e65_7469_6465;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS tidegate_lanes (
    lane text PRIMARY KEY, owner text NOT NULL, epoch bigint NOT NULL,
    held_until timestamptz NOT NULL, checkpoint text, checkpoint_at timestamptz)";

/// A lane whose lease has ended goes to who asks. The epoch is at least the time, as in Redis.
const CLAIM: &str = "INSERT INTO tidegate_lanes AS l (lane, owner, epoch, held_until)
    VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
            clock_timestamp() + $3 * interval '1 second')
    ON CONFLICT (lane) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until,
        epoch = greatest(l.epoch + 1, excluded.epoch)
    WHERE l.held_until < clock_timestamp()
    RETURNING owner, epoch, checkpoint, checkpoint_at > clock_timestamp() - $4 * interval '1 second'";

const FIND: &str = "SELECT owner, epoch FROM tidegate_lanes WHERE lane = $1";

const RENEW: &str = "UPDATE tidegate_lanes SET held_until = clock_timestamp() + $4 * interval '1 second',
        checkpoint = coalesce($5, checkpoint),
        checkpoint_at = CASE WHEN $5 IS NULL THEN checkpoint_at ELSE clock_timestamp() END
    WHERE lane = $1 AND owner = $2 AND epoch = $3 AND held_until >= clock_timestamp()";

const RESIGN: &str = "UPDATE tidegate_lanes SET held_until = '-infinity'
    WHERE lane = $1 AND owner = $2 AND epoch = $3";

const LIST: &str = "SELECT lane, held_until >= clock_timestamp(),
        CASE WHEN checkpoint_at > clock_timestamp() - $1 * interval '1 second' THEN checkpoint END
    FROM tidegate_lanes";

const FORGET: &str = "UPDATE tidegate_lanes SET checkpoint = NULL, checkpoint_at = NULL WHERE lane = $1";

struct PostgresBackend {
    client: Client,
}

pub(super) async fn connect(
    address: &ServerAddress,
    inbox: &str,
    to: mpsc::Sender<String>,
) -> io::Result<Box<dyn FleetBackend>> {
    // Bounds of other uses of the same URL.
    let is_own = |name: &str| name == "reply_timeout" || NAMES.contains(&name);
    let (text, pairs) = take_pairs(address.url.reveal(), is_own);
    let invalid = || io::Error::other("invalid database URL; expected postgres://user@host/database");
    let mut config: Config = text.parse().map_err(|_| invalid())?;
    let tls = TlsSettings::read(&pairs, &mut config).map_err(io::Error::other)?;
    config.application_name("tidegate lanes");
    let client = open(&config, &tls, &to).await;
    let client = client.map_err(|why| {
        let advice = tls.advice(&why);
        io::Error::other(format!("{}{advice}", failed(&why)))
    })?;
    prepare(&client).await.map_err(|why| failed(&why))?;
    let listen = format!("LISTEN {}", channel(inbox));
    client.batch_execute(&listen).await.map_err(|why| failed(&why))?;
    Ok(Box::new(PostgresBackend { client }))
}

/// Connects, and passes notifications on.
async fn open(config: &Config, tls: &TlsSettings, to: &mpsc::Sender<String>) -> Result<Client, Error> {
    let PostgresConnection { client, mut connection, .. } = crate::postgres_tls::connect(config, tls).await?;
    let to = to.clone();
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = to.closed() => None,
            };
            match message {
                Some(Ok(AsyncMessage::Notification(note))) => {
                    if to.send(note.payload().to_owned()).await.is_err() {
                        return;
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    Ok(client)
}

/// Creates the table, unless it is there: a user without the right to create it may be given one.
async fn prepare(client: &Client) -> Result<(), Error> {
    let found = client.query_one("SELECT to_regclass('tidegate_lanes') IS NOT NULL", &[]).await?;
    if found.try_get::<_, bool>(0)? {
        return Ok(());
    }
    let create = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK}); {TABLE}; COMMIT");
    client.batch_execute(&create).await
}

fn channel(inbox: &str) -> String {
    format!("tidegate_inbox_{inbox}")
}

fn failed(why: &Error) -> io::Error {
    if let Some(what) = tls_failure(why) {
        return io::Error::other(what);
    }
    let said = match why.as_db_error() {
        // A server may quote the password that it was sent.
        Some(said) => mask(said.message()).into_owned(),
        None => why.source().map_or_else(|| why.to_string(), ToString::to_string),
    };
    let advice = match why.code() {
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            "; the user needs the right to create and change the table tidegate_lanes"
        }
        _ => "",
    };
    io::Error::other(format!("{said}{advice}"))
}

/// Numbers of the server are signed.
fn signed(epoch: u64) -> i64 {
    i64::try_from(epoch).unwrap_or(i64::MAX)
}

impl PostgresBackend {
    async fn claim(&self, lane: &str, owner: &str) -> Result<Option<LaneClaim>, Error> {
        let (lease, kept) = (LEASE.as_secs_f64(), CHECKPOINT_KEPT.as_secs_f64());
        if let Some(row) = self.client.query_opt(CLAIM, &[&lane, &owner, &lease, &kept]).await? {
            let is_kept: Option<bool> = row.try_get(3)?;
            let checkpoint: Option<String> = row.try_get(2)?;
            return Ok(Some(LaneClaim {
                owner: row.try_get(0)?,
                epoch: row.try_get::<_, i64>(1)?.unsigned_abs(),
                is_new: true,
                checkpoint: checkpoint.filter(|_| is_kept == Some(true)),
            }));
        }
        let Some(row) = self.client.query_opt(FIND, &[&lane]).await? else { return Ok(None) };
        let (owner, epoch) = (row.try_get(0)?, row.try_get::<_, i64>(1)?.unsigned_abs());
        Ok(Some(LaneClaim { owner, epoch, is_new: false, checkpoint: None }))
    }
}

impl FleetBackend for PostgresBackend {
    fn claim<'a>(&'a self, lane: &'a str, owner: &'a str) -> BoxFuture<'a, io::Result<LaneClaim>> {
        async move {
            let gone = || io::Error::other("the row of a lane was deleted just now");
            self.claim(lane, owner).await.map_err(|why| failed(&why))?.ok_or_else(gone)
        }
        .boxed()
    }

    fn renew<'a>(
        &'a self,
        lease: &'a LeaseKey,
        checkpoint: Option<&'a str>,
    ) -> BoxFuture<'a, io::Result<bool>> {
        async move {
            let (epoch, span) = (signed(lease.epoch), LEASE.as_secs_f64());
            let renewed =
                self.client.execute(RENEW, &[&lease.lane, &lease.owner, &epoch, &span, &checkpoint]).await;
            Ok(renewed.map_err(|why| failed(&why))? == 1)
        }
        .boxed()
    }

    fn resign<'a>(&'a self, lease: &'a LeaseKey) -> BoxFuture<'a, io::Result<()>> {
        async move {
            let epoch = signed(lease.epoch);
            let resigned = self.client.execute(RESIGN, &[&lease.lane, &lease.owner, &epoch]).await;
            resigned.map(drop).map_err(|why| failed(&why))
        }
        .boxed()
    }

    fn lanes(&self) -> BoxFuture<'_, io::Result<Vec<KnownLane>>> {
        async move {
            let kept = CHECKPOINT_KEPT.as_secs_f64();
            let rows = self.client.query(LIST, &[&kept]).await.map_err(|why| failed(&why))?;
            let known = |row: &tokio_postgres::Row| -> Result<KnownLane, Error> {
                Ok(KnownLane {
                    lane: row.try_get(0)?,
                    is_owned: row.try_get(1)?,
                    checkpoint: row.try_get(2)?,
                })
            };
            // A lane that is neither owned nor remembered is only the number of its last ownership.
            let is_known = |lane: &KnownLane| lane.is_owned || lane.checkpoint.is_some();
            let all: Result<Vec<KnownLane>, Error> = rows.iter().map(known).collect();
            Ok(all.map_err(|why| failed(&why))?.into_iter().filter(is_known).collect())
        }
        .boxed()
    }

    fn forget<'a>(&'a self, lane: &'a str) -> BoxFuture<'a, io::Result<()>> {
        async move { self.client.execute(FORGET, &[&lane]).await.map(drop).map_err(|why| failed(&why)) }
            .boxed()
    }

    fn send<'a>(&'a self, inbox: &'a str, text: String) -> BoxFuture<'a, io::Result<()>> {
        async move {
            let sent = self.client.execute("SELECT pg_notify($1, $2)", &[&channel(inbox), &text]).await;
            sent.map(drop).map_err(|why| failed(&why))
        }
        .boxed()
    }
}
