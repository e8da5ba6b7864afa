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

impl Subscription {
    /// The settings that lose messages.
    pub(super) fn warnings(self, name: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.expiration_policy.is_none_or(|policy| policy.ttl.is_some()) {
            warnings.push(format!(
                "{name} is deleted with its messages when it is not used for some time; let it never expire \
                 (gcloud pubsub subscriptions update --expiration-period=never)"
            ));
        }
        let kept = self
            .message_retention_duration
            .as_deref()
            .and_then(|text| text.trim_end_matches('s').parse().ok());
        if let Some(days) = kept.map(|seconds: f64| seconds / 86_400.0).filter(|days| *days < 7.0) {
            warnings.push(format!(
                "{name} deletes messages after {days:.1} days, whether they were worked on or not; set \
                 --message-retention-duration=7d"
            ));
        }
        if self.dead_letter_policy.is_some() {
            warnings.push(format!(
                "{name} has a dead-letter policy, which moves messages without a reason and can stall ordering \
                 keys; remove it, Tidegate has its own dead letters"
            ));
        }
        warnings
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_messages_are_told() {
        let warnings = |json: Value| serde_json::from_value::<Subscription>(json).unwrap().warnings("s");
        assert_eq!(
            warnings(json!({ "expirationPolicy": {}, "messageRetentionDuration": "604800s" })),
            [""; 0]
        );
        let found = warnings(json!({
            "expirationPolicy": { "ttl": "2678400s" }, "messageRetentionDuration": "600s",
            "deadLetterPolicy": { "maxDeliveryAttempts": 5 },
        }));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(warnings(json!({})).len(), 1, "a subscription expires by default");
    }

    #[test]
    fn errors_are_read_by_their_status() {
        let (finding, word) = error(409, br#"{"error":{"code":409,"message":"x","status":"ABORTED"}}"#);
        assert_eq!((finding.map(|f| f.means), word.as_str()), (Some(Means::Transient), "ABORTED"));
        for body in [&b""[..], b"<html>", br#"{"error":{"status":"a b"}}"#] {
            assert_eq!(error(500, body), (None, String::new()));
        }
    }
}
