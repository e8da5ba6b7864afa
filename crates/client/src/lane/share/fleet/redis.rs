//! Redis: a key with an expiry for the lease, pub/sub for messages.
//!
//! Why pub/sub and not streams: nobody reads a message later, and a process that dies leaves nothing behind.
//! A message that is lost ends its thread (`thread`).
//!
//! The keys of a lane have its name in braces, so that they are in one slot of a cluster.

use super::address::{ServerAddress, TlsFiles};
use super::backend::{FleetBackend, KnownLane, LaneClaim, LeaseKey};
use super::{CHECKPOINT_KEPT, CONNECT_MAX, LEASE, REPLY_MAX};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ClientTlsConfig, RedisError, Script, TlsCertificates};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use tokio::sync::mpsc;

/// Keys: owner, epoch, checkpoint. Arguments: owner, lease in milliseconds. The epoch is at least the time, so
/// that it grows even if the server has lost its data.
const CLAIM: &str = "
    local checkpoint = redis.call('GET', KEYS[3]) or ''
    local held = redis.call('GET', KEYS[1])
    if held then return {held, '', checkpoint} end
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local last = tonumber(redis.call('GET', KEYS[2]) or '0')
    local epoch = string.format('%.0f', math.max(last + 1, now))
    redis.call('SET', KEYS[2], epoch)
    held = epoch .. ' ' .. ARGV[1]
    redis.call('SET', KEYS[1], held, 'PX', ARGV[2])
    return {held, 'new', checkpoint}";

/// Keys: owner, checkpoint. Arguments: owner with epoch, lease, checkpoint or nothing, how long it is kept.
const RENEW: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    if ARGV[3] ~= '' then redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4]) end
    return 1";

/// Keys: owner. Arguments: owner with epoch.
const RESIGN: &str = "
    if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
    return 1";

struct RedisBackend {
    /// Clones share one connection.
    connection: MultiplexedConnection,
    claim: Script,
    renew: Script,
    resign: Script,
}

pub(super) async fn connect(
    address: &ServerAddress,
    inbox: &str,
    to: mpsc::Sender<String>,
) -> io::Result<Box<dyn FleetBackend>> {
    let client = client(address)?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_MAX))
        .set_response_timeout(Some(REPLY_MAX));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
    let mut heard = client.get_async_pubsub().await.map_err(failed)?;
    heard.subscribe(channel(inbox)).await.map_err(failed)?;
    tokio::spawn(async move {
        let mut messages = heard.into_on_message();
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = to.closed() => None,
            };
            let Some(text) = message.and_then(|message| message.get_payload::<String>().ok()) else { return };
            if to.send(text).await.is_err() {
                return;
            }
        }
    });
    Ok(Box::new(RedisBackend {
        connection,
        claim: Script::new(CLAIM),
        renew: Script::new(RENEW),
        resign: Script::new(RESIGN),
    }))
}

fn client(address: &ServerAddress) -> io::Result<Client> {
    let TlsFiles { root, own } = &address.tls;
    let url = address.url.reveal();
    let client = if root.is_some() || own.is_some() {
        let client_tls = match own {
            Some((cert, key)) => Some(ClientTlsConfig {
                client_cert: read("sslcert", cert)?,
                client_key: read("sslkey", key)?,
            }),
            None => None,
        };
        let root_cert = root.as_deref().map(|path| read("sslrootcert", path)).transpose()?;
        Client::build_with_tls(url, TlsCertificates { client_tls, root_cert })
    } else {
        Client::open(url)
    };
    client.map_err(failed)
}

fn read(name: &str, path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|why| io::Error::new(why.kind(), format!("cannot read {name} {}: {why}", path.display())))
}

fn key(lane: &str, what: &str) -> String {
    format!("tidegate:lane:{{{lane}}}:{what}")
}

fn channel(inbox: &str) -> String {
    format!("tidegate:inbox:{inbox}")
}

/// The value of the key of a lease.
fn holder(lease: &LeaseKey) -> String {
    format!("{} {}", lease.epoch, lease.owner)
}

/// The error of the client has no password in it: it quotes what the server said.
fn failed(why: RedisError) -> io::Error {
    let kind = if why.is_timeout() { io::ErrorKind::ConnectionAborted } else { io::ErrorKind::Other };
    io::Error::new(kind, why.to_string())
}

impl FleetBackend for RedisBackend {
    fn claim<'a>(&'a self, lane: &'a str, owner: &'a str) -> BoxFuture<'a, io::Result<LaneClaim>> {
        async move {
            let mut call = self.claim.prepare_invoke();
            call.key(key(lane, "owner")).key(key(lane, "epoch")).key(key(lane, "checkpoint"));
            call.arg(owner).arg(LEASE.as_millis() as u64);
            let mut connection = self.connection.clone();
            let said: (String, String, String) = call.invoke_async(&mut connection).await.map_err(failed)?;
            let (held, new, checkpoint) = said;
            let (epoch, owner) = held.split_once(' ').unwrap_or_default();
            let epoch = epoch.parse().map_err(|_| io::Error::other("the key of a lane has another form"))?;
            let checkpoint = Some(checkpoint).filter(|text| !text.is_empty());
            Ok(LaneClaim { owner: owner.to_owned(), epoch, is_new: new == "new", checkpoint })
        }
        .boxed()
    }

    fn renew<'a>(
        &'a self,
        lease: &'a LeaseKey,
        checkpoint: Option<&'a str>,
    ) -> BoxFuture<'a, io::Result<bool>> {
        async move {
            let mut call = self.renew.prepare_invoke();
            call.key(key(&lease.lane, "owner")).key(key(&lease.lane, "checkpoint"));
            call.arg(holder(lease)).arg(LEASE.as_millis() as u64);
            call.arg(checkpoint.unwrap_or_default()).arg(CHECKPOINT_KEPT.as_millis() as u64);
            let renewed: u8 = call.invoke_async(&mut self.connection.clone()).await.map_err(failed)?;
            Ok(renewed == 1)
        }
        .boxed()
    }

    fn resign<'a>(&'a self, lease: &'a LeaseKey) -> BoxFuture<'a, io::Result<()>> {
        async move {
            let mut call = self.resign.prepare_invoke();
            call.key(key(&lease.lane, "owner")).arg(holder(lease));
            call.invoke_async(&mut self.connection.clone()).await.map_err(failed)
        }
        .boxed()
    }

    fn lanes(&self) -> BoxFuture<'_, io::Result<Vec<KnownLane>>> {
        async move {
            let mut connection = self.connection.clone();
            let mut names = BTreeSet::new();
            for what in ["owner", "checkpoint"] {
                let (start, end) = ("tidegate:lane:{", format!("}}:{what}"));
                let mut cursor = 0_u64;
                loop {
                    let mut scan = redis::cmd("SCAN");
                    scan.arg(cursor).arg("MATCH").arg(format!("{start}*{end}")).arg("COUNT").arg(1000);
                    let (next, keys): (u64, Vec<String>) =
                        scan.query_async(&mut connection).await.map_err(failed)?;
                    let name = |key: &String| Some(key.strip_prefix(start)?.strip_suffix(&end)?.to_owned());
                    names.extend(keys.iter().filter_map(name));
                    cursor = next;
                    if cursor == 0 {
                        break;
                    }
                }
            }
            let mut all = Vec::new();
            for lane in names {
                let get = |what| {
                    let mut get = redis::cmd("GET");
                    get.arg(key(&lane, what));
                    get
                };
                let owner: Option<String> =
                    get("owner").query_async(&mut connection).await.map_err(failed)?;
                let checkpoint: Option<String> =
                    get("checkpoint").query_async(&mut connection).await.map_err(failed)?;
                all.push(KnownLane { is_owned: owner.is_some(), checkpoint, lane });
            }
            Ok(all)
        }
        .boxed()
    }

    fn forget<'a>(&'a self, lane: &'a str) -> BoxFuture<'a, io::Result<()>> {
        async move {
            let mut delete = redis::cmd("DEL");
            delete.arg(key(lane, "checkpoint"));
            delete.query_async(&mut self.connection.clone()).await.map_err(failed)
        }
        .boxed()
    }

    fn send<'a>(&'a self, inbox: &'a str, text: String) -> BoxFuture<'a, io::Result<()>> {
        async move {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(channel(inbox)).arg(text);
            publish.query_async(&mut self.connection.clone()).await.map_err(failed)
        }
        .boxed()
    }
}
