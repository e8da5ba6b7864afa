//! Requests to SQS: JSON 1.0, through a lane.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidegate_client::store::{CloudFault, CloudRequest, CloudService};
use tidegate_client::tidegate_core::Code;
use tidegate_client::tidegate_core::signal::{Finding, Means};

use crate::cloud;
use crate::error::QueueError;

/// The most entries of a batch.
pub(super) const BATCH_MAX: usize = 10;
/// How often the entries of a batch are sent that the server failed to process.
const BATCH_ATTEMPTS: u32 = 5;

/// A queue of SQS.
pub(super) struct SqsApi {
    pub(super) service: CloudService,
    pub(super) queue_url: String,
}

/// A message as the server returns it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ReceivedMessage {
    pub(super) message_id: String,
    pub(super) receipt_handle: String,
    #[serde(default)]
    pub(super) body: String,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
    #[serde(default)]
    message_attributes: BTreeMap<String, MessageAttribute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MessageAttribute {
    string_value: Option<String>,
}

impl ReceivedMessage {
    /// The attributes that are text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (String, String)> {
        self.message_attributes
            .iter()
            .filter_map(|(name, attribute)| attribute.string_value.clone().map(|value| (name.clone(), value)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveAnswer {
    #[serde(default)]
    messages: Option<Vec<ReceivedMessage>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchAnswer {
    #[serde(default)]
    failed: Option<Vec<FailedEntry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FailedEntry {
    id: String,
    #[serde(default)]
    sender_fault: bool,
    #[serde(default)]
    code: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributesAnswer {
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UrlAnswer {
    queue_url: String,
}

/// What an error of SQS means. It throttles with 400, and names the error in `__type`.
pub(super) fn error(_: u16, body: &[u8]) -> (Option<Finding>, String) {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let kind = json.get("__type").and_then(Value::as_str).and_then(|kind| kind.rsplit('#').next());
    // What checks signatures may answer in XML.
    let in_xml = || {
        std::str::from_utf8(body).ok()?.split_once("<Code>")?.1.split_once("</Code>").map(|(code, _)| code)
    };
    let word = cloud::word(kind.or_else(in_xml).unwrap_or_default());
    let finding = match word.as_str() {
        "RequestThrottled"
        | "ThrottlingException"
        | "Throttling"
        | "KmsThrottled"
        | "RequestLimitExceeded" => Some(Finding { means: Means::Throttled, code: Code::RATE_LIMITED }),
        // Too many messages are held: some will be acknowledged.
        "OverLimit" => Some(Finding { means: Means::Transient, code: Code::RATE_LIMITED }),
        _ => None,
    };
    (finding, word)
}

/// The settings of a queue that lose messages.
pub(super) fn warnings(attributes: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    let kept = attributes.get("MessageRetentionPeriod").and_then(|value| value.parse::<u64>().ok());
    if let Some(days) = kept.map(|seconds| seconds / 86_400).filter(|days| *days < 7) {
        found.push(format!(
            "SQS deletes messages after {days} days, whether they were worked on or not; set \
             MessageRetentionPeriod to 1209600 (14 days)"
        ));
    }
    let redrive: Option<Value> =
        attributes.get("RedrivePolicy").and_then(|text| serde_json::from_str(text).ok());
    // The number is a text in the policies that some tools write.
    let most = redrive
        .as_ref()
        .and_then(|policy| policy.get("maxReceiveCount"))
        .and_then(|count| count.as_u64().or_else(|| count.as_str()?.parse().ok()));
    if let Some(most) = most.filter(|most| *most < 20) {
        found.push(format!(
            "SQS moves a message to its own dead-letter queue after {most} deliveries, without a reason; set \
             maxReceiveCount to 100, so that Tidegate's own limit comes first"
        ));
    }
    found
}

impl SqsApi {
    /// Sends one request.
    async fn call<T: DeserializeOwned>(
        &self,
        action: &str,
        body: &Value,
        poll: Option<Duration>,
    ) -> Result<T, QueueError> {
        let answer = self.send(action, body, poll).await.map_err(|fault| self.failed(&fault))?;
        // Some actions have no answer.
        let answer = if answer.is_empty() { &b"{}"[..] } else { &answer };
        serde_json::from_slice(answer)
            .map_err(|_| QueueError::Refused(format!("the answer to {action} is not that of SQS")))
    }

    async fn send(
        &self,
        action: &str,
        body: &Value,
        poll: Option<Duration>,
    ) -> Result<bytes::Bytes, CloudFault> {
        let request = CloudRequest {
            method: http::Method::POST,
            path: "/".into(),
            headers: vec![
                ("content-type", "application/x-amz-json-1.0".into()),
                ("x-amz-target", format!("AmazonSQS.{action}")),
            ],
            body: body.to_string().into(),
            poll,
        };
        self.service.call(&request).await
    }

    fn failed(&self, fault: &CloudFault) -> QueueError {
        let url = &self.queue_url;
        cloud::failed(fault, |fault| match fault.word.as_str() {
            "QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue" | "InvalidAddress" => {
                Some(format!("there is no queue {url}; create it, or check account, region and name"))
            }
            word @ ("AccessDenied" | "AccessDeniedException") => Some(format!(
                "the credentials may not use the queue {url} ({word}); it needs sqs:SendMessage, \
                 sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility and sqs:GetQueueAttributes"
            )),
            word @ ("InvalidClientTokenId"
            | "SignatureDoesNotMatch"
            | "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "IncompleteSignature"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
            | "InvalidAccessKeyId"
            | "InvalidSecurity"
            | "ExpiredToken"
            | "ExpiredTokenException") => Some(format!(
                "the credentials are not accepted ({word}); check the access key, the secret key, the session \
                 token and the clock of this machine"
            )),
            _ => None,
        })
    }

    /// Receives up to `most` messages and hides them from others for `lease` seconds.
    pub(super) async fn receive(
        &self,
        (most, lease): (usize, u64),
        wait: u64,
        attempt: Option<String>,
    ) -> Result<Vec<ReceivedMessage>, QueueError> {
        let mut body = json!({
            "QueueUrl": self.queue_url,
            "MaxNumberOfMessages": most.clamp(1, BATCH_MAX),
            "VisibilityTimeout": lease,
            "WaitTimeSeconds": wait,
            "MessageAttributeNames": ["All"],
            "MessageSystemAttributeNames":
                ["ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "SentTimestamp"],
        });
        if let (Some(attempt), Some(body)) = (attempt, body.as_object_mut()) {
            body.insert("ReceiveRequestAttemptId".into(), attempt.into());
        }
        let answer: ReceiveAnswer =
            self.call("ReceiveMessage", &body, Some(Duration::from_secs(wait))).await?;
        Ok(answer.messages.unwrap_or_default())
    }

    /// Sends up to ten entries, again those that the server failed to process. Returns for each the
    /// error code with which it was refused, or none.
    pub(super) async fn batch(
        &self,
        action: &str,
        entries: Vec<Value>,
    ) -> Result<Vec<Option<String>>, QueueError> {
        let mut refused = vec![None; entries.len()];
        let mut left: Vec<(usize, Value)> = entries.into_iter().enumerate().collect();
        let mut code = String::new();
        for attempt in 0..BATCH_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
            }
            let numbered = left.iter().map(|(id, entry)| {
                let mut entry = entry.clone();
                if let Some(entry) = entry.as_object_mut() {
                    entry.insert("Id".into(), id.to_string().into());
                }
                entry
            });
            let body = json!({ "QueueUrl": self.queue_url, "Entries": numbered.collect::<Vec<_>>() });
            let answer: BatchAnswer = self.call(action, &body, None).await?;
            let failed = answer.failed.unwrap_or_default();
            for entry in failed.iter().filter(|entry| entry.sender_fault) {
                if let Some(place) = entry.id.parse::<usize>().ok().and_then(|id| refused.get_mut(id)) {
                    *place = Some(cloud::word(&entry.code));
                }
            }
            left.retain(|(id, _)| {
                failed.iter().any(|entry| !entry.sender_fault && entry.id == id.to_string())
            });
            let Some(last) = failed.iter().rfind(|entry| !entry.sender_fault) else { return Ok(refused) };
            code = cloud::word(&last.code);
        }
        Err(QueueError::Unreachable(format!(
            "SQS did not process {} entries of {action} ({code})",
            left.len()
        )))
    }

    /// The URL of a queue as the server knows it.
    pub(super) async fn url_of(&self, name: &str, account: &str) -> Result<String, QueueError> {
        let body = json!({ "QueueName": name, "QueueOwnerAWSAccountId": account });
        Ok(self.call::<UrlAnswer>("GetQueueUrl", &body, None).await?.queue_url)
    }

    /// The attributes of the queue.
    pub(super) async fn attributes(&self) -> Result<BTreeMap<String, String>, QueueError> {
        let body = json!({ "QueueUrl": self.queue_url, "AttributeNames": ["All"] });
        Ok(self.call::<AttributesAnswer>("GetQueueAttributes", &body, None).await?.attributes)
    }

    /// Deletes all messages; `false` if that was done within the last minute, because then the
    /// server does not do it again.
    pub(super) async fn purge(&self) -> Result<bool, QueueError> {
        match self.send("PurgeQueue", &json!({ "QueueUrl": self.queue_url }), None).await {
            Ok(_) => Ok(true),
            Err(fault) if fault.word.ends_with("PurgeQueueInProgress") => Ok(false),
            Err(fault) => Err(self.failed(&fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_messages_are_told() {
        let found = |retention: &str, redrive: &str| {
            let pairs = [("MessageRetentionPeriod", retention), ("RedrivePolicy", redrive)];
            warnings(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()).len()
        };
        assert_eq!((found("1209600", ""), found("345600", "")), (0, 1));
        assert_eq!(found("345600", r#"{"maxReceiveCount":"3"}"#), 2);
        assert_eq!((found("x", r#"{"maxReceiveCount":100}"#), found("", r#"{"maxReceiveCount":5}"#)), (0, 1));
    }

    #[test]
    fn errors_are_read_by_their_type_and_nothing_else_is_quoted() {
        let (finding, word) = error(400, br#"{"__type":"com.amazonaws.sqs#RequestThrottled","message":"x"}"#);
        assert_eq!((finding.map(|f| f.means), word.as_str()), (Some(Means::Throttled), "RequestThrottled"));
        let (finding, word) = error(400, br#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist"}"#);
        assert_eq!((finding, word.as_str()), (None, "QueueDoesNotExist"));
        let (finding, word) =
            error(403, b"<Error><Code>InvalidClientTokenId</Code><Message>x</Message></Error>");
        assert_eq!((finding, word.as_str()), (None, "InvalidClientTokenId"));
        for body in [&b""[..], b"<html>", br#"{"__type":"a b <secret>"}"#, br#"{"__type":7}"#] {
            assert_eq!(error(500, body), (None, String::new()));
        }
    }
}
