//! Templates with placeholders: `/v1/search`, `{lon},{lat}`.
//!
//! Every value in a path or a query is percent-encoded the same way: all UTF-8 bytes but letters,
//! digits and `-._~` become `%XX`. A space is `%20`, never `+`, because `+` means a space only in
//! forms and a plus sign elsewhere. A slash in an address is `%2F`, so that an address cannot
//! change the path. The literal characters of the template are sent unchanged.
//!
//! Why a placeholder without a value drops its whole parameter: `language=` is not the same as no
//! language, and several services reject it.

use super::ProfileError;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::ops::Range;

/// A placeholder in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// `{address}`: the address to geocode.
    Address,
    /// `{lat}`: the latitude in degrees.
    Lat,
    /// `{lon}`: the longitude in degrees.
    Lon,
    /// `{key}`: the credential.
    Key,
    /// `{language}`: the language of the answer.
    Language,
    /// `{country}`: the country to search in.
    Country,
    /// `{limit}`: the most answers.
    Limit,
}

const PLACES: [(&str, Placeholder); 7] = [
    ("address", Placeholder::Address),
    ("lat", Placeholder::Lat),
    ("lon", Placeholder::Lon),
    ("key", Placeholder::Key),
    ("language", Placeholder::Language),
    ("country", Placeholder::Country),
    ("limit", Placeholder::Limit),
];

/// The values of the placeholders.
#[derive(Clone, Copy, Default)]
pub(super) struct PlaceholderValues<'a> {
    pub(super) address: Option<&'a str>,
    /// Latitude in degrees.
    pub(super) lat: Option<f64>,
    /// Longitude in degrees.
    pub(super) lon: Option<f64>,
    pub(super) key: Option<&'a str>,
    pub(super) language: Option<&'a str>,
    pub(super) country: Option<&'a str>,
    /// The most answers.
    pub(super) limit: Option<u32>,
}

impl PlaceholderValues<'_> {
    fn has(&self, place: Placeholder) -> bool {
        match place {
            Placeholder::Address => self.address.is_some(),
            Placeholder::Lat => self.lat.is_some(),
            Placeholder::Lon => self.lon.is_some(),
            Placeholder::Key => self.key.is_some(),
            Placeholder::Language => self.language.is_some(),
            Placeholder::Country => self.country.is_some(),
            Placeholder::Limit => self.limit.is_some(),
        }
    }

    fn put(&self, place: Placeholder, out: &mut String, text: fn(&mut String, &str)) {
        let number = |out: &mut String, n: f64| {
            // `Display` never writes an exponent; minus zero becomes zero.
            let _ = write!(out, "{}", if n == 0.0 { 0.0 } else { n });
        };
        match place {
            Placeholder::Address => text(out, self.address.unwrap_or_default()),
            Placeholder::Key => text(out, self.key.unwrap_or_default()),
            Placeholder::Language => text(out, self.language.unwrap_or_default()),
            Placeholder::Country => text(out, self.country.unwrap_or_default()),
            Placeholder::Lat => number(out, self.lat.unwrap_or_default()),
            Placeholder::Lon => number(out, self.lon.unwrap_or_default()),
            Placeholder::Limit => {
                let _ = write!(out, "{}", self.limit.unwrap_or_default());
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum TemplatePart {
    Text(String),
    Place(Placeholder),
}

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    source: String,
    parts: Vec<TemplatePart>,
}

impl Template {
    /// Its placeholders.
    pub fn places(&self) -> impl Iterator<Item = Placeholder> + '_ {
        self.parts.iter().filter_map(|p| match p {
            TemplatePart::Place(place) => Some(*place),
            TemplatePart::Text(_) => None,
        })
    }

    /// Whether it has this placeholder.
    pub(super) fn has(&self, place: Placeholder) -> bool {
        self.places().any(|other| other == place)
    }

    /// It with this address, and nothing encoded.
    pub(super) fn plain(&self, address: &str) -> String {
        self.parts.iter().fold(String::new(), |all, part| match part {
            TemplatePart::Text(text) => all + text,
            TemplatePart::Place(Placeholder::Address) => all + address,
            TemplatePart::Place(_) => all + "-",
        })
    }

    /// Whether all its placeholders have a value.
    pub(super) fn is_full(&self, values: &PlaceholderValues<'_>) -> bool {
        self.places().all(|p| values.has(p))
    }

    /// Writes it percent-encoded; the range of the key is stored in `secret`.
    pub(super) fn put_url(
        &self,
        values: &PlaceholderValues<'_>,
        out: &mut String,
        secret: &mut Vec<Range<usize>>,
    ) {
        for part in &self.parts {
            let start = out.len();
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Place(place) => values.put(*place, out, percent),
            }
            if *part == TemplatePart::Place(Placeholder::Key) {
                secret.push(start..out.len());
            }
        }
    }

    /// The template as written in the profile.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.source
    }
}

impl TryFrom<String> for Template {
    type Error = ProfileError;

    fn try_from(source: String) -> Result<Template, ProfileError> {
        let mut parts = Vec::new();
        let mut rest = source.as_str();
        while let Some(open) = rest.find('{') {
            let (before, from) = rest.split_at(open);
            let Some(close) = from.find('}') else {
                return Err(ProfileError::Invalid(format!("`{source}`: `{{` without `}}`")));
            };
            let name = from.get(1..close).unwrap_or_default();
            let Some((_, place)) = PLACES.iter().find(|(known, _)| *known == name) else {
                let guess = tidegate_core::suggest::question(name, &names());
                return Err(ProfileError::Invalid(format!("unknown placeholder `{{{name}}}`{guess}")));
            };
            if !before.is_empty() {
                parts.push(TemplatePart::Text(before.to_owned()));
            }
            parts.push(TemplatePart::Place(*place));
            rest = from.get(close + 1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        let plain = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}#".contains(c);
        for part in &parts {
            if let TemplatePart::Text(text) = part
                && let Some(bad) = text.chars().find(|c| !plain(*c))
            {
                let reason = format!("`{source}`: {bad:?} is not allowed in a URL; percent-encode it");
                return Err(ProfileError::Invalid(reason));
            }
        }
        Ok(Template { source, parts })
    }
}

impl From<Template> for String {
    fn from(template: Template) -> String {
        template.source
    }
}

fn names() -> Vec<&'static str> {
    PLACES.iter().map(|(name, _)| *name).collect()
}

/// Appends `text`, percent-encoding all but the unreserved characters of RFC 3986.
pub(super) fn percent(out: &mut String, text: &str) {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.reserve(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(b));
        } else {
            out.push('%');
            out.push(HEX[usize::from(b >> 4)]);
            out.push(HEX[usize::from(b & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(template: &str, values: &PlaceholderValues<'_>) -> String {
        let mut out = String::new();
        Template::try_from(template.to_owned()).unwrap().put_url(values, &mut out, &mut Vec::new());
        out
    }

    #[test]
    fn values_are_encoded_and_the_template_is_not() {
        let v = PlaceholderValues { address: Some("a/b?c&d=e#f+g h\né"), ..Default::default() };
        assert_eq!(put("/x,{address};y", &v), "/x,a%2Fb%3Fc%26d%3De%23f%2Bg%20h%0A%C3%A9;y");
        let v = PlaceholderValues { lat: Some(-0.0), lon: Some(1e-7), ..Default::default() };
        assert_eq!(put("{lat},{lon}", &v), "0,0.0000001");
    }

    #[test]
    fn a_place_must_be_known_and_a_letter_fit() {
        let refuse = |t: &str| Template::try_from(t.to_owned()).unwrap_err().to_string();
        assert_eq!(refuse("q={adress}"), "unknown placeholder `{adress}`; did you mean `address`?");
        assert_eq!(refuse("{lat"), "`{lat`: `{` without `}`");
        for bad in ["a b", "a}b", "ü", "a#b", "a\nb"] {
            assert!(refuse(bad).contains("is not allowed in a URL"), "{bad}");
        }
    }
}
