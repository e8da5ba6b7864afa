//! Which URLs a pipeline may request.
//!
//! Every URL is checked before it is requested: the first one, each redirect, each link of a paged
//! response. URLs are parsed as browsers do, so `http://0x7f.1/`, `http://2130706433/` and
//! `http://0177.0.0.1/` are recognized as 127.0.0.1.

use super::address::Addresses;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use url::{Host, Url};

/// The hosts and addresses that may be requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Host names in lower case: `example.org`, or `*.example.org` for all its subdomains. If
    /// empty, every name is allowed. `example.org:8080` allows only this port, a name without a
    /// port every port.
    pub hosts: Vec<String>,
    /// The addresses that the names may resolve to.
    pub addresses: Addresses,
}

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// The scheme is neither http nor https.
    Scheme(String),
    /// The URL names no host.
    NoHost,
    /// The host is not in the list of allowed hosts.
    Host(String),
    /// The host is in the list, but not with this port.
    Port(String, u16),
    /// Connecting to the address is not allowed.
    Address(IpAddr),
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forbidden::Scheme(scheme) => write!(f, "unsupported URL scheme {scheme}; expected http or https"),
            Forbidden::NoHost => f.write_str("the URL has no host"),
            Forbidden::Host(host) => write!(f, "host {host} is not allowed"),
            Forbidden::Port(host, port) => {
                write!(f, "host {host} is allowed, but not its port {port}; name it as {host}:{port}")
            }
            Forbidden::Address(address) => write!(f, "{address} is not a public address"),
        }
    }
}

impl std::error::Error for Forbidden {}

impl Allow {
    /// Allows every public host.
    #[must_use]
    pub fn public() -> Allow {
        Allow::default()
    }

    /// Allows the host of this URL, at its port, and the named others, at public addresses and, with `private`,
    /// at private ones. A literal address or `localhost` in the URL is always allowed.
    #[must_use]
    pub fn meant(url: &Url, private: bool, others: &[String]) -> Allow {
        let mut allow = Allow::public();
        allow.addresses.private = private;
        match url.host() {
            Some(Host::Ipv4(ip)) => allow.addresses.exact.push(ip.into()),
            Some(Host::Ipv6(ip)) => allow.addresses.exact.push(ip.into()),
            Some(Host::Domain("localhost")) => {
                let both = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
                allow.addresses.exact.extend(both);
            }
            _ => {}
        }
        // A URL without a host allows no host, rather than every host.
        let own = url.host_str().unwrap_or_default().trim_end_matches('.');
        // A service at the usual port may lead from http to https.
        let ports = match url.port() {
            Some(port) => vec![port],
            None => vec![80, 443],
        };
        allow.hosts = ports.iter().map(|port| format!("{own}:{port}")).collect();
        allow.hosts.extend(others.iter().map(|name| name.to_ascii_lowercase()));
        allow
    }

    /// Checks a URL. The addresses of its host are checked after resolution.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn url(&self, url: &Url) -> Result<(), Forbidden> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Forbidden::Scheme(url.scheme().to_owned()));
        }
        let name = url.host_str().ok_or(Forbidden::NoHost)?;
        self.host(name.trim_end_matches('.'), url.port_or_known_default().unwrap_or_default())?;
        match literal(url) {
            Some(address) => self.address(address),
            None => Ok(()),
        }
    }

    /// Checks an address.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn address(&self, address: IpAddr) -> Result<(), Forbidden> {
        if self.addresses.allow(address) { Ok(()) } else { Err(Forbidden::Address(address)) }
    }

    fn host(&self, name: &str, port: u16) -> Result<(), Forbidden> {
        let is_named = |pattern: &str| match pattern.strip_prefix("*.") {
            Some(parent) => {
                name.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            None => name == pattern,
        };
        if self.hosts.is_empty() {
            return Ok(());
        }
        let mut known = false;
        for (pattern, only) in self.hosts.iter().map(|pattern| with_port(pattern)) {
            if is_named(pattern) {
                if only.is_none_or(|only| only == port) {
                    return Ok(());
                }
                known = true;
            }
        }
        Err(if known { Forbidden::Port(name.to_owned(), port) } else { Forbidden::Host(name.to_owned()) })
    }
}

/// A pattern and its port. The colons of an IPv6 address are in brackets.
fn with_port(pattern: &str) -> (&str, Option<u16>) {
    match pattern.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (pattern, None),
        },
        _ => (pattern, None),
    }
}

/// The address, if the host of the URL is a literal.
#[must_use]
fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(v4) => Some(IpAddr::V4(v4)),
        Host::Ipv6(v6) => Some(IpAddr::V6(v6)),
        Host::Domain(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(allow: &Allow, url: &str) -> Result<(), Forbidden> {
        allow.url(&Url::parse(url).unwrap())
    }

    #[test]
    fn odd_spellings_are_seen_through() {
        let allow = Allow::public();
        let loopback = Err(Forbidden::Address("127.0.0.1".parse().unwrap()));
        for url in [
            "http://127.0.0.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0x7f000001/",
            "http://017700000001/",
            "http://127.0.0.1./",
            "http://１２７.0.0.1/",
        ] {
            assert_eq!(judge(&allow, url), loopback, "{url}");
        }
        for url in [
            "http://[::1]/",
            "http://[::ffff:169.254.169.254]/latest",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://0/",
        ] {
            assert!(matches!(judge(&allow, url), Err(Forbidden::Address(_))), "{url}");
        }
        assert_eq!(judge(&allow, "http://8.8.8.8/"), Ok(()));
        assert_eq!(judge(&allow, "ftp://example.org/"), Err(Forbidden::Scheme("ftp".into())));
        assert_eq!(judge(&allow, "data:text/plain,x"), Err(Forbidden::Scheme("data".into())));
    }

    #[test]
    fn a_list_of_hosts_is_a_list() {
        let allow = Allow { hosts: vec!["example.org".into(), "*.geo.test".into()], ..Allow::default() };
        for good in
            ["http://example.org/", "https://EXAMPLE.org./", "http://a.geo.test/", "http://b.a.geo.test/"]
        {
            assert_eq!(judge(&allow, good), Ok(()), "{good}");
        }
        for bad in [
            "http://example.org.evil.test/",
            "http://evilexample.org/",
            "http://geo.test/",
            "http://xgeo.test/",
            "http://example.org@evil.test/",
            "http://8.8.8.8/",
        ] {
            assert!(matches!(judge(&allow, bad), Err(Forbidden::Host(_))), "{bad}");
        }
    }

    #[test]
    fn a_url_allows_its_own_port_and_a_name_every_port() {
        let meant = |url: &str| {
            Allow::meant(&Url::parse(url).unwrap(), false, &["Tiles.test".into(), "b.test:81".into()])
        };
        let usual = meant("http://example.org/");
        for good in ["https://example.org/", "http://tiles.test:8080/", "http://b.test:81/"] {
            assert_eq!(judge(&usual, good), Ok(()), "{good}");
        }
        for bad in ["http://example.org:6379/", "http://b.test/"] {
            assert!(matches!(judge(&usual, bad), Err(Forbidden::Port(..))), "{bad}");
        }
        let v6 = meant("http://[::1]:8080/");
        assert_eq!(judge(&v6, "http://[::1]:8080/x"), Ok(()));
        assert_eq!(judge(&v6, "http://[::1]/"), Err(Forbidden::Port("[::1]".into(), 80)));
    }
}
