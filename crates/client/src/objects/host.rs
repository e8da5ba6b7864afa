//! Hosts that a person allowed for addresses that come in data.
//!
//! The rules are stricter than those for the URL of a service, which a person wrote: an address that is a
//! number is no exception, a name without a port is not every port, and a redirect stays on its host.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::refusal::{ObjectRefusal, ObjectsError};
use crate::http::Allow;
use crate::http::address::Addresses;

/// The ports of a host that is named without one.
const USUAL: [u16; 2] = [80, 443];

/// A host, as a person allowed it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AllowedHost {
    /// As it was written.
    text: String,
    /// As URLs spell it, without a trailing dot.
    name: String,
    /// Whether its subdomains are meant, and not itself.
    subdomains: bool,
    /// The port, if one was written.
    port: Option<u16>,
    /// The addresses that were written out together with a port.
    exact: Vec<IpAddr>,
}

impl AllowedHost {
    pub(super) fn parse(text: &str) -> Result<AllowedHost, ObjectsError> {
        let wrong = || ObjectsError::Host(text.to_owned());
        let (subdomains, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains(['/', '\\', '@', '?', '#', '*']) || rest.contains(char::is_whitespace) {
            return Err(wrong());
        }
        // The colons of an IPv6 address are in brackets.
        let port = match rest.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => Some(port.parse::<u16>().map_err(|_| wrong())?),
            _ => None,
        };
        let url = Url::parse(&format!("http://{rest}/")).map_err(|_| wrong())?;
        let exact = match (url.host().ok_or_else(wrong)?, port) {
            (Host::Ipv4(ip), Some(_)) => vec![ip.into()],
            (Host::Ipv6(ip), Some(_)) => vec![ip.into()],
            (Host::Domain("localhost"), Some(_)) => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            _ => Vec::new(),
        };
        if subdomains && !matches!(url.host(), Some(Host::Domain(_))) {
            return Err(wrong());
        }
        Ok(AllowedHost { text: text.to_owned(), name: bare(&url), subdomains, port, exact })
    }

    fn is(&self, name: &str, port: u16) -> bool {
        let named = if self.subdomains {
            name.strip_suffix(&self.name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            name == self.name
        };
        named && self.port.map_or(USUAL.contains(&port), |only| only == port)
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The host of a URL, as it is compared.
fn bare(url: &Url) -> String {
    url.host_str().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// The host of a URL as a person would allow it: with its port, if that is not the usual one or the
/// address is private.
pub(super) fn named(url: &Url) -> String {
    let (name, port) = (bare(url), url.port_or_known_default().unwrap_or_default());
    let is_name = matches!(url.host(), Some(Host::Domain(name)) if name.trim_end_matches('.') != "localhost");
    if is_name && USUAL.contains(&port) { name } else { format!("{name}:{port}") }
}

/// Where a client may go for this URL: to its own host and port, and nowhere else.
pub(super) fn allow(hosts: &[AllowedHost], url: &Url, private: bool) -> Result<Allow, ObjectRefusal> {
    let (name, port) = (bare(url), url.port_or_known_default().unwrap_or_default());
    let found: Vec<&AllowedHost> = hosts.iter().filter(|host| host.is(&name, port)).collect();
    if found.is_empty() {
        return Err(ObjectRefusal::Host(named(url)));
    }
    // A host without a port may lead from http to https.
    let ports: &[u16] = if found.iter().any(|host| host.port.is_none()) { &USUAL } else { &[port] };
    let exact = found.iter().flat_map(|host| host.exact.iter().copied()).collect();
    let allow = Allow {
        hosts: ports.iter().map(|port| format!("{name}:{port}")).collect(),
        addresses: Addresses { private, exact },
    };
    let is_private =
        allow.url(url).is_err() || (name == "localhost" && !private && allow.addresses.exact.is_empty());
    if is_private { Err(ObjectRefusal::Private(named(url))) } else { Ok(allow) }
}
