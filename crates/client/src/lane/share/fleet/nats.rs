//! NATS: a key that expires in a bucket for the lease, subjects for messages.
//!
//! The epoch is the revision with which the key was created. Revisions of a bucket only grow. The bucket forgets
//! a key [`LEASE`] after its last revision, so a bucket that somebody else has made must do so too.

use super::address::ServerAddress;
use super::backend::{FleetBackend, KnownLane, LaneClaim, LeaseKey};
use super::{CHECKPOINT_KEPT, CONNECT_MAX, LEASE, REPLY_MAX};
use crate::lock::lock;
use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use url::Url;

const LEASES: &str = "tidegate_lanes";
const CHECKPOINTS: &str = "tidegate_lane_checkpoints";
/// How often a key is looked for that is there and then not.
const CLAIM_ATTEMPTS: u32 = 5;

/// The value of the key of a lane.
#[derive(Serialize, Deserialize)]
struct LaneHolder {
    owner: String,
    /// `None` in the first revision, which is the epoch.
    epoch: Option<u64>,
}

struct NatsBackend {
    client: Client,
    leases: Store,
    checkpoints: Store,
    /// The last revision of the key of each lane that this process owns, by lane and epoch.
    revisions: Mutex<HashMap<(String, u64), u64>>,
}

pub(super) async fn connect(
    address: &ServerAddress,
    inbox: &str,
    to: mpsc::Sender<String>,
) -> io::Result<Box<dyn FleetBackend>> {
    let lost = Arc::new(Notify::new());
    let (server, options) = options(address)?;
    // A connection that comes back may have lost messages: then everything begins anew.
    let told = lost.clone();
    let options = options.event_callback(move |event| {
        let told = told.clone();
        async move {
            if matches!(event, Event::Disconnected | Event::Closed) {
                told.notify_one();
            }
        }
    });
    let client = options.connect(server).await.map_err(failed)?;
    let mut messages = client.subscribe(subject(inbox)).await.map_err(failed)?;
    client.flush().await.map_err(failed)?;
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = to.closed() => None,
                () = lost.notified() => None,
            };
            let Some(message) = message else { return };
            let Ok(text) = String::from_utf8(message.payload.into()) else { continue };
            if to.send(text).await.is_err() {
                return;
            }
        }
    });
    let stream = jetstream::new(client.clone());
    let leases = bucket(&stream, LEASES, LEASE).await?;
    let checkpoints = bucket(&stream, CHECKPOINTS, CHECKPOINT_KEPT).await?;
    Ok(Box::new(NatsBackend { client, leases, checkpoints, revisions: Mutex::default() }))
}

/// The server, and how to connect to it. User, password and token are in the URL.
fn options(address: &ServerAddress) -> io::Result<(ServerAddr, ConnectOptions)> {
    let invalid = || io::Error::other("invalid URL of a NATS server; expected nats://user:password@host");
    let mut url: Url = address.url.reveal().parse().map_err(|_| invalid())?;
    let part = |text: &str| {
        let pair = format!("x={}", text.replace('+', "%2B"));
        url::form_urlencoded::parse(pair.as_bytes()).next().map(|(_, text)| text.into_owned())
    };
    let user = part(url.username()).filter(|user| !user.is_empty());
    let password = url.password().and_then(part);
    let mut options = ConnectOptions::new()
        .name("tidegate lanes")
        .connection_timeout(CONNECT_MAX)
        .request_timeout(Some(REPLY_MAX))
        .ping_interval(Duration::from_secs(1))
        .max_reconnects(1);
    options = match (user, password) {
        (Some(user), Some(password)) => options.user_and_password(user, password),
        (Some(token), None) => options.token(token),
        _ => options,
    };
    if url.scheme() == "tls" {
        options = options.require_tls(true);
    }
    if let Some(root) = &address.tls.root {
        options = options.add_root_certificates(root.clone());
    }
    if let Some((cert, key)) = &address.tls.own {
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    let cleared = url.set_username("").and(url.set_password(None));
    cleared.map_err(|()| invalid())?;
    let server = url.as_str().trim_end_matches('/').parse().map_err(|_| invalid())?;
    Ok((server, options))
}

/// A bucket, created unless it is there.
async fn bucket(stream: &Context, name: &str, max_age: Duration) -> io::Result<Store> {
    let found = match stream.get_key_value(name).await {
        Ok(found) => found,
        Err(_) => {
            // Why not `create_key_value`: it cannot read what servers before 2.10 say about an account.
            let config = Config {
                name: format!("KV_{name}"),
                subjects: vec![format!("$KV.{name}.>")],
                max_messages_per_subject: 1,
                max_age,
                discard: DiscardPolicy::New,
                allow_rollup: true,
                allow_direct: true,
                deny_delete: true,
                num_replicas: 1,
                ..Config::default()
            };
            // Another process may have made it just now.
            let made = stream.create_stream(config).await;
            stream.get_key_value(name).await.map_err(|why| made.err().map_or_else(|| failed(why), failed))?
        }
    };
    let age = found.status().await.map_err(failed)?.max_age();
    if age != max_age {
        let wanted = max_age.as_secs();
        return Err(io::Error::other(format!(
            "the bucket {name} keeps its keys for {} s; it must keep them for {wanted} s",
            age.as_secs()
        )));
    }
    Ok(found)
}

fn subject(inbox: &str) -> String {
    format!("tidegate.inbox.{inbox}")
}

/// The errors of the client do not quote the URL.
fn failed(why: impl Display) -> io::Error {
    io::Error::other(why.to_string())
}

fn value(owner: &str, epoch: Option<u64>) -> bytes::Bytes {
    serde_json::to_vec(&LaneHolder { owner: owner.to_owned(), epoch }).unwrap_or_default().into()
}

impl NatsBackend {
    /// Who holds a lane, and the revision of its key.
    async fn holder(&self, lane: &str) -> io::Result<Option<(LaneHolder, u64)>> {
        let entry = self.leases.entry(lane).await.map_err(failed)?;
        let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else { return Ok(None) };
        let held = serde_json::from_slice(&entry.value)
            .map_err(|_| io::Error::other("the key of a lane has another form"))?;
        Ok(Some((held, entry.revision)))
    }

    async fn claim(&self, lane: &str, owner: &str) -> io::Result<LaneClaim> {
        for _ in 0..CLAIM_ATTEMPTS {
            match self.leases.create(lane, value(owner, None)).await {
                Ok(epoch) => {
                    lock(&self.revisions).insert((lane.to_owned(), epoch), epoch);
                    let left = self.checkpoints.get(lane).await.map_err(failed)?;
                    let checkpoint = left.and_then(|left| String::from_utf8(left.into()).ok());
                    return Ok(LaneClaim { owner: owner.to_owned(), epoch, is_new: true, checkpoint });
                }
                Err(why) if why.kind() == CreateErrorKind::AlreadyExists => {}
                Err(why) => return Err(failed(why)),
            }
            let Some((held, revision)) = self.holder(lane).await? else { continue };
            let epoch = held.epoch.unwrap_or(revision);
            return Ok(LaneClaim { owner: held.owner, epoch, is_new: false, checkpoint: None });
        }
        Err(io::Error::other("the owner of a lane changes too often"))
    }

    async fn renew(&self, lease: &LeaseKey, checkpoint: Option<&str>) -> io::Result<bool> {
        let key = (lease.lane.clone(), lease.epoch);
        let revision = lock(&self.revisions).get(&key).copied();
        let Some(revision) = revision else { return Ok(false) };
        let held = value(&lease.owner, Some(lease.epoch));
        match self.leases.update(&lease.lane, held, revision).await {
            Ok(revision) => drop(lock(&self.revisions).insert(key, revision)),
            Err(why) if why.kind() == UpdateErrorKind::WrongLastRevision => return Ok(false),
            Err(why) => return Err(failed(why)),
        }
        if let Some(checkpoint) = checkpoint {
            let text = bytes::Bytes::copy_from_slice(checkpoint.as_bytes());
            self.checkpoints.put(&lease.lane, text).await.map_err(failed)?;
        }
        Ok(true)
    }
}

impl FleetBackend for NatsBackend {
    fn claim<'a>(&'a self, lane: &'a str, owner: &'a str) -> BoxFuture<'a, io::Result<LaneClaim>> {
        self.claim(lane, owner).boxed()
    }

    fn renew<'a>(
        &'a self,
        lease: &'a LeaseKey,
        checkpoint: Option<&'a str>,
    ) -> BoxFuture<'a, io::Result<bool>> {
        self.renew(lease, checkpoint).boxed()
    }

    fn resign<'a>(&'a self, lease: &'a LeaseKey) -> BoxFuture<'a, io::Result<()>> {
        async move {
            lock(&self.revisions).remove(&(lease.lane.clone(), lease.epoch));
            if let Some((held, revision)) = self.holder(&lease.lane).await?
                && (held.owner.as_str(), held.epoch.unwrap_or(revision)) == (&lease.owner, lease.epoch)
            {
                // Refused if the key has changed in between: then another owner has it.
                let _ = self.leases.delete_expect_revision(&lease.lane, Some(revision)).await;
            }
            Ok(())
        }
        .boxed()
    }

    fn lanes(&self) -> BoxFuture<'_, io::Result<Vec<KnownLane>>> {
        async move {
            let mut names = BTreeSet::new();
            for bucket in [&self.leases, &self.checkpoints] {
                let mut keys = bucket.keys().await.map_err(failed)?;
                while let Some(key) = keys.next().await {
                    names.insert(key.map_err(failed)?);
                }
            }
            let mut all = Vec::new();
            for lane in names {
                let is_owned = self.holder(&lane).await?.is_some();
                let left = self.checkpoints.get(&lane).await.map_err(failed)?;
                let checkpoint = left.and_then(|left| String::from_utf8(left.into()).ok());
                all.push(KnownLane { lane, is_owned, checkpoint });
            }
            Ok(all)
        }
        .boxed()
    }

    fn forget<'a>(&'a self, lane: &'a str) -> BoxFuture<'a, io::Result<()>> {
        async move { self.checkpoints.purge(lane).await.map_err(failed) }.boxed()
    }

    fn send<'a>(&'a self, inbox: &'a str, text: String) -> BoxFuture<'a, io::Result<()>> {
        async move { self.client.publish(subject(inbox), text.into()).await.map_err(failed) }.boxed()
    }
}
