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
    /// empty, every name is allowed.
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
    /// Connecting to the address is not allowed.
    Address(IpAddr),
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forbidden::Scheme(scheme) => write!(f, "unsupported URL scheme {scheme}; expected http or https"),
            Forbidden::NoHost => f.write_str("the URL has no host"),
            Forbidden::Host(host) => write!(f, "host {host} is not allowed"),
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

    /// Allows the host of this URL and the named others, at public addresses and, with `private`,
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
        let own = url.host_str().unwrap_or_default();
        allow.hosts =
            [own].into_iter().chain(others.iter().map(String::as_str)).map(str::to_ascii_lowercase).collect();
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
        if !self.host(name) {
            return Err(Forbidden::Host(name.to_owned()));
        }
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

    fn host(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.');
        self.hosts.is_empty()
            || self.hosts.iter().any(|pattern| match pattern.strip_prefix("*.") {
                Some(parent) => {
                    name.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
                }
                None => name == pattern,
            })
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
}
