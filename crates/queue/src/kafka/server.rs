//! The connection to the cluster, the topic, and what errors mean.

use std::time::Duration;

use krafka::Kafka;
use krafka::admin::{CreateTopicsOptions, NewTopic};
use krafka::auth::{AuthConfig, TlsConfig};
use krafka::error::{ErrorCode, KrafkaError};
use krafka::producer::Producer;
use url::Url;

use crate::address::decoded;
use crate::error::QueueError;

/// How long the cluster may take for one answer.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// The default of Kafka for a record, less room for headers.
pub(super) const BODY_MAX: usize = 1_000_000;
/// The partitions of a topic that is created: as many workers can share it.
const PARTITIONS: i32 = 12;

/// A cluster with a topic.
pub(super) struct KafkaServer {
    pub(super) kafka: Kafka,
    pub(super) producer: Producer,
    pub(super) topic: String,
    /// The group protocol of Kafka 4; otherwise the classic one.
    pub(super) is_consumer_protocol: bool,
}

/// What an error means for a caller.
pub(super) fn fault(error: &KrafkaError) -> QueueError {
    let text = format!("Kafka: {error}");
    let is_refused = match error {
        KrafkaError::Auth { .. } | KrafkaError::Config { .. } => true,
        KrafkaError::Broker { code, .. } => matches!(
            code,
            ErrorCode::SaslAuthenticationFailed
                | ErrorCode::TopicAuthorizationFailed
                | ErrorCode::GroupAuthorizationFailed
                | ErrorCode::ClusterAuthorizationFailed
                | ErrorCode::PolicyViolation
        ),
        _ => text.contains("certificate"),
    };
    if is_refused { QueueError::Refused(text) } else { QueueError::Unreachable(text) }
}

/// Runs something that has an end.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, KrafkaError>>,
) -> Result<T, QueueError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(|e| fault(&e)),
        Err(_) => Err(QueueError::Unreachable(format!("Kafka: no answer within {} s", limit.as_secs()))),
    }
}

impl KafkaServer {
    pub(super) async fn connect(url: &Url, worker: &str) -> Result<KafkaServer, QueueError> {
        let refused = |what: String| QueueError::Refused(format!("Kafka: {what}"));
        let is_tls = url.scheme() == "kafka+tls";
        let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("localhost");
        let mut servers = vec![format!("{host}:{}", url.port().unwrap_or(9092))];
        let (mut ca, mut sasl, mut partitions) = (None, "plain".to_owned(), PARTITIONS);
        let mut is_consumer_protocol = false;
        for (name, value) in url.query_pairs() {
            match name.as_ref() {
                "server" => servers.push(value.into_owned()),
                "sasl" => sasl = value.into_owned(),
                "ca" if is_tls => ca = Some(value.into_owned()),
                "protocol" if value == "consumer" => is_consumer_protocol = true,
                "protocol" if value == "classic" => is_consumer_protocol = false,
                "partitions" => {
                    let count = value.parse().ok().filter(|count| (1..=10_000).contains(count));
                    partitions = count.ok_or_else(|| refused("partitions must be from 1 to 10000".into()))?;
                }
                other => {
                    return Err(refused(format!(
                        "unknown parameter {other}; expected sasl, partitions, protocol=classic or consumer, and ca with kafka+tls"
                    )));
                }
            }
        }
        let topic = decoded(url.path().rsplit('/').next().unwrap_or_default());
        if topic.is_empty() {
            return Err(refused("the last part of the path must be the name of a topic".into()));
        }
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let mut security = match (user.as_str(), sasl.as_str()) {
            ("", _) => AuthConfig::plaintext(),
            (_, "plain") => AuthConfig::sasl_plain(user, password),
            (_, "scram-sha-256") => AuthConfig::sasl_scram_sha256(user, password),
            (_, "scram-sha-512") => AuthConfig::sasl_scram_sha512(user, password),
            _ => return Err(refused("sasl must be plain, scram-sha-256 or scram-sha-512".into())),
        };
        if is_tls {
            let tls = match ca {
                Some(path) => TlsConfig::new().with_ca_cert(path),
                None => TlsConfig::new().with_native_roots(),
            };
            security = security.with_tls(tls);
        }
        let builder =
            Kafka::builder(servers.join(",")).client_id(format!("tidegate-{worker}")).security(security);
        let builder = builder.request_timeout(ANSWER).connect_timeout(ANSWER / 2);
        let kafka = within(ANSWER * 2, builder.connect()).await?;
        let producer =
            kafka.producer().delivery_timeout(ANSWER * 2).max_block(ANSWER).linger(Duration::from_millis(2));
        let producer = within(ANSWER * 2, producer.build()).await?;
        let server = KafkaServer { kafka, producer, topic, is_consumer_protocol };
        server.ensure_topic(partitions).await?;
        Ok(server)
    }

    /// Creates the topic unless it exists. A user who may not create topics can use one that exists.
    async fn ensure_topic(&self, partitions: i32) -> Result<(), QueueError> {
        let admin = self.kafka.admin();
        let existing = within(ANSWER, admin.list_topics(krafka::admin::ListTopicsOptions::default())).await?;
        if existing.contains(&self.topic) {
            return Ok(());
        }
        // Minus one: as many replicas as the cluster's default.
        let topic = NewTopic::new(self.topic.as_str(), partitions, -1).map_err(|e| fault(&e))?;
        let created = within(ANSWER, admin.create_topics([topic], CreateTopicsOptions::default())).await?;
        match created.into_values().next() {
            Some(Err(KrafkaError::Broker { code: ErrorCode::TopicAlreadyExists, .. }))
            | Some(Ok(()))
            | None => Ok(()),
            Some(Err(e)) => Err(fault(&e)),
        }
    }

    /// The partitions of the topic, with the number of replicas of each.
    pub(super) async fn partitions(&self) -> Result<Vec<(i32, usize)>, QueueError> {
        let partitions = within(ANSWER, self.producer.partitions_for(&self.topic)).await?;
        Ok(partitions.iter().map(|info| (info.partition, info.replicas.len())).collect())
    }

    /// Publishes records; returns when all are confirmed by all replicas that are in sync.
    pub(super) async fn publish(&self, records: Vec<krafka::Record>) -> Result<(), QueueError> {
        let all = async {
            let mut handles = Vec::with_capacity(records.len());
            for record in records {
                handles.push(self.producer.enqueue(record).await?);
            }
            for handle in handles {
                let _ = handle.await?;
            }
            Ok(())
        };
        match tokio::time::timeout(ANSWER * 3, all).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(KrafkaError::Broker { code: ErrorCode::MessageTooLarge, .. })) => {
                Err(QueueError::TooLarge { bytes: BODY_MAX, max: BODY_MAX })
            }
            Ok(Err(e)) => Err(fault(&e)),
            Err(_) => Err(QueueError::Unreachable("Kafka: the messages were not confirmed in time".into())),
        }
    }
}
