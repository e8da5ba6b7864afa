//! Which IP addresses a pipeline may connect to.
//!
//! A manifest names hosts, but a socket connects to an address, and whoever controls the DNS record
//! chooses it. So the address itself is checked, after name resolution and for literals too. By
//! default only public addresses are allowed. Private ones are allowed if the manifest says so.
//! Link-local addresses, where cloud metadata services hand out credentials, and addresses that no
//! server has (unspecified, multicast, documentation, reserved) are allowed only if listed
//! explicitly.
//!
//! IPv6 can embed an IPv4 address in many ways (mapped, compatible, NAT64, 6to4, Teredo, ISATAP).
//! Such addresses are refused, because a public service does not need them; where private addresses
//! are allowed, the embedded address is checked instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// The public internet.
    Public,
    /// Loopback, private, unique-local and carrier-grade networks.
    Private,
    /// Link-local, unspecified, multicast, broadcast, documentation, benchmarks, reserved.
    Special,
    /// An IPv4 address embedded in an IPv6 address.
    Wrapped(Ipv4Addr),
}

/// The class of an address.
#[must_use]
pub fn class(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => class_v4(v4),
        IpAddr::V6(v6) => class_v6(v6),
    }
}

fn class_v4(v4: Ipv4Addr) -> AddressClass {
    let [a, b, c, _] = v4.octets();
    match (a, b, c) {
        (127 | 10, ..) | (192, 168, _) => AddressClass::Private,
        (172, 16..=31, _) | (100, 64..=127, _) => AddressClass::Private,
        // Metadata services outside the link-local range: Alibaba's is in 100.64/10, Oracle's is
        // here.
        (169, 254, _) | (192, 0, 0) => AddressClass::Special,
        (0 | 224.., ..) => AddressClass::Special,
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) | (198, 18..=19, _) | (192, 88, 99) => {
            AddressClass::Special
        }
        _ => AddressClass::Public,
    }
}

fn class_v6(v6: Ipv6Addr) -> AddressClass {
    let s = v6.segments();
    let v4 = |hi: u16, lo: u16| {
        let ([a, b], [c, d]) = (hi.to_be_bytes(), lo.to_be_bytes());
        AddressClass::Wrapped(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Private,
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Special,
        // IPv4-mapped, IPv4-translated and IPv4-compatible.
        [0, 0, 0, 0, 0, 0xffff, hi, lo] | [0, 0, 0, 0, 0xffff, 0, hi, lo] | [0, 0, 0, 0, 0, 0, hi, lo] => {
            v4(hi, lo)
        }
        // NAT64: the well-known and the local prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, hi, lo] => v4(hi, lo),
        [0x64, 0xff9b, ..] => AddressClass::Special,
        [0x2002, hi, lo, ..] => v4(hi, lo),
        // Teredo stores the client's address inverted.
        [0x2001, 0, .., hi, lo] => v4(!hi, !lo),
        // ISATAP.
        [.., 0x0000 | 0x0200, 0x5efe, hi, lo] => v4(hi, lo),
        // The AWS metadata service is in the unique-local range, but is not a private server.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => AddressClass::Special,
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressClass::Special,
        // Nothing outside 2000::/3 is public; 2001::/23 is for protocols, not hosts.
        [0x2001, 0..=0x1ff, ..] => AddressClass::Special,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Special,
    }
}

/// Which addresses may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Whether private addresses are allowed.
    pub private: bool,
    /// Addresses that are allowed whatever their class.
    pub exact: Vec<IpAddr>,
}

impl Addresses {
    /// Whether connecting to this address is allowed.
    #[must_use]
    pub fn allow(&self, address: IpAddr) -> bool {
        self.exact.contains(&address)
            || match class(address) {
                AddressClass::Public => true,
                AddressClass::Private => self.private,
                AddressClass::Special => false,
                AddressClass::Wrapped(inner) => self.private && class_v4(inner) != AddressClass::Special,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_public_internet_passes() {
        let open = Addresses::default();
        for good in
            ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "2606:4700::1111"]
        {
            assert!(open.allow(ip(good)), "{good}");
        }
        let private = Addresses { private: true, exact: vec![] };
        for inner in [
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.100.100.200",
            "::1",
            "fd12:3456::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "2002:7f00:1::",
            "::7f00:1",
            "::ffff:0:7f00:1",
            "2001:0:1::80ff:fffe",
            "fe80:0:0:0:0:5efe:7f00:1",
        ] {
            assert!(!open.allow(ip(inner)), "{inner}");
            assert!(private.allow(ip(inner)), "{inner}");
        }
        for never in [
            "169.254.169.254",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "64:ff9b:1::a9fe:a9fe",
            "fe80::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.2.1",
            "198.51.100.7",
            "203.0.113.9",
            "198.18.0.1",
            "192.0.0.192",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
            "2001:2::1",
            "5f00::1",
            "::ffff:0.0.0.0",
            "100::1",
        ] {
            assert!(!open.allow(ip(never)), "{never}");
            assert!(!private.allow(ip(never)), "{never}");
        }
        let named = Addresses { private: false, exact: vec![ip("169.254.169.254")] };
        assert!(named.allow(ip("169.254.169.254")) && !named.allow(ip("127.0.0.1")));
    }
}
