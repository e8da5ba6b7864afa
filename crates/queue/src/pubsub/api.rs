//! Requests to Pub/Sub: REST, version 1, through a lane.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidegate_client::store::{CloudFault, CloudRequest, CloudService, NO_ANSWER};
use tidegate_client::tidegate_core::Code;
use tidegate_client::tidegate_core::signal::{Finding, Means};

use crate::cloud;
use crate::error::QueueError;

/// How long the server may hold a pull without messages. It answers earlier by itself.
const PULL_WAIT: Duration = Duration::from_secs(100);
/// The most acknowledgements of one request, which must have less than 512 KiB.
const ACKS_MAX: usize = 1000;

/// A topic and a subscription of it, by their full names.
pub(super) struct PubsubApi {
    pub(super) service: CloudService,
    pub(super) topic: String,
    pub(super) subscription: String,
}

/// A message as the server returns it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PulledMessage {
    pub(super) ack_id: String,
    pub(super) message: PubsubMessage,
}

/// The message itself.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PubsubMessage {
    pub(super) data: String,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) message_id: String,
    pub(super) publish_time: String,
    pub(super) ordering_key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullAnswer {
    #[serde(default)]
    received_messages: Vec<PulledMessage>,
}

/// What is read of a subscription.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Subscription {
    pub(super) topic: String,
    pub(super) ack_deadline_seconds: u64,
    pub(super) enable_message_ordering: bool,
    pub(super) message_retention_duration: Option<String>,
    pub(super) expiration_policy: Option<ExpirationPolicy>,
    pub(super) dead_letter_policy: Option<Value>,
}

/// When an unused subscription is deleted; without a time, never.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExpirationPolicy {
    pub(super) ttl: Option<String>,
}

/// What an error of Google's APIs means: its status has a name.
pub(super) fn error(status: u16, body: &[u8]) -> (Option<Finding>, String) {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let word = cloud::word(json.pointer("/error/status").and_then(Value::as_str).unwrap_or_default());
    let finding = (status == 409 && word == "ABORTED")
        .then_some(Finding { means: Means::Transient, code: Code::SERVICE_UNAVAILABLE });
    (finding, word)
}

impl PubsubApi {
    async fn send(
        &self,
        method: Method,
        path: String,
        body: Option<&Value>,
        poll: Option<Duration>,
    ) -> Result<bytes::Bytes, CloudFault> {
        let request = CloudRequest {
            method,
            path: format!("/v1/{path}"),
            headers: vec![("content-type", "application/json".into())],
            body: body.map(Value::to_string).unwrap_or_default().into(),
            poll,
        };
        self.service.call(&request).await
    }

    fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, QueueError> {
        serde_json::from_slice(answer)
            .map_err(|_| QueueError::Refused("the answer is not that of Pub/Sub".into()))
    }

    /// An action on the subscription.
    async fn act(&self, action: &str, body: &Value) -> Result<(), QueueError> {
        let path = format!("{}:{action}", self.subscription);
        let done = self.send(Method::POST, path, Some(body), None).await;
        done.map(drop).map_err(|fault| self.failed(&fault))
    }

    fn failed(&self, fault: &CloudFault) -> QueueError {
        let (topic, subscription) = (&self.topic, &self.subscription);
        cloud::failed(fault, |fault| {
            match (fault.verdict.status, fault.word.as_str()) {
            (Some(401), _) | (_, "UNAUTHENTICATED") => Some(
                "the credentials are not accepted (UNAUTHENTICATED); check the key of the service account and \
                 the clock of this machine"
                    .into(),
            ),
            (_, "PERMISSION_DENIED") => Some(format!(
                "the credentials may not use {topic} and {subscription} (PERMISSION_DENIED); they need the roles \
                 pubsub.publisher on the topic, pubsub.subscriber and pubsub.viewer on the subscription, and \
                 pubsub.editor to create them"
            )),
            (_, "NOT_FOUND") => Some(format!("{topic} or {subscription} does not exist any more (NOT_FOUND)")),
            _ => None,
        }
        })
    }

    /// The subscription, if it exists.
    pub(super) async fn subscription(&self) -> Result<Option<Subscription>, QueueError> {
        match self.send(Method::GET, self.subscription.clone(), None, None).await {
            Ok(answer) => PubsubApi::read(&answer).map(Some),
            Err(fault) if fault.word == "NOT_FOUND" => Ok(None),
            Err(fault) => Err(self.failed(&fault)),
        }
    }

    /// Creates the topic and the subscription if they are missing.
    pub(super) async fn create(&self, lease: u64, is_ordered: bool) -> Result<(), QueueError> {
        let subscription = json!({
            "topic": self.topic,
            "ackDeadlineSeconds": lease,
            "enableMessageOrdering": is_ordered,
            "messageRetentionDuration": "604800s",
            // Without it, a subscription that is not used for 31 days is deleted with its messages.
            "expirationPolicy": {},
        });
        for (path, body) in [(&self.topic, &json!({})), (&self.subscription, &subscription)] {
            match self.send(Method::PUT, path.clone(), Some(body), None).await {
                Err(fault) if fault.word != "ALREADY_EXISTS" => return Err(self.failed(&fault)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Publishes one batch.
    pub(super) async fn publish(&self, messages: &[Value]) -> Result<(), QueueError> {
        let path = format!("{}:publish", self.topic);
        let sent = self.send(Method::POST, path, Some(&json!({ "messages": messages })), None).await;
        sent.map(drop).map_err(|fault| self.failed(&fault))
    }

    /// Pulls up to `most` messages. With `wait` the server answers when there is one, or after some
    /// time; otherwise at once.
    pub(super) async fn pull(&self, most: usize, wait: bool) -> Result<Vec<PulledMessage>, QueueError> {
        let mut body = json!({ "maxMessages": most });
        if let (false, Some(body)) = (wait, body.as_object_mut()) {
            body.insert("returnImmediately".into(), true.into());
        }
        let path = format!("{}:pull", self.subscription);
        let poll = if wait { PULL_WAIT } else { Duration::ZERO };
        match self.send(Method::POST, path, Some(&body), Some(poll)).await {
            Ok(answer) => Ok(PubsubApi::read::<PullAnswer>(&answer)?.received_messages),
            Err(fault) if fault.word == NO_ANSWER || fault.word == "DEADLINE_EXCEEDED" => Ok(Vec::new()),
            Err(fault) => Err(self.failed(&fault)),
        }
    }

    pub(super) async fn acknowledge(&self, ack_ids: &[String]) -> Result<(), QueueError> {
        for some in ack_ids.chunks(ACKS_MAX) {
            self.act("acknowledge", &json!({ "ackIds": some })).await?;
        }
        Ok(())
    }

    /// Sets when the messages come again if they are not acknowledged.
    pub(super) async fn set_deadline(&self, ack_ids: &[String], seconds: i64) -> Result<(), QueueError> {
        for some in ack_ids.chunks(ACKS_MAX) {
            self.act("modifyAckDeadline", &json!({ "ackIds": some, "ackDeadlineSeconds": seconds })).await?;
        }
        Ok(())
    }

    /// Marks everything that was published until this time as acknowledged; `false` if the server
    /// cannot, as the emulator.
    pub(super) async fn seek(&self, time: &str) -> Result<bool, QueueError> {
        let path = format!("{}:seek", self.subscription);
        match self.send(Method::POST, path, Some(&json!({ "time": time })), None).await {
            Ok(_) => Ok(true),
            Err(fault) if fault.word == "UNIMPLEMENTED" => Ok(false),
            Err(fault) => Err(self.failed(&fault)),
        }
    }
}
