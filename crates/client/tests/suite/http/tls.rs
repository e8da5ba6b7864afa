//! Trust, and HTTP/2 where the server offers it.

use crate::http::server::{Names, TLS, ask, body, exchange, private};
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidegate_client::http::{Client, Request, platform_tls};
use tidegate_core::Code;
use tokio_rustls::TlsAcceptor;
use url::Url;

/// A server that says over which version it was asked. Returns its port, certificate and connections.
async fn serve(protocol: &'static [u8]) -> (u16, CertificateDer<'static>, Arc<AtomicUsize>) {
    let made = rcgen::generate_simple_self_signed(vec!["tls.test".into()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let answer = service_fn(|request: http::Request<_>| async move {
                    let text = format!("{:?}", http::Request::<hyper::body::Incoming>::version(&request));
                    Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(text))))
                });
                if protocol == b"h2" {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
                }
            });
        }
    });
    (port, certificate, connections)
}

fn trusting(certificate: CertificateDer<'static>) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[tokio::test]
async fn http_2_is_spoken_where_it_is_offered() {
    for (protocol, version) in [(b"h2".as_slice(), "HTTP/2.0"), (b"http/1.1", "HTTP/1.1")] {
        let (port, certificate, connections) = serve(protocol).await;
        let names = Names::of(&[("tls.test", &["127.0.0.1"])]);
        let mut exchange = exchange(private(), names.clone());
        exchange.client = Client::with(private(), names, trusting(certificate));
        let request = Request::get(Url::parse(&format!("https://tls.test:{port}/")).unwrap());
        for _ in 0..10 {
            assert_eq!(body(&ask(&exchange, &request).await), version);
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1, "{version} keeps its connection");
    }
}

#[tokio::test]
async fn an_unknown_certificate_is_not_trusted() {
    let (port, _, _) = serve(b"http/1.1").await;
    let names = Names::of(&[("tls.test", &["127.0.0.1"])]);
    let mut exchange = exchange(private(), names.clone());
    exchange.client = Client::with(private(), names, TLS.get_or_init(|| platform_tls().unwrap()).clone());
    let request = Request::get(Url::parse(&format!("https://tls.test:{port}/")).unwrap());
    let outcome = ask(&exchange, &request).await;
    assert_eq!((outcome.verdict.code, outcome.attempts()), (Code::TLS_FAILURE, 1));
}
