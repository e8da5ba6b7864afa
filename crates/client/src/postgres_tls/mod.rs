//! Connections to PostgreSQL: TLS with the words of libpq (`sslmode`, `sslrootcert`, `sslcert`, `sslkey`),
//! and who may ask for the password (`require_auth`). [`connect`] is the only way there; `clippy.toml`
//! bans the others.
//!
//! Without a word in the URL a server on this machine is trusted, and one elsewhere has to prove who it
//! is. libpq's default, `prefer`, gives the password to whoever answers.
//!
//! Why not an existing connector: it is a hundred lines, `verify-ca` needs a verifier of its own in
//! any case, and an error must say which of the four settings to look at.

mod auth;
mod stream;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{error, fmt, io};

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::http::platform_tls;
use auth::{AuthRefused, AuthRules};
pub use stream::{GuardedStream, PendingHandshake, PostgresTls};
use verify::{OwnAuthority, Unverified};

/// The names of the settings in a database URL.
pub const NAMES: [&str; 5] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "require_auth"];

/// What is asked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateCheck {
    /// Nothing: the connection is encrypted, but anybody may be at its other end.
    Nothing,
    /// A trusted authority has signed it.
    Authority,
    /// A trusted authority has signed it for the host name of the URL.
    HostName,
}

/// Whether there is TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    Never,
    /// If the server offers it.
    IfOffered,
    Always,
}

/// How to reach a database with TLS.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    encryption: Encryption,
    check: CertificateCheck,
    /// The word of `sslmode`.
    mode: &'static str,
    /// Whether the URL says it.
    is_set: bool,
    /// `None` for the authorities of the operating system.
    root: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    direct: bool,
    /// Whether the server is reached through a socket in a directory.
    is_socket: bool,
    auth: AuthRules,
}

/// The words of `sslmode`.
const MODES: [&str; 5] = ["disable", "prefer", "require", "verify-ca", "verify-full"];

impl TlsSettings {
    /// Takes the settings of a URL into account.
    ///
    /// # Errors
    /// When a setting has no meaning. The error does not quote the URL.
    pub fn read(pairs: &[(String, String)], config: &mut Config) -> Result<TlsSettings, String> {
        let value = |name: &str| {
            let last = pairs.iter().rev().find(|(known, _)| known == name);
            last.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let file = |name: &str| value(name).map(PathBuf::from);
        let sockets = config.get_hosts().iter().filter(|host| !matches!(host, Host::Tcp(_))).count();
        let is_socket = sockets > 0 && config.get_hostaddrs().is_empty();
        if is_socket && sockets < config.get_hosts().len() {
            return Err("the database URL has sockets and hosts of a network; use one or the other".into());
        }
        let is_local = auth::is_local(config);
        let default = if is_local { "prefer" } else { "verify-full" };
        let given = value("sslmode");
        let Some(mode) = MODES.into_iter().find(|mode| *mode == given.unwrap_or(default)) else {
            let modes = "disable, prefer, require, verify-ca or verify-full";
            return Err(format!("invalid sslmode in the database URL; expected {modes}"));
        };
        let root = file("sslrootcert").filter(|path| path != Path::new("system"));
        let (encryption, mut check) = match mode {
            // As in libpq, a socket has no TLS.
            _ if is_socket => (Encryption::Never, CertificateCheck::Nothing),
            "disable" => (Encryption::Never, CertificateCheck::Nothing),
            "prefer" => (Encryption::IfOffered, CertificateCheck::Nothing),
            // As libpq does: who names an authority wants it to be checked.
            "require" if value("sslrootcert").is_some() => (Encryption::Always, CertificateCheck::Authority),
            "require" => (Encryption::Always, CertificateCheck::Nothing),
            "verify-ca" => (Encryption::Always, CertificateCheck::Authority),
            _ => (Encryption::Always, CertificateCheck::HostName),
        };
        // An authority that signs for everybody proves nothing without the host name.
        if check == CertificateCheck::Authority && root.is_none() {
            check = CertificateCheck::HostName;
        }
        let (cert, key) = (file("sslcert"), file("sslkey"));
        if cert.is_some() != key.is_some() {
            return Err("the database URL has only one of sslcert and sslkey; set both".into());
        }
        let required = value("require_auth").map(|text| Ok((auth::required(text)?, text.to_owned())));
        let required = required.transpose().map_err(|e: String| e)?;
        if is_socket && required.is_some() {
            return Err("require_auth has no effect on a socket of this machine; remove it".into());
        }
        let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        if direct && encryption != Encryption::Always {
            return Err("sslnegotiation=direct needs sslmode=require, verify-ca or verify-full".into());
        }
        // The client takes no address without a name for the certificate.
        if config.get_hosts().is_empty() {
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        // See the module `stream`: the connector is called in any case.
        let (mode_of_client, negotiation) = match is_socket {
            true => (SslMode::Disable, SslNegotiation::Postgres),
            false => (SslMode::Require, SslNegotiation::Direct),
        };
        config.ssl_mode(mode_of_client).ssl_negotiation(negotiation);
        let auth = AuthRules { required, is_local };
        let is_set = given.is_some();
        Ok(TlsSettings { encryption, check, mode, is_set, root, cert, key, direct, is_socket, auth })
    }

    /// What to change when the server refuses a connection.
    #[must_use]
    pub fn advice(&self, error: &Error) -> &'static str {
        let refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        match (refused, self.encryption) {
            (true, Encryption::Never) => "; if the server wants TLS, set sslmode=require",
            (true, _) if self.cert.is_none() => {
                "; if the server wants a client certificate, set sslcert and sslkey"
            }
            _ => "",
        }
    }

    /// The mode, and where it comes from.
    fn reason(&self) -> String {
        let why = match (self.is_set, self.auth.is_local) {
            (true, _) => "set in the URL",
            (false, true) => "the default for this machine",
            (false, false) => "the default for other machines",
        };
        format!("sslmode={}, {why}", self.mode)
    }

    /// A server that has no TLS where it is needed.
    fn not_offered(&self) -> TlsProblem {
        let what = "the server does not support TLS; enable TLS in the server, or set sslmode=disable";
        let at_risk = " if you trust everybody between here and there";
        TlsProblem::Setting(match (self.is_set, self.auth.is_local) {
            (_, true) => what.to_owned(),
            (true, false) => format!("{what}{at_risk}"),
            (false, false) => format!("{what}{at_risk} ({})", self.reason()),
        })
    }

    fn client(&self) -> Result<ClientConfig, TlsProblem> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let setting = |e: &dyn fmt::Display| TlsProblem::Setting(e.to_string());
        let verifier: Option<Arc<dyn ServerCertVerifier>> = match (self.check, &self.root) {
            (CertificateCheck::Nothing, _) => Some(Arc::new(Unverified(provider.clone()))),
            (check, Some(path)) => Some(Arc::new(OwnAuthority::read(path, check, &provider)?)),
            (_, None) => None,
        };
        let mut client = match verifier {
            None => platform_tls().map_err(|e| setting(&e))?,
            Some(verifier) => ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|e| setting(&e))?
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_no_client_auth(),
        };
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let own = CertifiedKey::from_der(certificates("sslcert", cert)?, private_key(key)?, &provider);
            let own = own.map_err(|e| {
                setting(&format!("sslcert {} and its sslkey cannot be used: {e}", cert.display()))
            })?;
            client.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
        }
        if self.direct {
            client.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(client)
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsProblem> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|e| unreadable("sslkey", path, &e, "it has no unencrypted private key in PEM"))
}

fn certificates(name: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let none = "it has no certificate in PEM";
    let all = all.map_err(|e| unreadable(name, path, &e, none))?;
    if all.is_empty() {
        return Err(unreadable(name, path, &pem::Error::NoItemsFound, none));
    }
    Ok(all)
}

/// Says nothing of what is in the file.
fn unreadable(name: &str, path: &Path, e: &pem::Error, none: &str) -> TlsProblem {
    let why = match e {
        pem::Error::Io(e) => e.to_string(),
        _ => none.to_owned(),
    };
    TlsProblem::Setting(format!("cannot read {name} {}: {why}", path.display()))
}

/// Why there is no TLS.
#[derive(Debug)]
pub enum TlsProblem {
    /// A setting, or a file that it names, cannot be used.
    Setting(String),
    /// The handshake failed; whether the check of the certificate is the default.
    Handshake(io::Error, bool),
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsProblem::Setting(what) => f.write_str(what),
            TlsProblem::Handshake(e, _) => e.fmt(f),
        }
    }
}

impl error::Error for TlsProblem {}

/// An open connection, and what drives it.
pub struct PostgresConnection {
    /// The calls.
    pub client: Client,
    /// Drives the connection.
    pub connection: Connection<Socket, GuardedStream<Socket>>,
    /// What was used, and what cancels a statement.
    pub tls: PostgresTls,
}

/// Connects. `config` is the one that the settings were read with.
///
/// # Errors
/// That of the connection.
pub async fn connect(config: &Config, settings: &TlsSettings) -> Result<PostgresConnection, Error> {
    let first = open(config, settings).await;
    match first {
        // A server that speaks TLS may still serve us without it.
        Err(why) if settings.encryption == Encryption::IfOffered && may_work_without(&why) => {
            let plain = TlsSettings { encryption: Encryption::Never, ..settings.clone() };
            open(config, &plain)
                .await
                .map_err(|plain| if tls_failure(&plain).is_some() { plain } else { why })
        }
        other => other,
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the place in which connections are made")]
async fn open(config: &Config, settings: &TlsSettings) -> Result<PostgresConnection, Error> {
    let tls = PostgresTls::new(settings);
    let (client, connection) = config.connect(tls.clone()).await?;
    Ok(PostgresConnection { client, connection, tls })
}

fn may_work_without(error: &Error) -> bool {
    let refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
    refused || error.to_string() == "error performing TLS handshake"
}

/// What is wrong with TLS or with who asks for the password, if an error of the connection is about
/// these and not about a server that is down: another try would end in the same way.
#[must_use]
pub fn tls_failure(error: &Error) -> Option<String> {
    let source = error::Error::source(error)?;
    let (io, by_default) = match source.downcast_ref::<TlsProblem>() {
        Some(TlsProblem::Setting(what)) => return Some(what.clone()),
        Some(TlsProblem::Handshake(io, by_default)) => (io, *by_default),
        None => (source.downcast_ref::<io::Error>()?, false),
    };
    let inner = io.get_ref()?;
    if let Some(refused) = inner.downcast_ref::<AuthRefused>() {
        return Some(refused.to_string());
    }
    // A handshake that was cut short is a server that is down.
    let tls = inner.downcast_ref::<rustls::Error>()?;
    let way_out = match tls {
        rustls::Error::InvalidCertificate(_) if by_default => {
            "; or set sslmode=require if you know that this server has no certificate that can be verified"
        }
        _ => "",
    };
    Some(format!("{}{way_out}", explain(tls)))
}

fn explain(e: &rustls::Error) -> String {
    let untrusted = "the server's certificate is not signed by a trusted authority";
    let named = "name the authority of this server with sslrootcert";
    match e {
        rustls::Error::InvalidCertificate(what) => match what {
            CertificateError::UnknownIssuer => format!("{untrusted}; {named}"),
            // Such as a certificate that has signed itself.
            CertificateError::Other(why) => format!("{untrusted} ({why}); {named}"),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                let hint = "use a host name that is in the certificate";
                format!("the server's certificate is refused: {what}; {hint}")
            }
            _ => format!("the server's certificate is refused: {what}"),
        },
        rustls::Error::AlertReceived(_) => {
            format!("the server refuses our side of TLS: {e}; check sslcert and sslkey")
        }
        _ => format!("the TLS handshake failed: {e}"),
    }
}

/// Takes pairs of these names out of the query of a URL; what remains is as it was.
#[must_use]
pub fn take_pairs(text: &str, own: impl Fn(&str) -> bool) -> (String, Vec<(String, String)>) {
    let Some((head, query)) = text.split_once('?').filter(|(head, _)| head.contains("://")) else {
        return (text.to_owned(), Vec::new());
    };
    let is_own = |pair: &&str| own(pair.split_once('=').map_or(*pair, |(name, _)| name));
    let (own, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_own);
    // A plus is a plus: PostgreSQL does not take it for a space.
    let own = own.join("&").replace('+', "%2B");
    let own = url::form_urlencoded::parse(own.as_bytes()).into_owned().collect();
    (if rest.is_empty() { head.to_owned() } else { format!("{head}?{}", rest.join("&")) }, own)
}
