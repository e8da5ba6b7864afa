//! Provider profiles: the peculiarities of a service, as data.
//!
//! Every service throttles, fails and reports "nothing found" in its own way. As code that would be
//! eighteen places for bugs; data can be read, corrected and tested by somebody who knows the
//! service but not Rust. So a profile is a YAML file (`profiles/*.yaml`, embedded in the binary):
//! how to build a request, what headers and statuses mean, what an error with status 200 looks
//! like, and where the answer is. A user's file of the same name replaces it, and a file with
//! `extends` changes only what it names.
//!
//! The code that applies a profile is small, pure and total: [`Profile::request`] builds a request
//! for a query, [`Profile::read`] extracts a finding and answers from a response, and no body can
//! make either fail. Every error in a profile is reported with its line when it is loaded.
//!
//! | file | holds |
//! |---|---|
//! | `form` | the schema of a profile |
//! | `value`, [`template`], [`mod@pointer`], `rule` | its values, validated |
//! | `load`, `error` | embedded and user files, errors |
//! | `ask` | builds the request for a query |
//! | `read` | interprets a response |
//! | `pull`, `xml` | extract the required values from a body |
//! | `show` | the output of `tidegate profiles` |

mod ask;
mod error;
pub mod form;
mod load;
pub mod pointer;
mod pull;
mod read;
mod rule;
mod send;
pub mod show;
pub mod template;
pub mod value;
mod xml;

pub use ask::{GeocodeInput, GeocodeQuery, RequestTemplate, SendHeader};
pub use error::{ProfileError, ProfileRequestError};
pub use load::{EMBEDDED, ProfileProblem, Profiles};
pub use read::{GeocodeCandidate, Sniffed};
pub use rule::SniffRule;
pub use send::ProfileRequestBuilder;

use crate::http::path::UnsafePath;
use form::{BodyFormat, HeaderMeans, ProfileSpec, Repeat, Statuses, Unit};
use pointer::Pointers;
use rule::Look;
use std::fmt;
use std::time::Duration;
use tidegate_core::classify::{Classifier, RETRYABLE, StatusSet};
use tidegate_core::hint::{self, HintProfile, Meaning};
use value::Status;

/// A profile, validated and compiled.
#[derive(Clone, Debug)]
pub struct Profile {
    form: ProfileSpec,
    formats: Vec<BodyFormat>,
    plan: pull::PointerTrie,
    rules: Vec<CompiledRule>,
    shapes: Vec<CompiledShape>,
    /// The indexes of the texts that may turn an empty answer into a failure.
    doubts: Vec<usize>,
    attributes: Vec<String>,
    elements: Vec<String>,
}

/// Why a body cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// It ends before it is complete.
    Cut,
    /// It is malformed, or exceeds a limit.
    Bad,
}

/// A sniff rule with the index of its value in the extracted values.
#[derive(Clone, Debug)]
struct CompiledRule {
    rule: SniffRule,
    slot: usize,
}

/// An answer shape with the indexes of its values in the extracted values.
#[derive(Clone, Debug)]
struct CompiledShape {
    list: usize,
    fields: [Vec<usize>; pull::FIELDS],
    /// The score of a perfect answer.
    score_max: f64,
}

impl Profile {
    /// Compiles a complete profile.
    pub fn new(form: ProfileSpec) -> Result<Profile, ProfileError> {
        check(&form).map_err(ProfileError::Invalid)?;
        let mut plan = pull::PointerTrie::default();
        let (mut attributes, mut elements) = (Vec::new(), Vec::new());
        let rules = form.sniff.iter().flatten().map(|rule| {
            let slot = match &rule.look {
                Look::Json(pointer) => plan.leaf(pointer),
                Look::XmlAttribute(_, name) => place(&mut attributes, name.as_str()),
                Look::XmlElement(_, name) => place(&mut elements, name.as_str()),
                Look::XmlRoot(_) | Look::Text(_) | Look::Html | Look::Status => 0,
            };
            CompiledRule { rule: rule.clone(), slot }
        });
        let rules = rules.collect();
        let shapes = form.answers.iter().flatten().map(|shape| {
            let fields = [
                Some(&shape.lon),
                Some(&shape.lat),
                shape.label.as_ref(),
                shape.score.as_ref(),
                shape.kind.as_ref(),
            ];
            CompiledShape {
                list: plan.list(&shape.list, fields),
                fields: fields.map(|field| {
                    let pointers = field.into_iter().flat_map(Pointers::iter);
                    pointers.map(|p| plan.leaf(&shape.list.join(p))).collect()
                }),
                score_max: shape.score_max.map_or(1.0, value::Positive::get),
            }
        });
        let shapes = shapes.collect();
        let doubts = form.doubt.iter().flat_map(Pointers::iter).map(|p| plan.leaf(p)).collect();
        let formats = form.formats.clone().unwrap_or_else(|| vec![BodyFormat::Any]);
        Ok(Profile { formats, plan, rules, shapes, doubts, attributes, elements, form })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.form.name.as_str()
    }

    /// Its specification as written.
    #[must_use]
    pub const fn form(&self) -> &ProfileSpec {
        &self.form
    }

    /// The classifier of its statuses.
    #[must_use]
    pub fn classifier(&self) -> Classifier {
        let usual = Classifier::default();
        let none = Statuses::default();
        let of = self.form.status.as_ref().unwrap_or(&none);
        let set = |usual: StatusSet, more: &[&[Status]], less: &[Status]| {
            let mut all: Vec<u16> = usual.iter().collect();
            all.extend(more.iter().copied().flatten().map(|s| u16::from(*s)));
            all.retain(|s| !less.iter().any(|l| u16::from(*l) == *s));
            StatusSet::of(&all)
        };
        Classifier {
            retryable: set(RETRYABLE, &[&of.retryable, &of.throttle], &of.terminal),
            throttle: set(usual.throttle, &[&of.throttle], &of.terminal),
            quota: set(usual.quota, &[&of.quota], &[]),
            ..usual
        }
    }

    /// How its headers are read.
    #[must_use]
    pub fn hints(&self) -> HintProfile {
        let Some(of) = &self.form.hint else { return HintProfile::default() };
        let means = |means| match means {
            HeaderMeans::RetryAfter => Meaning::RetryAfter(hint::TimeUnit::Seconds),
            HeaderMeans::RetryAfterMs => Meaning::RetryAfter(hint::TimeUnit::Milliseconds),
            HeaderMeans::Limit => Meaning::Limit,
            HeaderMeans::Remaining => Meaning::Remaining,
            HeaderMeans::Used => Meaning::Used,
            HeaderMeans::Reset => Meaning::Reset,
            HeaderMeans::Window => Meaning::Window,
            HeaderMeans::Nothing => Meaning::Nothing,
        };
        HintProfile {
            retry_after_unit: match of.retry_after_unit {
                Unit::S => hint::TimeUnit::Seconds,
                Unit::Ms => hint::TimeUnit::Milliseconds,
            },
            floor: of.floor.map(value::TimeSpan::get).unwrap_or_default(),
            extra: of.headers.iter().map(|h| (h.name.to_string(), means(h.means))).collect(),
        }
    }

    /// The initial rate in calls per second.
    #[must_use]
    pub fn rate_per_second(&self) -> f64 {
        self.form.rate.as_ref().map_or(1.0, |r| r.per_second.get())
    }

    /// The burst, in calls.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.form.rate.as_ref().map_or(1, |r| r.burst)
    }

    /// The most calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.form.in_flight.unwrap_or(8)
    }

    /// The timeout of one attempt.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.form.timeout.map_or(Duration::from_secs(30), value::TimeSpan::get)
    }

    /// The largest body that is read, in bytes.
    #[must_use]
    pub fn body_bytes_max(&self) -> u64 {
        self.form.body_bytes_max.unwrap_or(64 << 20)
    }

    /// Whether W3C trace headers may be sent.
    #[must_use]
    pub fn trace_context(&self) -> bool {
        self.form.trace_context.unwrap_or(false)
    }

    /// The effect of a repeated request.
    #[must_use]
    pub fn repeat(&self) -> Repeat {
        self.form.repeat.unwrap_or_default()
    }
}

fn place(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

/// Checks that involve more than one value.
fn check(form: &ProfileSpec) -> Result<(), String> {
    use template::Placeholder;
    if form.about.as_deref().is_none_or(|about| about.trim().is_empty()) {
        return Err("missing key `about`: one sentence about the service".into());
    }
    if let Some(auth) = &form.auth {
        if auth.query.is_some() == auth.header.is_some() {
            return Err("`auth` must have either `query` or `header`".into());
        }
        if auth.scheme.is_some() && auth.header.is_none() {
            return Err("`auth.scheme` requires `header`".into());
        }
    }
    for (name, endpoint, foreign) in [
        ("forward", &form.forward, &[Placeholder::Lat, Placeholder::Lon][..]),
        ("reverse", &form.reverse, &[Placeholder::Address][..]),
    ] {
        let Some(endpoint) = endpoint else { continue };
        let pairs = endpoint.query.iter().chain(endpoint.form.iter());
        let places: Vec<Placeholder> =
            endpoint.path.places().chain(pairs.flat_map(|(_, t)| t.places())).collect();
        if places.iter().any(|p| foreign.contains(p)) {
            return Err(format!("`{name}` has a placeholder for the other direction"));
        }
        let need = if name == "forward" {
            &[Placeholder::Address][..]
        } else {
            &[Placeholder::Lat, Placeholder::Lon][..]
        };
        if !need.iter().all(|n| places.contains(n)) {
            return Err(format!("`{name}` must contain {{address}}, or {{lat}} and {{lon}}"));
        }
        if !endpoint.form.is_empty() && endpoint.method != form::RequestMethod::Post {
            return Err(format!("`{name}.form` requires `method: POST`"));
        }
        if endpoint.form.iter().flat_map(|(_, t)| t.places()).any(|p| p == Placeholder::Key) {
            return Err(format!("`{name}.form` cannot contain {{key}}; use `auth`"));
        }
    }
    if form.rate.as_ref().is_some_and(|r| r.burst == 0) {
        return Err("`rate.burst` must be at least 1".into());
    }
    if form.in_flight == Some(0) {
        return Err("`in_flight` must be at least 1".into());
    }
    let none = Statuses::default();
    let of = form.status.as_ref().unwrap_or(&none);
    let both = of.terminal.iter().find(|s| of.retryable.contains(s) || of.throttle.contains(s));
    if let Some(status) = both {
        return Err(format!("`status`: {} cannot be both terminal and retryable", u16::from(*status)));
    }
    let shapes = form.answers.as_deref().unwrap_or_default();
    for (i, shape) in shapes.iter().enumerate() {
        if shapes.iter().take(i).any(|other| other.list == shape.list) {
            let list = String::from(shape.list.clone());
            return Err(format!("`answers`: two shapes read `{list}`; use one shape with several pointers"));
        }
    }
    // A pointer through the elements of a list would never match.
    for rule in form.sniff.iter().flatten() {
        let Look::Json(pointer) = &rule.look else { continue };
        for shape in form.answers.iter().flatten() {
            let inside = pointer.steps().strip_prefix(shape.list.steps());
            let first = inside.and_then(|rest| rest.first());
            if first.is_some_and(|step| !step.is_empty() && step.bytes().all(|b| b.is_ascii_digit())) {
                let (at, list) = (String::from(pointer.clone()), String::from(shape.list.clone()));
                return Err(format!("`sniff`: `{at}` looks into `{list}`, which `answers` reads"));
            }
        }
    }
    Ok(())
}

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The address is blank.
    Blank,
    /// The coordinate is outside the range of longitude and latitude.
    OffTheGlobe {
        /// Longitude in degrees, as given.
        lon: f64,
        /// Latitude in degrees, as given.
        lat: f64,
    },
    /// The service does not support this kind of query.
    NoEndpoint {
        /// The name of the profile.
        profile: String,
        /// Whether it is forward geocoding, from address to coordinate.
        forward: bool,
    },
    /// The profile has no URL.
    NoUrl(String),
    /// The service requires a credential.
    NoKey(String),
    /// The service requires a User-Agent that names the caller.
    UserAgent {
        /// The name of the profile.
        profile: String,
        /// The advice: which User-Agent to set.
        say: String,
    },
    /// The value is not valid in this header.
    Header(String),
    /// The value would lead to another path of the service.
    Path(UnsafePath),
}

impl From<UnsafePath> for Refusal {
    fn from(why: UnsafePath) -> Refusal {
        Refusal::Path(why)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Blank => f.write_str("the address is blank"),
            Refusal::OffTheGlobe { lon, lat } => write!(f, "lon {lon}, lat {lat} is out of range"),
            Refusal::NoEndpoint { profile, forward } => {
                let way = if *forward { "forward" } else { "reverse" };
                write!(f, "profile {profile} has no {way} endpoint")
            }
            Refusal::NoUrl(profile) => {
                write!(f, "profile {profile} has no default URL; pass one with --url or `url`")
            }
            Refusal::NoKey(profile) => write!(
                f,
                "profile {profile} requires a key; pass --key env:NAME, or set `key: env:NAME` of the service \
                 in the manifest, where NAME is the environment variable that holds it"
            ),
            Refusal::UserAgent { profile, say } => write!(
                f,
                "profile {profile} requires a User-Agent: {say}; pass --user-agent TEXT, or set `user_agent` \
                 of the service in the manifest"
            ),
            Refusal::Header(name) => {
                write!(f, "the value for {name} contains characters that are not allowed in a header")
            }
            Refusal::Path(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}
