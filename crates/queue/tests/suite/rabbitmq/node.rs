//! A RabbitMQ node of one test: its own ports, directory and certificates, killed at the end.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// The script of the server in Debian; the one in the path changes the user.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

pub(crate) struct Node {
    directory: tempfile::TempDir,
    ports: [u16; 3],
    server: Mutex<Option<Child>>,
}

fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// An authority, and a certificate of it for `localhost`.
fn certificates(directory: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let server = server.signed_by(&key, &authority).unwrap();
    fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
    fs::write(directory.join("server.pem"), server.pem()).unwrap();
    fs::write(directory.join("server.key"), key.serialize_pem()).unwrap();
}

impl Node {
    pub(crate) async fn new() -> Node {
        let directory = tempfile::tempdir().unwrap();
        let (path, ports) = (directory.path(), free_ports());
        certificates(path);
        let show = path.display();
        let config = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nlisteners.ssl.1 = 127.0.0.1:{}\nssl_options.cacertfile = {show}/ca.pem\n\
             ssl_options.certfile = {show}/server.pem\nssl_options.keyfile = {show}/server.key\n\
             ssl_options.verify = verify_none\n",
            ports[0], ports[1]
        );
        fs::write(path.join("rabbitmq.conf"), config).unwrap();
        let node = Node { directory, ports, server: Mutex::default() };
        node.start().await;
        node
    }

    /// Starts the server, and waits until it listens.
    pub(crate) async fn start(&self) {
        let path = self.directory.path();
        let out = fs::File::create(path.join("out")).unwrap();
        let child = Command::new(SERVER)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", path)
            .env("RABBITMQ_NODENAME", format!("tidegate-{}@localhost", self.ports[0]))
            .env("RABBITMQ_DIST_PORT", self.ports[2].to_string())
            .env("RABBITMQ_MNESIA_BASE", path.join("data"))
            .env("RABBITMQ_LOG_BASE", path.join("log"))
            .env("RABBITMQ_CONFIG_FILE", path.join("rabbitmq.conf"))
            .env("RABBITMQ_CONF_ENV_FILE", path.join("none"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path.join("plugins"))
            .env("RABBITMQ_PID_FILE", path.join("pid"))
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_FLAGS", "-kernel inet_dist_use_interface {127,0,0,1}")
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .process_group(0)
            .spawn()
            .unwrap();
        *self.server.lock().unwrap() = Some(child);
        let end = Instant::now() + Duration::from_secs(120);
        while tokio::net::TcpStream::connect(("127.0.0.1", self.ports[1])).await.is_err() {
            let said = || fs::read_to_string(path.join("out")).unwrap_or_default();
            assert!(Instant::now() < end, "RabbitMQ did not start: {}", said());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until the server has written down that a quorum queue exists. It does so seconds after
    /// it has confirmed it; a queue that is lost in between has no leader for ever.
    pub(crate) async fn has_registered(&self, queue: &str) {
        let node = format!("tidegate-{}@localhost", self.ports[0]);
        let names = self.directory.path().join(format!("data/{node}/quorum/{node}/names.dets"));
        let end = Instant::now() + Duration::from_secs(300);
        let is_there = || {
            fs::read(&names)
                .is_ok_and(|found| found.windows(queue.len()).any(|part| part == queue.as_bytes()))
        };
        while !is_there() {
            assert!(Instant::now() < end, "the queue is not in {}", names.display());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills the server and what it started.
    pub(crate) fn kill(&self) {
        if let Some(mut server) = self.server.lock().unwrap().take() {
            let group = format!("-{}", server.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = server.wait();
        }
    }

    pub(crate) fn url(&self, queue: &str) -> String {
        format!("amqp://127.0.0.1:{}/{queue}", self.ports[0])
    }

    pub(crate) fn tls_url(&self, host: &str, queue: &str) -> String {
        let ca = self.directory.path().join("ca.pem");
        format!("amqps://{host}:{}/{queue}?ca={}", self.ports[1], ca.display())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
