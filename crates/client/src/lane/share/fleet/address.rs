//! Where the server of a fleet is.

use crate::secret::Secret;
use std::path::PathBuf;
use tidegate_core::part::{MissingPart, OptionalPart};
use url::Url;

/// The names of the files for TLS in a URL, with the words of PostgreSQL.
const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    Redis,
    Postgres,
    Nats,
}

impl ServerKind {
    /// The part of the program that talks to it.
    const fn part(self) -> OptionalPart {
        match self {
            ServerKind::Redis => OptionalPart::Redis,
            ServerKind::Postgres => OptionalPart::PostgreSql,
            ServerKind::Nats => OptionalPart::Nats,
        }
    }

    /// Refuses a server that this build cannot talk to.
    pub(super) const fn present(self) -> Result<(), MissingPart> {
        let is_there = match self {
            ServerKind::Redis => cfg!(feature = "redis"),
            ServerKind::Postgres => cfg!(feature = "postgres"),
            ServerKind::Nats => cfg!(feature = "nats"),
        };
        if is_there { Ok(()) } else { Err(MissingPart(self.part())) }
    }
}

/// A server, and how to get in.
pub(super) struct ServerAddress {
    pub(super) kind: ServerKind,
    /// The URL, without the files for TLS unless it is PostgreSQL's.
    pub(super) url: Secret,
    pub(super) tls: TlsFiles,
    shown: String,
}

/// The files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// The authority that has signed the server's certificate; `None` for those of the operating system.
    pub(super) root: Option<PathBuf>,
    /// The certificate of this client and its key.
    pub(super) own: Option<(PathBuf, PathBuf)>,
}

impl ServerAddress {
    /// Reads a URL. The error does not quote it.
    pub(super) fn parse(text: &str) -> Result<ServerAddress, String> {
        let expected = "expected redis://host, rediss://host (with TLS), postgres://user@host/database, \
                        nats://host or tls://host (NATS with TLS)";
        let invalid = || format!("this is no URL of a server at which lanes can be shared; {expected}");
        let mut url: Url = text.trim().parse().map_err(|_| invalid())?;
        let kind = match url.scheme() {
            "redis" | "rediss" => ServerKind::Redis,
            "postgres" | "postgresql" => ServerKind::Postgres,
            "nats" | "tls" => ServerKind::Nats,
            _ => return Err(invalid()),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        // PostgreSQL may be at a socket that its query names.
        if host.is_none() && kind != ServerKind::Postgres {
            return Err(invalid());
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let shown = format!("{}://{}{port}", url.scheme(), host.unwrap_or_default());
        if kind == ServerKind::Postgres {
            let (url, tls) = (Secret::new(text.trim().to_owned()), TlsFiles::default());
            return Ok(ServerAddress { kind, url, tls, shown });
        }
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let file = |name: &str| {
            let last = pairs.iter().rev().find(|(known, _)| known == name);
            last.map(|(_, value)| value.as_str())
                .filter(|value| !value.is_empty() && *value != "system")
                .map(PathBuf::from)
        };
        let own = match (file("sslcert"), file("sslkey")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("the URL has only one of sslcert and sslkey; set both".into()),
        };
        let tls = TlsFiles { root: file("sslrootcert"), own };
        if tls != TlsFiles::default() && !matches!(url.scheme(), "rediss" | "tls") {
            let scheme = if kind == ServerKind::Redis { "rediss://" } else { "tls://" };
            return Err(format!("sslrootcert, sslcert and sslkey need a URL that begins with {scheme}"));
        }
        let rest = pairs.iter().filter(|(name, _)| !FILES.contains(&name.as_str()));
        let rest: Vec<(String, String)> = rest.cloned().collect();
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        Ok(ServerAddress { kind, url: Secret::new(url.into()), tls, shown })
    }

    /// The server without user and password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ServerAddress {
        ServerAddress::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn a_url_names_the_server_and_is_shown_without_its_password() {
        for (text, kind, shown) in [
            ("redis://:hunter2@cache:6390/1", ServerKind::Redis, "redis://cache:6390"),
            ("rediss://cache", ServerKind::Redis, "rediss://cache"),
            ("postgres://u:hunter2@db/lanes?sslmode=require", ServerKind::Postgres, "postgres://db"),
            ("nats://u:hunter2@bus:4222", ServerKind::Nats, "nats://bus:4222"),
        ] {
            let address = parse(text);
            assert_eq!((address.kind, address.shown()), (kind, shown));
        }
    }

    #[test]
    fn files_for_tls_are_taken_out_of_the_url() {
        let address = parse("rediss://:p@cache/0?sslrootcert=/ca.pem&sslcert=/c&sslkey=/k&protocol=resp3");
        assert_eq!(address.url.reveal(), "rediss://:p@cache/0?protocol=resp3");
        let own = Some(("/c".into(), "/k".into()));
        assert_eq!(address.tls, TlsFiles { root: Some("/ca.pem".into()), own });
    }

    #[test]
    fn what_is_no_server_is_refused_without_being_quoted() {
        for bad in [
            "",
            "redis:",
            "cache:6379",
            "https://u:hunter2@a.test/",
            "redis://:hunter2@a.test?sslrootcert=/ca.pem",
            "rediss://:hunter2@a.test?sslcert=/c",
        ] {
            let why = ServerAddress::parse(bad).err().unwrap_or_else(|| panic!("{bad} is accepted"));
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
