//! Who may ask for the password, and how.
//!
//! A server that asks for the password in clear text learns it, and one that asks for its MD5 hash
//! learns enough to log in elsewhere with it or to guess it. With SCRAM a server learns neither. So a
//! host that is not this machine gets a password in the first two ways only inside TLS whose
//! certificate was checked, or if the URL says so with `require_auth`.
//!
//! The PostgreSQL client answers every request by itself. So the stream that it reads from looks at
//! the messages before it does, and a request that is not allowed never reaches it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::{error, fmt, io};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// A way in which a server lets somebody in; the names are those of `require_auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthMethod {
    /// It asks for nothing.
    None,
    /// The password in clear text.
    Password,
    /// A hash of the password.
    Md5,
    /// A proof that one knows the password, and one that the server does.
    Scram,
    /// Kerberos.
    Gss,
    /// Kerberos of Windows.
    Sspi,
}

impl AuthMethod {
    const ALL: [AuthMethod; 6] = [
        AuthMethod::None,
        AuthMethod::Password,
        AuthMethod::Md5,
        AuthMethod::Scram,
        AuthMethod::Gss,
        AuthMethod::Sspi,
    ];

    const fn name(self) -> &'static str {
        match self {
            AuthMethod::None => "none",
            AuthMethod::Password => "password",
            AuthMethod::Md5 => "md5",
            AuthMethod::Scram => "scram-sha-256",
            AuthMethod::Gss => "gss",
            AuthMethod::Sspi => "sspi",
        }
    }

    /// The method of a request, by its number in the protocol; `None` if it is a part of one that has
    /// begun, or one that the client does not know.
    const fn of_request(code: i32) -> Option<AuthMethod> {
        match code {
            3 => Some(AuthMethod::Password),
            5 => Some(AuthMethod::Md5),
            7 => Some(AuthMethod::Gss),
            9 => Some(AuthMethod::Sspi),
            10 => Some(AuthMethod::Scram),
            _ => None,
        }
    }

    /// What it is, as the object of "the server asks for".
    const fn asked(self) -> &'static str {
        match self {
            AuthMethod::None => "no password",
            AuthMethod::Password => "the password in clear text",
            AuthMethod::Md5 => "the MD5 hash of the password",
            AuthMethod::Scram => "a proof of the password (SCRAM)",
            AuthMethod::Gss | AuthMethod::Sspi => "a Kerberos ticket",
        }
    }
}

/// The methods that `require_auth` allows, as libpq reads it: a list, or a list of what is not allowed,
/// each with a `!` before it.
///
/// # Errors
/// When it is neither.
pub(super) fn required(text: &str) -> Result<Vec<AuthMethod>, String> {
    let invalid = || {
        let names = AuthMethod::ALL.map(AuthMethod::name).join(", ");
        format!(
            "invalid require_auth in the database URL; expected a list of {names}, or each with `!` before it"
        )
    };
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let negated = words.iter().filter(|word| word.starts_with('!')).count();
    if negated != 0 && negated != words.len() {
        return Err(invalid());
    }
    let method = |word: &&str| {
        let name = word.strip_prefix('!').unwrap_or(word);
        AuthMethod::ALL.into_iter().find(|method| method.name() == name).ok_or_else(invalid)
    };
    let named = words.iter().map(method).collect::<Result<Vec<_>, _>>()?;
    let listed = |method: &AuthMethod| named.contains(method) != (negated > 0);
    Ok(AuthMethod::ALL.into_iter().filter(listed).collect())
}

/// Whether every host of a URL is this machine: a socket in a directory, `localhost`, or an address
/// of the loopback network. A name that leads to one counts as elsewhere: the answer of a name server
/// is data.
pub(super) fn is_local(config: &Config) -> bool {
    let here = |address: &IpAddr| address.to_canonical().is_loopback();
    let addresses = config.get_hostaddrs();
    // An address goes before the name of the host.
    if !addresses.is_empty() {
        return addresses.iter().all(here);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|found| here(&found))
        }
        #[allow(unreachable_patterns, reason = "there are sockets on Unix only")]
        _ => true,
    })
}

/// What a stream allows the server to ask for.
#[derive(Clone, Debug)]
pub(super) struct AuthRules {
    /// The methods of `require_auth`, and its text.
    pub(super) required: Option<(Vec<AuthMethod>, String)>,
    /// Whether the server is on this machine.
    pub(super) is_local: bool,
}

impl AuthRules {
    /// Whether the server may ask in this way. `is_proven` says that it has shown a certificate that was
    /// checked, `is_encrypted` that there is TLS.
    fn allow(&self, method: AuthMethod, is_encrypted: bool, is_proven: bool) -> Result<(), AuthRefused> {
        let asked = method.asked();
        if let Some((methods, text)) = &self.required {
            let what = format!(
                "the server asks for {asked}, which require_auth={text} in its URL does not allow; the password was not sent"
            );
            return if methods.contains(&method) { Ok(()) } else { Err(AuthRefused(what)) };
        }
        // Inside TLS of a server that has proven who it is, clear text is how directories and tokens of
        // cloud databases work, and nobody else hears it.
        let gives_away = matches!(method, AuthMethod::Password | AuthMethod::Md5);
        if !gives_away || self.is_local || is_proven {
            return Ok(());
        }
        let over =
            if is_encrypted { "over TLS with a certificate that was not checked" } else { "without TLS" };
        let name = method.name();
        Err(AuthRefused(format!(
            "the server asks for {asked} {over}; the password was not sent, because anybody may be at the other end. Set sslmode=verify-full, or let the server use scram-sha-256; if you trust everybody between here and there, set require_auth={name}"
        )))
    }
}

/// A server asked for the password in a way that is not allowed.
#[derive(Debug)]
pub(super) struct AuthRefused(String);

impl fmt::Display for AuthRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for AuthRefused {}

/// What a server asked for, to be shown.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenMethod(Arc<AtomicU8>);

impl SeenMethod {
    fn set(&self, method: AuthMethod) {
        self.0.store(1 + method as u8, Ordering::Relaxed);
    }

    /// What it asked for, once it has.
    pub(super) fn asked(&self) -> Option<&'static str> {
        let seen = self.0.load(Ordering::Relaxed);
        AuthMethod::ALL.into_iter().find(|method| 1 + *method as u8 == seen).map(AuthMethod::asked)
    }
}

/// Follows the messages of a server until it lets us in.
pub(super) struct AuthGuard {
    rules: AuthRules,
    is_encrypted: bool,
    is_proven: bool,
    seen: SeenMethod,
    place: MessagePlace,
    was_asked: bool,
}

/// Where in the messages the last byte was.
enum MessagePlace {
    /// In the first bytes of a message: a tag, a length, and the number of a request.
    Head([u8; 9], usize),
    /// In a message, with so many bytes to come.
    Inside(usize),
    /// Behind the message that lets us in.
    Through,
}

/// The tag of a request or of the word that none is needed.
const REQUEST: u8 = b'R';

impl AuthGuard {
    pub(super) fn new(
        rules: AuthRules,
        (is_encrypted, is_proven): (bool, bool),
        seen: SeenMethod,
    ) -> AuthGuard {
        let place = MessagePlace::Head([0; 9], 0);
        AuthGuard { rules, is_encrypted, is_proven, seen, place, was_asked: false }
    }

    /// Looks at bytes before the client does.
    ///
    /// # Errors
    /// When the server asks for something that is not allowed. The client must not see the bytes then.
    pub(super) fn look(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((byte, rest)) = bytes.split_first() {
            match &mut self.place {
                MessagePlace::Through => return Ok(()),
                MessagePlace::Inside(left) => {
                    let skipped = bytes.len().min(*left);
                    *left -= skipped;
                    bytes = bytes.get(skipped..).unwrap_or_default();
                    if *left == 0 {
                        self.place = MessagePlace::Head([0; 9], 0);
                    }
                }
                MessagePlace::Head(head, len) => {
                    if let Some(place) = head.get_mut(*len) {
                        *place = *byte;
                    }
                    *len += 1;
                    bytes = rest;
                    let (head, len) = (*head, *len);
                    self.head(head, len)?;
                }
            }
        }
        Ok(())
    }

    /// Acts on the first bytes of a message, as soon as there are enough of them.
    fn head(&mut self, head: [u8; 9], len: usize) -> io::Result<()> {
        let [tag, a, b, c, d, e, f, g, h] = head;
        if len < 5 {
            return Ok(());
        }
        // The length counts itself, and not the tag.
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a message of an impossible length");
        let size = usize::try_from(i32::from_be_bytes([a, b, c, d])).map_err(|_| malformed())?;
        let own = if tag == REQUEST { 8 } else { 4 };
        let left = size.checked_sub(own).ok_or_else(malformed)?;
        if len < own + 1 {
            return Ok(());
        }
        self.place = if left == 0 { MessagePlace::Head([0; 9], 0) } else { MessagePlace::Inside(left) };
        if tag == REQUEST {
            self.request(i32::from_be_bytes([e, f, g, h]))?;
        }
        Ok(())
    }

    fn request(&mut self, code: i32) -> io::Result<()> {
        let is_through = code == 0;
        let method = match AuthMethod::of_request(code) {
            None if is_through && !self.was_asked => AuthMethod::None,
            None => {
                if is_through {
                    self.place = MessagePlace::Through;
                }
                return Ok(());
            }
            Some(method) => method,
        };
        self.was_asked = true;
        self.rules
            .allow(method, self.is_encrypted, self.is_proven)
            .map_err(|e| io::Error::new(io::ErrorKind::PermissionDenied, e))?;
        self.seen.set(method);
        if is_through {
            self.place = MessagePlace::Through;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> bool {
        is_local(&text.parse().unwrap())
    }

    #[test]
    fn this_machine_is_a_socket_localhost_or_a_loopback_address() {
        for host in [
            "127.0.0.1",
            "127.9.8.7:5433",
            "localhost",
            "LocalHost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "%2Fvar%2Frun",
            "db.example.org,10.0.0.1/x?hostaddr=127.0.0.1,127.0.0.2&",
            "localhost,127.0.0.1",
        ] {
            assert!(local(&format!("postgres://me@{host}")), "{host}");
        }
        for host in [
            "db.example.org",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[fe80::1]",
            "127.1",
            "2130706433",
            "localhost.example.org",
            "localhost.",
            "127.0.0.1.example.org",
            "localhost,db.example.org",
            "127.0.0.1/x?hostaddr=10.0.0.1",
            "%2Fvar%2Frun,db.example.org",
        ] {
            assert!(!local(&format!("postgres://me@{host}")), "{host}");
        }
    }

    #[test]
    fn the_list_of_methods_is_that_of_libpq() {
        assert_eq!(required("scram-sha-256"), Ok(vec![AuthMethod::Scram]));
        assert_eq!(required("password, md5"), Ok(vec![AuthMethod::Password, AuthMethod::Md5]));
        let rest = vec![AuthMethod::None, AuthMethod::Scram, AuthMethod::Gss, AuthMethod::Sspi];
        assert_eq!(required("!password,!md5"), Ok(rest));
        for text in ["", "scram", "password,!md5", "!!none", "password,"] {
            assert!(required(text).is_err(), "{text:?}");
        }
    }

    /// The messages of a server: tag and content.
    fn wire(messages: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tag, content) in messages {
            bytes.push(*tag);
            bytes.extend((content.len() as i32 + 4).to_be_bytes());
            bytes.extend(*content);
        }
        bytes
    }

    fn looked(rules: &AuthRules, tls: (bool, bool), bytes: &[u8], piece: usize) -> Result<(), String> {
        let mut guard = AuthGuard::new(rules.clone(), tls, SeenMethod::default());
        bytes.chunks(piece).try_for_each(|bytes| guard.look(bytes)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_password_goes_to_nobody_who_may_be_anybody() {
        let [clear, md5, scram, ok] = [3_i32, 5, 10, 0].map(i32::to_be_bytes);
        let salted = [&md5[..], b"salt"].concat();
        let sasl = [&scram[..], b"SCRAM-SHA-256\0\0"].concat();
        let anywhere = AuthRules { required: None, is_local: false };
        let here = AuthRules { required: None, is_local: true };
        let only =
            |text: &str| AuthRules { required: Some((required(text).unwrap(), text.into())), is_local: true };
        let notice: (u8, &[u8]) = (b'N', b"SNOTICE\0R\0\0\0\x08\0\0\0\x03\0");
        for piece in [1, 2, 3, 5, 9, 1000] {
            for (content, gives_away) in [(&clear[..], true), (&salted, true), (&sasl, false), (&ok, false)] {
                let bytes = wire(&[notice, (b'R', content), (b'R', &ok), (b'R', &clear)]);
                let look = |rules: &AuthRules, tls| looked(rules, tls, &bytes, piece);
                assert_eq!(look(&anywhere, (false, false)).is_err(), gives_away, "{content:?}");
                assert_eq!(look(&anywhere, (true, false)).is_err(), gives_away, "{content:?}");
                assert_eq!(look(&anywhere, (true, true)), Ok(()), "{content:?}");
                assert_eq!(look(&here, (false, false)), Ok(()), "{content:?}");
                // Even where the server is known.
                assert_eq!(
                    look(&only("scram-sha-256"), (true, true)).is_ok(),
                    content == sasl,
                    "{content:?}"
                );
                assert_eq!(look(&only("none"), (true, true)).is_ok(), content == ok, "{content:?}");
            }
        }
        for size in [-1_i32, 0, 3, 7] {
            let bytes = [&b"R"[..], &size.to_be_bytes(), &clear].concat();
            assert!(looked(&here, (false, false), &bytes, 1000).is_err(), "{size}");
        }
    }
}
