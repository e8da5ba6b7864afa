//! Servers of a fleet that ask for TLS, a certificate and a password.
#![allow(clippy::disallowed_methods, reason = "a test starts the servers that it needs")]

use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A server of its own. It ends with the test.
struct PrivateServer {
    child: Child,
    port: u16,
}

impl PrivateServer {
    async fn start(mut command: Command, port: u16) -> PrivateServer {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = PrivateServer { child: child.unwrap_or_else(|e| panic!("{command:?}: {e}")), port };
        let listening = async {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), listening).await.unwrap();
        server
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An authority in `ca.crt`, and certificates of it for the server and for a client.
fn certificates(dir: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(dir.join("ca.crt"), authority.pem()).unwrap();
    for (file, hosts) in [("server", vec!["localhost".to_owned()]), ("client", Vec::new())] {
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, file);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &authority).unwrap();
        std::fs::write(dir.join(format!("{file}.crt")), cert.pem()).unwrap();
        std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

/// Lanes are shared with the right certificate and password, and not without.
async fn asks_for_both(dir: &Path, scheme: &str, user: &str, port: u16) {
    let at = |name: &str| dir.join(name).display().to_string();
    let files =
        format!("sslrootcert={}&sslcert={}&sslkey={}", at("ca.crt"), at("client.crt"), at("client.key"));
    let root = format!("sslrootcert={}", at("ca.crt"));
    let good = format!("{scheme}://{user}:hunter2@localhost:{port}?{files}");
    let (owner, member) = Meeting::at(good.clone()).pair(LimitConfig::default()).await;
    drop((owner, member));
    for (bad, why) in [
        (good.replace("hunter2", "hunter3"), "a wrong password"),
        (good.replace(&files, &root), "no certificate of the client"),
        (good.replace(&format!("?{files}"), ""), "an authority that nobody knows"),
    ] {
        let lane = Meeting::at(bad).lane(LimitConfig::default());
        let waiting = tokio::spawn({
            let lane = lane.clone();
            async move { lane.acquire(None).await.map(done) }
        });
        let refused = async {
            while !lane.snapshot().unreachable {
                assert!(!waiting.is_finished(), "{why}");
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), refused).await.unwrap();
        lane.close();
        assert!(waiting.await.unwrap().is_err());
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_with_tls_and_a_password() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    certificates(dir.path());
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--requirepass", "hunter2"]);
    command.args(["--tls-port", &port.to_string(), "--tls-cert-file", "server.crt"]);
    command.args(["--tls-key-file", "server.key", "--tls-ca-cert-file", "ca.crt"]);
    command.current_dir(dir.path());
    let server = PrivateServer::start(command, port).await;
    asks_for_both(dir.path(), "rediss", "", server.port).await;
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_with_tls_and_a_password() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    certificates(dir.path());
    let config = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"store\" }}\n\
         authorization {{ user: tide, password: hunter2 }}\n\
         tls {{ cert_file: server.crt, key_file: server.key, ca_file: ca.crt, verify: true }}\n"
    );
    std::fs::write(dir.path().join("nats.conf"), config).unwrap();
    let mut command = Command::new("nats-server");
    command.args(["-c", "nats.conf"]).current_dir(dir.path());
    let server = PrivateServer::start(command, port).await;
    asks_for_both(dir.path(), "tls", "tide", server.port).await;
}
