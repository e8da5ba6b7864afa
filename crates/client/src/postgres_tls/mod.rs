//! TLS to PostgreSQL, with the words of libpq: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`.
//!
//! Why not an existing connector: it is a hundred lines, `verify-ca` needs a verifier of its own in
//! any case, and an error must say which of the four settings to look at.

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
use tokio_postgres::Error;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;

use crate::http::platform_tls;
pub use stream::{EncryptedStream, PendingHandshake, PostgresTls};
use verify::{OwnAuthority, Unverified};

/// The names of the settings in a database URL.
pub const NAMES: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

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

/// How to reach a database with TLS.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    check: CertificateCheck,
    /// `None` for the authorities of the operating system.
    root: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    direct: bool,
}

impl TlsSettings {
    /// Takes the settings of a URL into account, and sets in `config` whether TLS is used.
    ///
    /// # Errors
    /// When a setting has no meaning. The error does not quote the URL.
    pub fn read(
        pairs: &[(String, String)],
        config: &mut tokio_postgres::Config,
    ) -> Result<TlsSettings, String> {
        let value = |name: &str| {
            let last = pairs.iter().rev().find(|(known, _)| known == name);
            last.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let file = |name: &str| value(name).map(PathBuf::from);
        let root = file("sslrootcert").filter(|path| path != Path::new("system"));
        let (mode, mut check) = match value("sslmode").unwrap_or("prefer") {
            "disable" => (SslMode::Disable, CertificateCheck::Nothing),
            "prefer" => (SslMode::Prefer, CertificateCheck::Nothing),
            // As libpq does: who names an authority wants it to be checked.
            "require" if value("sslrootcert").is_some() => (SslMode::Require, CertificateCheck::Authority),
            "require" => (SslMode::Require, CertificateCheck::Nothing),
            "verify-ca" => (SslMode::Require, CertificateCheck::Authority),
            "verify-full" => (SslMode::Require, CertificateCheck::HostName),
            _ => {
                let modes = "disable, prefer, require, verify-ca or verify-full";
                return Err(format!("invalid sslmode in the database URL; expected {modes}"));
            }
        };
        // An authority that signs for everybody proves nothing without the host name.
        if check == CertificateCheck::Authority && root.is_none() {
            check = CertificateCheck::HostName;
        }
        let (cert, key) = (file("sslcert"), file("sslkey"));
        if cert.is_some() != key.is_some() {
            return Err("the database URL has only one of sslcert and sslkey; set both".into());
        }
        config.ssl_mode(mode);
        let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        Ok(TlsSettings { check, root, cert, key, direct })
    }

    /// What to change when the server refuses a connection of this mode.
    #[must_use]
    pub fn advice(&self, mode: SslMode, error: &Error) -> &'static str {
        let refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
        match (refused, mode) {
            (true, SslMode::Disable) => "; if the server wants TLS, set sslmode=require",
            (true, _) if self.cert.is_none() => {
                "; if the server wants a client certificate, set sslcert and sslkey"
            }
            _ => "",
        }
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
    /// The handshake failed.
    Handshake(io::Error),
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsProblem::Setting(what) => f.write_str(what),
            TlsProblem::Handshake(e) => e.fmt(f),
        }
    }
}

impl error::Error for TlsProblem {}

/// What is wrong with TLS, if an error of the connection is about TLS and not about a server that
/// is down: another try would end in the same way.
#[must_use]
pub fn tls_failure(error: &Error) -> Option<String> {
    let source = error::Error::source(error)?;
    let io = match source.downcast_ref::<TlsProblem>() {
        Some(TlsProblem::Setting(what)) => return Some(what.clone()),
        Some(TlsProblem::Handshake(io)) => Some(io),
        None => source.downcast_ref::<io::Error>(),
    };
    match io {
        // A handshake that was cut short is a server that is down.
        Some(io) => io.get_ref()?.downcast_ref::<rustls::Error>().map(explain),
        // The kind of an error is private.
        None if error.to_string() == "error performing TLS handshake" => {
            Some(format!("{source}; set sslmode=disable, or enable TLS in the server"))
        }
        None => None,
    }
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

/// Whether a server that speaks TLS may still serve us without it, for `prefer`.
#[must_use]
pub fn may_work_without(error: &Error) -> bool {
    let refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
    refused || error.to_string() == "error performing TLS handshake"
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
