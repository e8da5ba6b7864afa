//! Provider profiles: what is peculiar to a service, as data.
//!
//! Every service throttles, fails and says "nothing found" in its own way. Code that knows this
//! for eighteen services is eighteen places to be wrong; data can be read, corrected and tested
//! by somebody who knows the service and no Rust. So a profile is a YAML file (`profiles/*.yaml`,
//! embedded in the binary): how to ask, how its headers and statuses are meant, what an error in
//! a 200 looks like, where the answer is. A person's own file of the same name wins, and a file
//! with `extends` changes only what it names.
//!
//! The code that applies a profile is small, pure and total: [`Profile::request`] makes a request
//! out of a question, [`Profile::read`] makes a finding and answers out of a response, and no body
//! can make either of them fail. Everything that can be wrong in a profile is refused when it is
//! loaded, at its line.
//!
//! | file | holds |
//! |---|---|
//! | `form` | the keys of a profile |
//! | `value`, [`template`], [`mod@pointer`], `rule` | its values, checked |
//! | `load`, `error` | embedded and own files, complaints |
//! | `ask` | from question to request |
//! | `read` | from response to finding and answers |
//! | `pull`, `xml` | the few values that are wanted out of a body |
//! | `show` | `tidegate profiles ls` and `show` |

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

use form::{BodyFormat, HeaderMeans, ProfileSpec, Repeat, Statuses, Unit};
use pointer::Pointers;
use rule::Look;
use std::fmt;
use std::time::Duration;
use tidegate_core::classify::{Classifier, RETRYABLE, StatusSet};
use tidegate_core::hint::{self, HintProfile, Meaning};
use value::Status;

/// A profile, checked and ready.
#[derive(Clone, Debug)]
pub struct Profile {
    form: ProfileSpec,
    formats: Vec<BodyFormat>,
    plan: pull::PointerTrie,
    rules: Vec<CompiledRule>,
    shapes: Vec<CompiledShape>,
    /// The indexes of the texts that make an empty answer doubtful.
    doubts: Vec<usize>,
    attributes: Vec<String>,
    elements: Vec<String>,
}

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// It ends before it is complete.
    Cut,
    /// It is not of its form, or beyond a limit.
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
    score_max: f64,
}

impl Profile {
    /// A profile of a whole form, or why it is none.
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

    /// The name by which it is chosen.
    #[must_use]
    pub fn name(&self) -> &str {
        self.form.name.as_str()
    }

    /// Everything it says, as written.
    #[must_use]
    pub const fn form(&self) -> &ProfileSpec {
        &self.form
    }

    /// How its statuses are to be classified.
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

    /// How its headers are to be read.
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

    /// Calls per second to begin with.
    #[must_use]
    pub fn rate_per_second(&self) -> f64 {
        self.form.rate.as_ref().map_or(1.0, |r| r.per_second.get())
    }

    /// Calls at once after a rest.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.form.rate.as_ref().map_or(1, |r| r.burst)
    }

    /// Calls under way at once.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.form.in_flight.unwrap_or(8)
    }

    /// The time of one attempt.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.form.timeout.map_or(Duration::from_secs(30), value::TimeSpan::get)
    }

    /// The largest body that is read.
    #[must_use]
    pub fn body_bytes_max(&self) -> u64 {
        self.form.body_bytes_max.unwrap_or(64 << 20)
    }

    /// May W3C trace headers be sent along?
    #[must_use]
    pub fn trace_context(&self) -> bool {
        self.form.trace_context.unwrap_or(false)
    }

    /// What a repeated request does.
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

/// What no single value can know to be wrong.
fn check(form: &ProfileSpec) -> Result<(), String> {
    use template::Placeholder;
    if form.about.as_deref().is_none_or(|about| about.trim().is_empty()) {
        return Err("`about` is missing: one sentence about the service".into());
    }
    if let Some(auth) = &form.auth {
        if auth.query.is_some() == auth.header.is_some() {
            return Err("`auth` names either `query` or `header`".into());
        }
        if auth.scheme.is_some() && auth.header.is_none() {
            return Err("`auth.scheme` goes with `header`".into());
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
            return Err(format!("`{name}` has a placeholder of the other direction"));
        }
        let need = if name == "forward" {
            &[Placeholder::Address][..]
        } else {
            &[Placeholder::Lat, Placeholder::Lon][..]
        };
        if !need.iter().all(|n| places.contains(n)) {
            return Err(format!("`{name}` does not hold what is asked: {{address}}, or {{lat}} and {{lon}}"));
        }
        if !endpoint.form.is_empty() && endpoint.method != form::RequestMethod::Post {
            return Err(format!("`{name}.form` needs `method: POST`"));
        }
        if endpoint.form.iter().flat_map(|(_, t)| t.places()).any(|p| p == Placeholder::Key) {
            return Err(format!("`{name}.form` cannot hold {{key}}; use `auth`"));
        }
    }
    if form.rate.as_ref().is_some_and(|r| r.burst == 0) {
        return Err("`rate.burst` is at least 1".into());
    }
    if form.in_flight == Some(0) {
        return Err("`in_flight` is at least 1".into());
    }
    let none = Statuses::default();
    let of = form.status.as_ref().unwrap_or(&none);
    let both = of.terminal.iter().find(|s| of.retryable.contains(s) || of.throttle.contains(s));
    if let Some(status) = both {
        return Err(format!("`status`: {} cannot be terminal and retryable", u16::from(*status)));
    }
    let shapes = form.answers.as_deref().unwrap_or_default();
    for (i, shape) in shapes.iter().enumerate() {
        if shapes.iter().take(i).any(|other| other.list == shape.list) {
            let list = String::from(shape.list.clone());
            return Err(format!("`answers`: two shapes read `{list}`; give one several pointers instead"));
        }
    }
    // A path through a list's elements would never be looked at.
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

/// Why a question cannot be asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The address is blank.
    Blank,
    /// The place is none.
    OffTheGlobe {
        /// Longitude in degrees, as given.
        lon: f64,
        /// Latitude in degrees, as given.
        lat: f64,
    },
    /// The service does not answer such questions.
    NoEndpoint {
        /// The name of the profile.
        profile: String,
        /// Whether it is forward geocoding, from address to coordinate.
        forward: bool,
    },
    /// The profile names no address.
    NoUrl(String),
    /// The service demands a credential.
    NoKey(String),
    /// The service demands a User-Agent that names the caller.
    UserAgent {
        /// The name of the profile.
        profile: String,
        /// The advice: which User-Agent to set.
        say: String,
    },
    /// The value cannot stand in this header.
    Header(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Blank => f.write_str("the address is blank"),
            Refusal::OffTheGlobe { lon, lat } => {
                write!(f, "lon {lon}, lat {lat} is not a place on the globe")
            }
            Refusal::NoEndpoint { profile, forward } => {
                let way = if *forward { "forward" } else { "reverse" };
                write!(f, "profile {profile} has no {way} endpoint")
            }
            Refusal::NoUrl(profile) => write!(f, "profile {profile} has no address of its own; give a url"),
            Refusal::NoKey(profile) => write!(f, "profile {profile} needs a key"),
            Refusal::UserAgent { profile, say } => write!(f, "profile {profile} needs a User-Agent: {say}"),
            Refusal::Header(name) => write!(f, "the value for {name} holds characters no header may have"),
        }
    }
}

impl std::error::Error for Refusal {}
