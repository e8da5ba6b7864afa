//! Judges the certificate of the server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::{CertificateCheck, TlsProblem, certificates};

/// Accepts every certificate.
#[derive(Debug)]
pub(super) struct Unverified(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    // A signature under a certificate that nobody checked proves nothing, and certificates of old
    // forms, which such servers have, could not be read for it.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts what the authorities of a file have signed.
#[derive(Debug)]
pub(super) struct OwnAuthority {
    roots: Vec<CertificateDer<'static>>,
    verifier: Arc<WebPkiServerVerifier>,
    check: CertificateCheck,
}

impl OwnAuthority {
    pub(super) fn read(
        path: &Path,
        check: CertificateCheck,
        provider: &Arc<CryptoProvider>,
    ) -> Result<OwnAuthority, TlsProblem> {
        let refused = |e: &dyn fmt::Display| {
            TlsProblem::Setting(format!("sslrootcert {} cannot be used: {e}", path.display()))
        };
        let roots = certificates("sslrootcert", path)?;
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(|e| refused(&e))?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone()).build();
        Ok(OwnAuthority { roots, verifier: verifier.map_err(|e| refused(&e))?, check })
    }
}

impl ServerCertVerifier for OwnAuthority {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = self.verifier.verify_server_cert(server, chain, name, ocsp, now);
        match &checked {
            // The name is looked at last, when the authority is known to have signed.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == CertificateCheck::Authority => Ok(ServerCertVerified::assertion()),
            // A certificate that signed itself is named as its own authority. Its dates were looked
            // at first.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.roots.iter().any(|root| root == server) =>
            {
                if self.check == CertificateCheck::HostName {
                    let server = ParsedCertificate::try_from(server)?;
                    verify_server_name(&server, name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            _ => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
