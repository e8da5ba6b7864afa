//! The form of a profile: every key that its YAML may have.
//!
//! Values are checked while they are read (a template knows its placeholders, a pointer its
//! syntax, a rate is positive), so that every complaint carries its line. All keys but `name` may
//! be left out: a missing one has the default named here, or, with `extends`, the value of the
//! profile that is extended.

use super::pointer::{Pointer, Pointers};
use super::rule::SniffRule;
use super::template::Template;
use super::value::{Header, Name, Pairs, Positive, Status, TimeSpan, Url};
use serde::{Deserialize, Serialize};

macro_rules! form {
    ($($(#[$doc:meta])* $key:ident: $type:ty,)*) => {
        /// The specification of a profile: the content of its file.
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct ProfileSpec {
            /// The name by which it is chosen.
            pub name: Name,
            /// The profile that gives every key which is missing here.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub extends: Option<Name>,
            $($(#[$doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $key: Option<$type>,)*
        }

        impl ProfileSpec {
            /// This form over another: what is missing here is taken from there.
            #[must_use]
            pub fn over(self, base: &ProfileSpec) -> ProfileSpec {
                ProfileSpec { name: self.name, extends: self.extends, $($key: self.$key.or_else(|| base.$key.clone()),)* }
            }
        }

        /// Every key of a profile, in order.
        pub const KEYS: &[&str] = &["name", "extends", $(stringify!($key)),*];
    };
}

form! {
    /// One sentence about the service.
    about: String,
    /// The address of the service, up to where the paths begin.
    url: Url,
    /// How the credential travels; none without it.
    auth: Auth,
    /// From address to place.
    forward: Endpoint,
    /// From place to address.
    reverse: Endpoint,
    /// Many at once, where the service takes them.
    batch: BatchEndpoint,
    /// How its headers tell when to come again.
    hint: HintSpec,
    /// What its statuses mean where they differ from the usual.
    status: Statuses,
    /// The forms of a good body; `any` without it.
    formats: Vec<BodyFormat>,
    /// What the Content-Type of a good body starts with.
    content_types: Vec<String>,
    /// Errors, throttles and empty answers told by the body. The first rule that fits counts.
    sniff: Vec<SniffRule>,
    /// How to read an answer. The first shape that the body has counts.
    answers: Vec<AnswerShape>,
    /// Where a text beside an empty list of answers tells a failure. It is no match only if there
    /// is none, or if it says that nothing was found.
    doubt: Pointers,
    /// The pace to begin with: 1 per second and a burst of 1 without it.
    rate: Rate,
    /// Calls under way at once: 8 without it.
    in_flight: u32,
    /// The time of one attempt: 30 s without it.
    timeout: TimeSpan,
    /// The largest body that is read: 64 MiB without it.
    body_bytes_max: u64,
    /// What it demands of the User-Agent.
    user_agent: UserAgent,
    /// The header that makes a repeat safe.
    idempotency_header: Header,
    /// May W3C trace headers be sent along? Not without it.
    trace_context: bool,
    /// What a repeated request does: `safe` without it.
    repeat: Repeat,
    /// What a call costs.
    price: Price,
    /// What a person must know before using it.
    notes: Vec<String>,
}

/// How the credential travels: in one query parameter or in one header.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The name of the query parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<Name>,
    /// The name of the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
    /// The authentication scheme: the word before the credential in the header, such as `Bearer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Name>,
    /// Whether the service also answers without a credential.
    #[serde(default)]
    pub optional: bool,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The HTTP method, `GET` or `POST`; `GET` by default.
    #[serde(default)]
    pub method: RequestMethod,
    /// The address of this endpoint, where it is not the profile's `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Url>,
    /// The path, joined to the `url`.
    pub path: Template,
    /// The query, in order. A parameter with a placeholder that has no value is left out.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub query: Pairs,
    /// The fields of a form in the body (POST only), encoded like the query.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub form: Pairs,
}

/// The HTTP method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RequestMethod {
    /// GET.
    #[default]
    Get,
    /// POST.
    Post,
}

impl RequestMethod {
    /// As HTTP writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            RequestMethod::Get => "GET",
            RequestMethod::Post => "POST",
        }
    }
}

/// The endpoint of batch requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BatchEndpoint {
    /// The HTTP method.
    pub method: RequestMethod,
    /// The path, joined to the profile's `url`.
    pub path: Template,
    /// The format of the body.
    pub format: BatchFormat,
    /// The most records in one request.
    pub rows_max: u32,
}

/// The form of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchFormat {
    /// A JSON array.
    Json,
    /// A CSV file as a part of a multipart form.
    CsvMultipart,
}

/// How the rate-limit headers of the service are read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HintSpec {
    /// The unit of a bare number in Retry-After; `s` by default.
    #[serde(default)]
    pub retry_after_unit: Unit,
    /// The shortest wait: a shorter one that a header asks for is lengthened to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<TimeSpan>,
    /// Headers that only this service sends, and what they mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderHint>,
}

/// The unit of a bare number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Seconds.
    #[default]
    S,
    /// Milliseconds.
    Ms,
}

/// A header that only one service sends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderHint {
    /// Its name.
    pub name: Header,
    /// Its meaning.
    pub means: HeaderMeans,
}

/// What a header means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderMeans {
    /// A wait, a bare number in seconds.
    RetryAfter,
    /// A wait, a bare number in milliseconds.
    RetryAfterMs,
    /// Calls allowed per window.
    Limit,
    /// Calls left.
    Remaining,
    /// Calls made.
    Used,
    /// When the quota is restored.
    Reset,
    /// Length of the window.
    Window,
    /// Nothing: the header lies.
    Nothing,
}

/// What statuses mean where they differ from the usual table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Statuses {
    /// Statuses that throttle; 429 always does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<Status>,
    /// Statuses of a spent quota; 402 always is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quota: Vec<Status>,
    /// Retryable statuses, besides 408, 425, 429, 500, 502, 503 and 504.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retryable: Vec<Status>,
    /// Statuses that are not retried, although the usual table says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal: Vec<Status>,
}

/// The format of a good body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyFormat {
    /// JSON.
    Json,
    /// XML.
    Xml,
    /// Anything that is neither HTML nor empty: an image, a table.
    Binary,
    /// Anything at all.
    Any,
}

/// One shape of answer: JSON pointers to its candidates and their fields.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerShape {
    /// Where the list of answers is. An object there is a list of one.
    pub list: Pointer,
    /// The longitude inside one answer: a number, or a text that holds one. Of several pointers
    /// those count that the body has.
    pub lon: Pointers,
    /// The latitude.
    pub lat: Pointers,
    /// The address as the service writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Pointers>,
    /// The confidence score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Pointers>,
    /// The score of a perfect answer; 1 by default. Scores are divided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_max: Option<Positive>,
    /// The match type: a house, a street, a town.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Pointers>,
}

/// A pace.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Calls per second.
    pub per_second: Positive,
    /// The burst, in calls; 1 by default.
    #[serde(default = "one")]
    pub burst: u32,
}

const fn one() -> u32 {
    1
}

/// What the service demands of the User-Agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UserAgent {
    /// Whether the User-Agent must name the caller, not the HTTP library.
    pub required: bool,
    /// The advice to a person who did not set it.
    pub say: String,
}

/// What a repeated request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Repeat {
    /// Nothing more than the first.
    #[default]
    Safe,
    /// It is paid for again.
    Billed,
    /// It makes the service work hard again.
    Costly,
}

/// What a call costs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The price of a thousand calls.
    pub per_1000: Positive,
    /// The currency, such as `USD`.
    pub currency: Name,
    /// The date of the price, such as `2026-03`.
    pub as_of: Name,
}
