//! TLS to PostgreSQL, against servers that this test starts: only `hostssl` lines, with
//! certificates made here.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::pipeline::bench::{Bench, point};

/// Who may come in, and how.
const HBA: &str = "
local     all postgres trust
hostssl   all badge  127.0.0.1/32 trust clientcert=verify-full
hostssl   all locked 127.0.0.1/32 scram-sha-256
hostssl   all clear  127.0.0.1/32 password
hostssl   all plain  127.0.0.1/32 reject
hostnossl all plain  127.0.0.1/32 trust
hostssl   all all    127.0.0.1/32 trust
";

/// Stands for a certificate for localhost that is its own authority.
const SELF_SIGNED: &str = "self-signed";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key in `dir`, for a host or for a user.
fn signed(by: &Authority, name: &str, dir: &Path, file: &str) {
    let hosts = if name.contains('.') || name == "localhost" { vec![name.to_owned()] } else { Vec::new() };
    // An address becomes one of the certificate.
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let cert = params.signed_by(&key, by).unwrap();
    std::fs::write(dir.join(format!("{file}.crt")), cert.pem()).unwrap();
    std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
}

/// A server that ends with the test.
struct Server {
    dir: tempfile::TempDir,
    port: u16,
}

fn tool(name: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}

impl Server {
    /// The server's certificate is for `host`, or one that has signed itself.
    fn start(host: &str) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Server { dir, port };
        server.pg("initdb", &["-D", &server.file("data"), "-A", "trust", "-U", "postgres", "--no-sync"]);
        let (own, other) = (authority("our authority"), authority("another authority"));
        std::fs::write(server.file("ca.crt"), own.pem()).unwrap();
        std::fs::write(server.file("other.crt"), other.pem()).unwrap();
        let dir = server.dir.path();
        signed(&own, host, dir, "server");
        if host == SELF_SIGNED {
            std::fs::write(dir.join("server.crt"), own.pem()).unwrap();
            std::fs::write(dir.join("server.key"), own.key().serialize_pem()).unwrap();
        }
        signed(&own, "badge", dir, "badge");
        signed(&own, "somebody", dir, "somebody");
        signed(&other, "badge", dir, "forged");
        std::fs::write(server.file("hba.conf"), HBA).unwrap();
        Command::new("chmod").arg("600").arg(server.file("server.key")).status().unwrap();
        let options = format!(
            "-p {port} -k {0} -c listen_addresses=127.0.0.1 -c fsync=off -c ssl=on -c ssl_ca_file={0}/ca.crt \
             -c ssl_cert_file={0}/server.crt -c ssl_key_file={0}/server.key -c hba_file={0}/hba.conf",
            dir.display()
        );
        let data = server.file("data");
        server.pg("pg_ctl", &["-D", &data, "-w", "-l", &server.file("log"), "-o", &options, "start"]);
        for sql in ["CREATE ROLE badge LOGIN SUPERUSER", "CREATE ROLE plain LOGIN SUPERUSER"] {
            server.sql(sql);
        }
        for user in ["locked", "clear"] {
            server.sql(&format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 'swordfish'"));
        }
        server
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// A program of PostgreSQL, not as root, which the server refuses.
    fn pg(&self, name: &str, args: &[&str]) -> Output {
        let mut command = Command::new("runuser");
        if nix::unistd::getuid().is_root() {
            let own = Command::new("chown").args(["-R", "postgres"]).arg(self.dir.path()).status();
            assert!(own.unwrap().success());
            command.args(["-u", "postgres", "--"]).arg(tool(name));
        } else {
            command = Command::new(tool(name));
        }
        // The server must not hold our output open.
        let (out, err) = (self.dir.path().join("out"), self.dir.path().join("err"));
        command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
        let status = command.args(args).current_dir(self.dir.path()).status().unwrap();
        let output =
            Output { status, stdout: std::fs::read(out).unwrap(), stderr: std::fs::read(err).unwrap() };
        assert!(status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn sql(&self, sql: &str) -> String {
        let (port, dir) = (self.port.to_string(), self.file(""));
        let done = self.pg("psql", &["-h", &dir, "-p", &port, "-U", "postgres", "-qtAc", sql]);
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// A URL; `{}` in the query stands for the directory of the certificates.
    fn url(&self, user: &str, host: &str, query: &str) -> String {
        let query = query.replace("{}", self.dir.path().to_str().unwrap());
        format!("postgres://{user}@{host}:{}/postgres?{query}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.pg("pg_ctl", &["-D", &self.file("data"), "-m", "immediate", "stop"]);
    }
}

/// Ten points into the table `out` of a database.
fn bench(url: &str) -> Bench {
    let bench = Bench::new();
    let rows: String = (0..10).map(|n| point(f64::from(n), 48.0, &format!(r#"{{"id":{n}}}"#))).collect();
    bench.write("in.geojsonl", &rows);
    bench.write("url", url);
    let sink = "sink: { postgis: { url: file:url, table: out }, key: [id] }";
    bench.manifest(&format!("source: {{ file: in.geojsonl }}\n{sink}"));
    bench
}

fn works(server: &Server, url: &str) {
    server.sql("DROP TABLE IF EXISTS out");
    let ran = bench(url).run(&[]);
    assert_eq!(ran.code, 0, "{url}\n{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(server.sql("SELECT count(*) FROM out"), "10", "{url}");
}

/// The run ends for good, in these words, and the database is not called down.
fn fails(url: &str, says: &str) {
    let ran = bench(url).run(&[]);
    assert_eq!(ran.code, 2, "{url}\n{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(says), "{says:?} is not in\n{}", ran.stderr);
    assert!(!ran.stderr.contains("is the database running"), "{}", ran.stderr);
}

#[test]
fn a_server_with_tls_is_reached_and_its_certificate_is_checked_as_far_as_asked() {
    let server = Server::start("localhost");
    let url = |host: &str, query: &str| server.url("postgres", host, query);
    for (host, query) in [
        ("localhost", ""),
        ("127.0.0.1", "sslmode=prefer"),
        ("127.0.0.1", "sslmode=require"),
        ("127.0.0.1", "sslmode=require&sslrootcert={}/ca.crt"),
        ("127.0.0.1", "sslmode=verify-ca&sslrootcert={}/ca.crt"),
        ("localhost", "sslmode=verify-full&sslrootcert={}/ca.crt"),
    ] {
        works(&server, &url(host, query));
    }
    let untrusted = "not signed by a trusted authority; name the authority of this server with sslrootcert";
    for (host, query, says) in [
        (
            "localhost",
            "sslmode=disable",
            "no encryption (28000); if the server wants TLS, set sslmode=require",
        ),
        ("localhost", "sslmode=require&sslrootcert={}/other.crt", untrusted),
        ("localhost", "sslmode=verify-ca&sslrootcert={}/other.crt", untrusted),
        ("localhost", "sslmode=verify-full&sslrootcert={}/other.crt", untrusted),
        ("localhost", "sslmode=verify-full", untrusted),
        ("localhost", "sslmode=verify-full&sslrootcert=system", untrusted),
        (
            "127.0.0.1",
            "sslmode=verify-full&sslrootcert={}/ca.crt",
            "the server's certificate is refused: certificate not valid for name \"127.0.0.1\"",
        ),
        ("localhost", "sslmode=verify-ca&sslrootcert={}/none.crt", "none.crt: No such file or directory"),
        ("localhost", "sslmode=verify-ca&sslrootcert={}/hba.conf", "hba.conf: it has no certificate in PEM"),
        ("localhost", "sslmode=verify", "expected disable, prefer, require, verify-ca or verify-full"),
    ] {
        fails(&url(host, query), says);
    }
}

#[test]
fn sources_letters_and_audit_use_tls_too() {
    let server = Server::start(SELF_SIGNED);
    let good = server.url("postgres", "localhost", "sslmode=verify-full&sslrootcert={}/ca.crt");
    let bad = server.url("postgres", "localhost", "sslmode=verify-full&sslrootcert={}/other.crt");
    works(&server, &good);
    let bench = bench(&good);
    let source = |file: &str| {
        bench.manifest(&format!(
            "source: {{ postgis: {{ url: file:{file}, table: out, key: id }}, crs: EPSG:4326 }}\nsink: {{ file: out.geojsonl }}"
        ));
    };
    source("url");
    assert_eq!(bench.runs(0)["read"], 10);
    bench.write("bad", &bad);
    source("bad");
    let ran = bench.run(&[]);
    assert_eq!(ran.code, 2, "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("not signed by a trusted authority"), "{}", ran.stderr);

    bench.write("p.json", r#"{"type":"Feature","properties":{},"geometry":null}"#);
    let put = |store: &str| {
        bench.tidegate(&[
            "dlq",
            "--store",
            store,
            "put",
            "--pipeline",
            "p",
            "--code",
            "INVALID_GEOMETRY",
            "--payload",
            "p.json",
        ])
    };
    let ran = put(&good);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(server.sql("SELECT count(*) FROM tidegate.letter"), "1");
    let ran = bench.tidegate(&["audit", "verify", "--store", &good]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    for ran in [put(&bad), bench.tidegate(&["audit", "verify", "--store", &bad])] {
        assert_eq!(ran.code, 1, "{}\n{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains("not signed by a trusted authority"), "{}", ran.stderr);
    }
}

#[test]
fn client_certificates_are_shown_and_secrets_are_not() {
    let server = Server::start("db.internal.example");
    let url = |user: &str, query: &str| {
        server.url(user, "127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={{}}/ca.crt{query}"))
    };
    let shown = |name: &str| format!("&sslcert={{}}/{name}.crt&sslkey={{}}/{name}.key");
    works(&server, &url("badge", &shown("badge")));
    fails(
        &url("badge", ""),
        "connection requires a valid client certificate (28000); if the server wants a client certificate, set sslcert and sslkey",
    );
    fails(&url("badge", &shown("forged")), "the server refuses our side of TLS");
    fails(&url("badge", &shown("somebody")), "authentication failed for user \"badge\" (28000)");
    fails(&url("badge", "&sslcert={}/badge.crt"), "has only one of sslcert and sslkey");
    fails(&url("badge", "&sslcert={}/badge.crt&sslkey={}/somebody.key"), "and its sslkey cannot be used");
    fails(&url("badge", "&sslcert={}/badge.crt&sslkey={}/ca.crt"), "it has no unencrypted private key");
    // A server that wants no TLS from a user is still reached.
    works(&server, &server.url("plain", "127.0.0.1", "sslmode=prefer"));

    works(&server, &url("locked:swordfish", ""));
    for query in [&shown("forged"), "&sslmode=verify-full", "&sslkey={}/badge.key", "&nonsense=1"] {
        let url = url("locked:swordfish", query);
        let ran = bench(&url).run(&["--log-level", "debug"]);
        assert_ne!(ran.code, 0, "{url}");
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.contains("swordfish") && !all.contains("PRIVATE"), "{all}");
    }
}

/// 0.0.0.0 leads to this machine, and does not count as it.
#[test]
fn another_machine_proves_who_it_is_before_it_gets_a_password() {
    let server = Server::start("0.0.0.0");
    let url = |user: &str, query: &str| server.url(user, "0.0.0.0", query);
    let root = "sslrootcert={}/ca.crt";
    works(&server, &url("postgres", root));
    fails(
        &url("postgres", ""),
        "name the authority of this server with sslrootcert; or set sslmode=require if you know that this server has no certificate that can be verified",
    );
    fails(&url("postgres", "sslrootcert={}/other.crt"), "not signed by a trusted authority");
    works(&server, &url("postgres", "sslmode=require"));
    for (user, query, good) in [
        ("locked:swordfish", root, true),
        ("locked:swordfish", "sslmode=require", true),
        ("locked:swordfish", "sslmode=require&require_auth=scram-sha-256", true),
        // In clear text, to a server that is known, or because the URL says so.
        ("clear:swordfish", root, true),
        ("clear:swordfish", &format!("sslmode=verify-ca&{root}"), true),
        ("clear:swordfish", "sslmode=require&require_auth=password", true),
        ("clear:swordfish", "sslmode=require", false),
        ("clear:swordfish", "sslmode=prefer", false),
        ("clear:swordfish", &format!("{root}&require_auth=scram-sha-256"), false),
    ] {
        if good {
            works(&server, &url(user, query));
        } else {
            fails(&url(user, query), "the server asks for the password in clear text");
        }
    }
    let found = |query: &str| {
        let ran = bench(&url("locked:swordfish", query)).tidegate(&["doctor", "m.yaml", "--format", "json"]);
        let found = ran.json().as_array().unwrap().clone();
        let one = found.into_iter().find(|one| one["check"] == "sink: connection");
        one.unwrap_or_else(|| panic!("{}", ran.stdout))
    };
    let proven = found(root);
    assert_eq!(
        (proven["health"].as_str().unwrap(), proven["found"].as_str().unwrap()),
        (
            "ok",
            "TLS, the certificate is checked for the host name (sslmode=verify-full, the default for other machines); the server asks for a proof of the password (SCRAM)"
        )
    );
    let exposed = found("sslmode=require");
    assert_eq!(
        (exposed["health"].as_str().unwrap(), exposed["found"].as_str().unwrap()),
        (
            "warn",
            "TLS without a check of the certificate (sslmode=require, set in the URL); the server asks for a proof of the password (SCRAM)"
        )
    );
}
