//! URLs of queues.
//!
//! The last part of the path is the name of the queue. What a client of the same server would put
//! there (the number of a Redis database, the virtual host of RabbitMQ) is a parameter.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::part::{MissingPart, OptionalPart};
use url::Url;

use crate::embedded::DEFAULT_QUEUE;
#[cfg(feature = "postgres")]
use crate::embedded::postgres::PostgresQueue;
use crate::embedded::sqlite::SqliteQueue;
use crate::error::QueueError;
#[cfg(feature = "nats")]
use crate::nats::NatsQueue;
#[cfg(feature = "redis")]
use crate::redis::RedisQueue;
use crate::transport::Transport;

/// The default lease.
const LEASE: Duration = Duration::from_secs(10);

/// How a queue is used.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// The group of workers that share the messages.
    pub group: String,
    /// The name of this worker: unique, never used again.
    pub worker: String,
    /// How long a message belongs to a worker that does not extend its lease.
    pub lease: Duration,
}

impl QueueOptions {
    /// A worker of a group.
    #[must_use]
    pub fn new(group: &str, worker: &str) -> QueueOptions {
        QueueOptions { group: group.into(), worker: worker.into(), lease: LEASE }
    }
}

/// Where a queue is.
#[derive(Clone, PartialEq, Eq)]
pub enum QueueAddress {
    /// A SQLite file, and the name of the queue in it.
    Sqlite(PathBuf, String),
    /// A server; the scheme says which.
    Server(Url),
}

impl QueueAddress {
    /// Reads an address: a URL, or the path of a SQLite file (`tasks.db`, `sqlite:tasks.db?queue=NAME`).
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<QueueAddress, QueueError> {
        let refused = |what: String| Err(QueueError::Refused(what));
        let file = text.strip_prefix("sqlite:").unwrap_or(text);
        if !file.contains("://") {
            let (path, query) = file.split_once('?').unwrap_or((file, ""));
            let name = query.strip_prefix("queue=").unwrap_or(DEFAULT_QUEUE);
            if path.is_empty() || (!query.is_empty() && !query.starts_with("queue=")) {
                return refused("expected the path of a SQLite file, such as tasks.db?queue=geotasks".into());
            }
            return Ok(QueueAddress::Sqlite(path.into(), name.into()));
        }
        match Url::parse(&one_host(text)) {
            Ok(url) => Ok(QueueAddress::Server(url)),
            // The text may contain a password.
            Err(e) => refused(format!("the URL of the queue is invalid: {e}")),
        }
    }

    /// The scheme of the URL, or `sqlite`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        match self {
            QueueAddress::Sqlite(..) => "sqlite",
            QueueAddress::Server(url) => url.scheme(),
        }
    }

    /// What distinguishes it from every other queue. May contain a password.
    #[must_use]
    pub fn identity(&self) -> String {
        match self {
            QueueAddress::Sqlite(path, name) => format!("{}?queue={name}", path.display()),
            QueueAddress::Server(url) => url.to_string(),
        }
    }

    /// The name of the queue: the last part of the path. That of PostgreSQL is the database, so its
    /// queue is a parameter.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            QueueAddress::Sqlite(_, name) => name,
            QueueAddress::Server(url) if is_postgres(url) => {
                let pairs = url.query().unwrap_or_default().split('&');
                let name = pairs.filter_map(|pair| pair.strip_prefix("queue=")).next();
                name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_QUEUE)
            }
            QueueAddress::Server(url) => url.path().rsplit('/').next().unwrap_or_default(),
        }
    }
}

fn is_postgres(url: &Url) -> bool {
    kind_of(url.scheme()) == Some(OptionalPart::PostgreSql)
}

impl std::fmt::Display for QueueAddress {
    /// Without the password and the parameters.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QueueAddress::Sqlite(path, name) => write!(f, "{}, queue {name}", path.display()),
            QueueAddress::Server(url) => {
                write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())?;
                url.port().map_or(Ok(()), |port| write!(f, ":{port}"))?;
                f.write_str(url.path())?;
                if is_postgres(url) { write!(f, ", queue {}", self.name()) } else { Ok(()) }
            }
        }
    }
}

impl std::fmt::Debug for QueueAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueueAddress({self})")
    }
}

/// Opens a queue, and creates it where that is usual.
///
/// # Errors
/// When it cannot be reached or used.
pub async fn open(address: &QueueAddress, options: &QueueOptions) -> Result<Arc<dyn Transport>, QueueError> {
    match address {
        QueueAddress::Sqlite(path, name) => Ok(Arc::new(SqliteQueue::open(path, name, options).await?)),
        QueueAddress::Server(url) => open_server(url, options).await,
    }
}

/// The kind of server that has the scheme of a URL.
fn kind_of(scheme: &str) -> Option<OptionalPart> {
    Some(match scheme {
        "postgres" | "postgresql" => OptionalPart::PostgreSql,
        "pubsub" => OptionalPart::PubSub,
        "sqs" | "sqs+http" => OptionalPart::Sqs,
        "nats" | "tls+nats" => OptionalPart::Nats,
        "redis" | "rediss" => OptionalPart::Redis,
        "kafka" | "kafka+tls" => OptionalPart::Kafka,
        "amqp" | "amqps" => OptionalPart::RabbitMq,
        _ => return None,
    })
}

async fn open_server(url: &Url, options: &QueueOptions) -> Result<Arc<dyn Transport>, QueueError> {
    let _ = options;
    let Some(kind) = kind_of(url.scheme()) else {
        return Err(QueueError::Refused(format!(
            "unknown kind of queue {}://; expected a SQLite file, postgres, redis, rediss, amqp, amqps, nats, tls+nats, sqs, pubsub or kafka",
            url.scheme()
        )));
    };
    match kind {
        #[cfg(feature = "postgres")]
        OptionalPart::PostgreSql => Ok(Arc::new(PostgresQueue::open(url, options).await?)),
        #[cfg(feature = "pubsub")]
        OptionalPart::PubSub => Ok(Arc::new(crate::pubsub::PubsubQueue::open(url, options).await?)),
        #[cfg(feature = "sqs")]
        OptionalPart::Sqs => Ok(Arc::new(crate::sqs::SqsQueue::open(url, options).await?)),
        #[cfg(feature = "nats")]
        OptionalPart::Nats => Ok(Arc::new(NatsQueue::open(url, options).await?)),
        #[cfg(feature = "redis")]
        OptionalPart::Redis => Ok(Arc::new(RedisQueue::open(url, options).await?)),
        #[cfg(feature = "kafka")]
        OptionalPart::Kafka => Ok(Arc::new(crate::kafka::KafkaQueue::open(url, options).await?)),
        #[cfg(feature = "rabbitmq")]
        OptionalPart::RabbitMq => Ok(Arc::new(crate::rabbitmq::RabbitQueue::open(url, options).await?)),
        missing => Err(QueueError::Refused(MissingPart(missing).to_string())),
    }
}

/// A URL has one host. Further hosts of a cluster become parameters: `kafka://a:1,b:2/topic` is
/// `kafka://a:1/topic?server=b:2`.
fn one_host(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| scheme.starts_with("kafka"))
    else {
        return text.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let hosts_at = authority.rfind('@').map_or(0, |at| at + 1);
    let mut hosts = authority[hosts_at..].split(',');
    let first = hosts.next().unwrap_or_default();
    let mut url = format!("{scheme}://{}{first}{path}", &authority[..hosts_at]);
    for host in hosts {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str("server=");
        url.push_str(host);
    }
    url
}

/// A part of a URL without percent encoding.
#[cfg(any(feature = "kafka", feature = "rabbitmq"))]
pub(crate) fn decoded(part: &str) -> String {
    let query = part.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    url::form_urlencoded::parse(query.as_bytes())
        .next()
        .map(|(text, _)| text.into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_secrets() {
        let parse = |text| QueueAddress::parse(text).unwrap();
        assert_eq!(parse("tasks.db"), QueueAddress::Sqlite("tasks.db".into(), "geotasks".into()));
        assert_eq!(parse("sqlite:a/b.db?queue=tiles"), QueueAddress::Sqlite("a/b.db".into(), "tiles".into()));
        let redis = parse("redis://me:secret@broker:6390/geotasks?db=2");
        assert_eq!((redis.scheme(), redis.name()), ("redis", "geotasks"));
        assert_eq!(
            format!("{redis} {redis:?}"),
            "redis://broker:6390/geotasks QueueAddress(redis://broker:6390/geotasks)"
        );
        let postgres = parse("postgresql://me:secret@db/gis?sslmode=require&queue=tiles");
        assert_eq!((postgres.name(), parse("postgres://db/gis").name()), ("tiles", "geotasks"));
        assert_eq!(postgres.to_string(), "postgresql://db/gis, queue tiles");
        let kafka = parse("kafka://me:secret@a:1,b:2,c:3/topic?sasl=plain");
        assert_eq!(kafka, parse("kafka://me:secret@a:1/topic?sasl=plain&server=b:2&server=c:3"));
        assert_eq!(format!("{kafka}"), "kafka://a:1/topic");
        assert!(QueueAddress::parse("tasks.db?name=x").is_err());
        assert!(QueueAddress::parse("redis://[broken").is_err());
    }
}
