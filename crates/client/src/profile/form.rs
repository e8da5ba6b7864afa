//! The schema of a profile: every key of its YAML.
//!
//! Values are checked while they are parsed (templates know their placeholders, pointers their
//! syntax, rates are positive), so that every error has its line. All keys but `name` are optional:
//! a missing one has the default given here or, with `extends`, the value of the base profile.

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
            /// The name of the profile.
            pub name: Name,
            /// The base profile, which provides every key that is missing here.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub extends: Option<Name>,
            $($(#[$doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $key: Option<$type>,)*
        }

        impl ProfileSpec {
            /// This profile over a base: missing keys are taken from the base.
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
    /// The base URL, to which paths are appended.
    url: Url,
    /// How the credential is sent; without it, none is sent.
    auth: Auth,
    /// Forward geocoding, from address to coordinate.
    forward: Endpoint,
    /// Reverse geocoding, from coordinate to address.
    reverse: Endpoint,
    /// Batch requests, if the service supports them.
    batch: BatchEndpoint,
    /// How its rate-limit headers are read.
    hint: HintSpec,
    /// The meaning of its statuses where it differs from the default.
    status: Statuses,
    /// The formats of a valid body; `any` by default.
    formats: Vec<BodyFormat>,
    /// Prefixes of the Content-Type of a valid body.
    content_types: Vec<String>,
    /// Rules for errors, throttles and empty answers in the body. The first match applies.
    sniff: Vec<SniffRule>,
    /// How to parse an answer. The first shape that fits applies.
    answers: Vec<AnswerShape>,
    /// Where a text beside an empty list of answers reports a failure. The result is "no match"
    /// only if there is no such text, or if it says that nothing was found.
    doubt: Pointers,
    /// The initial rate: by default 1 call per second and a burst of 1.
    rate: Rate,
    /// The most calls in flight; 8 by default.
    in_flight: u32,
    /// The timeout of one attempt; 30 s by default.
    timeout: TimeSpan,
    /// The largest body that is read, in bytes; 64 MiB by default.
    body_bytes_max: u64,
    /// What it requires of the User-Agent.
    user_agent: UserAgent,
    /// The header for the idempotency key.
    idempotency_header: Header,
    /// Whether W3C trace headers may be sent; false by default.
    trace_context: bool,
    /// The effect of a repeated request; `safe` by default.
    repeat: Repeat,
    /// The price of a call.
    price: Price,
    /// Notes for users.
    notes: Vec<String>,
}

/// How the credential is sent: in a query parameter or in a header.
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

/// The endpoint of a request.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The HTTP method, `GET` or `POST`; `GET` by default.
    #[serde(default)]
    pub method: RequestMethod,
    /// The base URL of this endpoint, if it differs from that of the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Url>,
    /// The path, joined to the `url`.
    pub path: Template,
    /// The query, in order. A parameter whose placeholder has no value is omitted.
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
    /// The name of the method in HTTP.
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

/// The format of a batch request.
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

/// A header of this service only.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderHint {
    /// Its name.
    pub name: Header,
    /// Its meaning.
    pub means: HeaderMeans,
}

/// The meaning of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderMeans {
    /// A wait; a bare number is in seconds.
    RetryAfter,
    /// A wait; a bare number is in milliseconds.
    RetryAfterMs,
    /// The number of calls allowed per window.
    Limit,
    /// The number of calls left in the window.
    Remaining,
    /// The number of calls made in the window.
    Used,
    /// The time when the quota is restored.
    Reset,
    /// The length of the window.
    Window,
    /// Nothing: the header is wrong and is ignored.
    Nothing,
}

/// The meaning of statuses where it differs from the default table.
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
    /// Statuses that are not retried, although the default table retries them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminal: Vec<Status>,
}

/// The format of a valid body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyFormat {
    /// JSON.
    Json,
    /// XML.
    Xml,
    /// Anything that is neither HTML nor empty: an image, a table.
    Binary,
    /// A picture or a vector tile, by its bytes.
    Tile,
    /// Anything at all.
    Any,
}

/// One shape of answer: JSON pointers to its candidates and their fields.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerShape {
    /// The list of answers. An object is treated as a list of one.
    pub list: Pointer,
    /// The longitude inside an answer: a number, or a string that contains one. Of several
    /// pointers, those present in the body apply.
    pub lon: Pointers,
    /// The latitude inside an answer.
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

/// A rate limit.
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

/// What the service requires of the User-Agent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UserAgent {
    /// Whether the User-Agent must name the caller, not the HTTP library.
    pub required: bool,
    /// The advice if it is missing.
    pub say: String,
}

/// The effect of a repeated request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Repeat {
    /// None beyond that of the first.
    #[default]
    Safe,
    /// It is billed again.
    Billed,
    /// It is expensive for the service.
    Costly,
}

/// The price of a call.
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
