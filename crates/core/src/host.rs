//! Which host names a server of ours answers to.
//!
//! A web site can let its own name point to an address of this machine (DNS rebinding) and have the browser
//! of a user ask us as if we were that site. The browser then names the site in the `Host` header. So a
//! server that has no authentication answers only to addresses, which nobody can point elsewhere, to
//! `localhost`, and to names that were allowed.

use alloc::string::String;
use core::net::{IpAddr, Ipv6Addr};

/// Which addresses a server answers to by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAddresses {
    /// All: it may listen on any.
    Any,
    /// Those of loopback: it listens on no other.
    Loopback,
}

/// The name or address of a `Host` header, without its port; `None` if it is none.
fn name_of(host: &str) -> Option<&str> {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if let Some((address, port)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_good = port.strip_prefix(':').is_some_and(is_port) || port.is_empty();
        return (is_good && address.parse::<Ipv6Addr>().is_ok()).then_some(address);
    }
    match host.split_once(':') {
        Some((name, port)) => is_port(port).then_some(name),
        None => Some(host),
    }
}

/// Whether a `Host` header names a server that listens on these addresses, or is called by one of `names`.
#[must_use]
pub fn is_ours(host: &str, addresses: HostAddresses, names: &[String]) -> bool {
    let Some(name) = name_of(host) else { return false };
    if let Ok(address) = name.parse::<IpAddr>() {
        return addresses == HostAddresses::Any || address.is_loopback();
    }
    name.eq_ignore_ascii_case("localhost") || names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_an_address_or_by_a_name_that_was_allowed() {
        let names = ["ops.example".into()];
        for host in [
            "127.0.0.1:9464",
            "127.0.0.1",
            "[::1]:9464",
            "[::1]",
            "localhost:1",
            "LocalHost",
            "ops.Example:80",
        ] {
            assert!(is_ours(host, HostAddresses::Loopback, &names), "{host}");
        }
        for host in ["10.0.0.7", "192.168.1.2:80", "[2001:db8::1]:80", "0.0.0.0:80"] {
            assert!(is_ours(host, HostAddresses::Any, &names), "{host}");
            assert!(!is_ours(host, HostAddresses::Loopback, &names), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost:x",
            "localhost:",
            "[::1]evil",
            "[evil]",
            "a@127.0.0.1",
            "sub.ops.example",
            "127.1",
            "2130706433",
            "",
        ] {
            assert!(!is_ours(host, HostAddresses::Any, &names), "{host}");
        }
    }
}
