//! Finds credentials in the URLs of a text: a password, a token as the user, a parameter.
//!
//! One reading for two uses: a person who writes a credential into a URL is refused, because the URL
//! would be in the command line, the state and the log; and text that is shown is masked as a last
//! safeguard. It reads text and not a parsed URL, because the text may be a snippet of a file, a
//! message of a library, or a URL that no parser accepts.

use super::{is_secret_query, looks_like_reference};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use tidegate_core::hex::unhex_byte;
use url::Url;

/// Where in a URL a credential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretInUrl {
    /// The password of `scheme://user:password@host`.
    Password,
    /// The user of `https://token@host`, where a user without a password is a token.
    User,
    /// The value of a parameter.
    Parameter,
}

impl fmt::Display for SecretInUrl {
    /// Names the part, and quotes nothing of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SecretInUrl::Password => "a password (`user:password@`)",
            SecretInUrl::User => "a user before the host (`token@`)",
            SecretInUrl::Parameter => "a secret parameter (such as `?token=` or `?key=`)",
        })
    }
}

/// A credential in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundSecret {
    pub(super) what: SecretInUrl,
    /// Its bytes in the text.
    pub(super) place: Range<usize>,
}

/// The first credential in a value that is one URL, or the path and query of one.
#[must_use]
pub fn secret_in_url(value: &str) -> Option<SecretInUrl> {
    let value = value.trim();
    if let Some(found) = find(value).first() {
        return Some(found.what);
    }
    if has_server_password(value) {
        return Some(SecretInUrl::Password);
    }
    // `password=` of a connection string such as `host=db user=me password=…`.
    let words = || value.split_whitespace().filter_map(|word| word.split_once('='));
    let is_string =
        words().any(|(name, _)| ["host", "hostaddr", "dbname", "user", "service"].contains(&name));
    if is_string && words().any(|(name, value)| name.contains("password") && !value.is_empty()) {
        return Some(SecretInUrl::Password);
    }
    // A relative one: the path of a request, with its query.
    if let Some((path, query)) = value.split_once('?')
        && path.starts_with('/')
        && !parameters(query, 0, &is_secret_query).is_empty()
    {
        return Some(SecretInUrl::Parameter);
    }
    // What a lenient parser reads out of `https:/user:password@host` and of line breaks in a scheme.
    let url = Url::parse(value).ok().filter(|url| is_web(url.scheme()))?;
    let user = (!url.username().is_empty()).then_some(SecretInUrl::User);
    url.password().filter(|password| !password.is_empty()).map(|_| SecretInUrl::Password).or(user)
}

/// Whether a value that is the URL of a server has a password. Here the whole value counts, because a password
/// may hold a quote or a space, at which a URL in a text ends, or look like a placeholder, which no server takes.
fn has_server_password(value: &str) -> bool {
    let Some((scheme, rest)) = value.split_once(':') else { return false };
    let rest = rest.trim_start_matches('/');
    let user = rest.rfind('@').and_then(|end| rest.get(..end)).unwrap_or_default();
    let password = user.split_once(':').map(|(_, password)| password).unwrap_or_default();
    let is_mask = password.chars().all(|c| c == '*');
    is_server(&scheme.trim_start_matches(['"', '\'']).to_ascii_lowercase()) && !is_mask && !user.contains('?')
}

/// A text with the credentials in its URLs replaced.
#[must_use]
pub(super) fn masked<'a>(text: &'a str, mask: &str) -> Cow<'a, str> {
    let found = find(text);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for secret in found {
        out.push_str(text.get(at..secret.place.start).unwrap_or_default());
        out.push_str(mask);
        at = secret.place.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    Cow::Owned(out)
}

/// The places of the credentials in the URLs of a text, in bytes.
#[must_use]
pub fn secrets_in(text: &str) -> Vec<Range<usize>> {
    find(text).into_iter().map(|found| found.place).collect()
}

/// The credentials in the URLs of a text, in their order.
pub(super) fn find(text: &str) -> Vec<FoundSecret> {
    let mut found: Vec<FoundSecret> = Vec::new();
    for (at, _) in text.match_indices("://") {
        // One that was read as a part of the URL before it, such as a redirect in its query.
        if found.last().is_some_and(|last| last.place.end > at) {
            continue;
        }
        let before = text.get(..at).unwrap_or_default();
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let scheme = before.rfind(|c| !is_scheme(c)).map_or(before, |end| {
            before.get(end..).map_or("", |rest| rest.trim_start_matches(|c| !is_scheme(c)))
        });
        if scheme.is_empty() {
            continue;
        }
        let start = at + "://".len();
        let rest = text.get(start..).unwrap_or_default();
        let rest =
            rest.split(|c: char| c.is_whitespace() || "\"'`<>“”".contains(c)).next().unwrap_or_default();
        of_url(scheme, rest, start, &mut found);
    }
    found
}

/// Adds the credentials of a URL of which `rest` follows the scheme, at byte `start` of the text.
fn of_url(scheme: &str, rest: &str, start: usize, found: &mut Vec<FoundSecret>) {
    let scheme = scheme.to_ascii_lowercase();
    let authority_end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let authority = rest.get(..authority_end).unwrap_or_default();
    // Clients of databases and brokers also accept a password with a slash.
    let end = match authority.rfind('@') {
        None if is_server(&scheme) => rest.split('?').next().and_then(|whole| whole.find('@')),
        end => end,
    };
    if let Some(end) = end {
        let user = rest.get(..end).unwrap_or_default();
        match user.find(':') {
            Some(colon) if !is_placeholder(user.get(colon + 1..).unwrap_or_default()) => {
                found
                    .push(FoundSecret { what: SecretInUrl::Password, place: start + colon + 1..start + end });
            }
            None if (is_web(&scheme) || is_bus(&scheme)) && !is_placeholder(user) => {
                found.push(FoundSecret { what: SecretInUrl::User, place: start..start + end });
            }
            _ => {}
        }
    }
    let Some(query_at) = rest.find(['?', '#']).map(|at| at + 1) else { return };
    let query = rest.get(query_at..).unwrap_or_default();
    // The `key` of a broker is a file, and its secrets may be references.
    let secret_of_server = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["password", "passwd", "pwd", "secret", "token"].iter().any(|word| name.contains(word))
    };
    if is_server(&scheme) || is_bus(&scheme) {
        found.extend(parameters(query, start + query_at, &secret_of_server));
    } else {
        found.extend(parameters(query, start + query_at, &is_secret_query));
    }
}

/// The secret parameters of a query at byte `start`.
fn parameters(query: &str, start: usize, is_secret: &dyn Fn(&str) -> bool) -> Vec<FoundSecret> {
    let (mut found, mut at) = (Vec::new(), start);
    for pair in query.split_inclusive(['&', ';', '?', '#']) {
        let own = pair.trim_end_matches(['&', ';', '?', '#']);
        // A sentence may go on behind the URL.
        let own = own.trim_end_matches([',', ')', ']', '}', '\\']);
        if let Some((name, value)) = own.split_once('=')
            && is_secret(&decoded(name))
            && !is_placeholder(pair.split_once('=').map_or("", |(_, value)| value))
            && !value.is_empty()
        {
            let from = at + name.len() + 1;
            found.push(FoundSecret { what: SecretInUrl::Parameter, place: from..from + value.len() });
        }
        at += pair.len();
    }
    found
}

/// Whether a value stands for one that comes from elsewhere: `{key}`, `env:NAME`, `***`, nothing.
fn is_placeholder(value: &str) -> bool {
    let value = decoded(value.trim_end_matches(['&', ';', '?', '#', ',', ')', ']', '\\']));
    let braces = value.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    value.is_empty()
        || value.chars().all(|c| c == '*')
        || braces.is_some_and(|(name, rest)| !name.is_empty() && rest.is_empty())
        || looks_like_reference(&value)
}

/// A value without percent signs.
pub(super) fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let escaped = match bytes.get(at..at + 3) {
            Some([b'%', high, low]) => unhex_byte(*high, *low),
            _ => None,
        };
        out.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_web(scheme: &str) -> bool {
    matches!(scheme, "http" | "https" | "ws" | "wss" | "ftp" | "sqs+http")
}

/// A bus at which a user without a password is a token.
fn is_bus(scheme: &str) -> bool {
    matches!(scheme, "nats" | "tls+nats" | "tls" | "pubsub" | "sqs" | "sqs+http")
}

/// The servers of databases and queues.
fn is_server(scheme: &str) -> bool {
    let family = scheme.split('+').next().unwrap_or_default();
    matches!(
        family,
        "postgres" | "postgresql" | "redis" | "rediss" | "amqp" | "amqps" | "nats" | "kafka" | "mysql"
    ) || is_bus(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_server_is_found_whatever_characters_it_has() {
        for url in [
            "postgres://u:it's@h/db",
            "postgres://u:a b@h/db",
            "redis://:a<b@h/0",
            "amqp://u:{pw}@h/v",
            "postgres://u:env:PW@h/db",
            "\"postgres://u:pw@h/db\"",
            "postgres:/u:pw@h/db",
        ] {
            assert_eq!(secret_in_url(url), Some(SecretInUrl::Password), "{url}");
        }
        for url in
            ["postgres://u@h/db", "postgres://u:***@h/db", "postgres://h/db?options=a:b@c", "letters.db"]
        {
            assert_eq!(secret_in_url(url), None, "{url}");
        }
    }
}
