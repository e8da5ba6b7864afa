//! A PostgreSQL server that ends with the test.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Who may come in, and how.
const HBA: &str = "
local all postgres trust
host  all postgres 127.0.0.1/32 trust
host  all all      127.0.0.1/32 scram-sha-256
";

/// A server on a free port.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    port: u16,
}

fn tool(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut found: Vec<PathBuf> = versions
        .map(|entry| entry.unwrap().path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}

impl Server {
    pub(crate) fn start() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Server { dir, port };
        server.pg("initdb", &["-D", &server.file("data"), "-A", "trust", "-U", "postgres", "--no-sync"]);
        std::fs::write(server.file("hba.conf"), HBA).unwrap();
        server.begin("start");
        server
    }

    fn begin(&self, how: &str) {
        let dir = self.dir.path().display();
        let options =
            format!("-p {} -k {dir} -c listen_addresses=127.0.0.1 -c hba_file={dir}/hba.conf", self.port);
        let (data, log) = (self.file("data"), self.file("log"));
        self.pg("pg_ctl", &["-D", &data, "-w", "-m", "immediate", "-l", &log, "-o", &options, how]);
    }

    /// Stops it without warning, as a crash would, and starts it again.
    pub(crate) fn restart(&self) {
        self.begin("restart");
    }

    /// Stops it without warning.
    pub(crate) fn stop(&self) {
        self.pg("pg_ctl", &["-D", &self.file("data"), "-w", "-m", "immediate", "stop"]);
    }

    pub(crate) fn sql(&self, sql: &str) {
        let port = self.port.to_string();
        self.pg("psql", &["-h", &self.file(""), "-p", &port, "-U", "postgres", "-qtAc", sql]);
    }

    pub(crate) fn url(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// A program of PostgreSQL, not as root, which the server refuses.
    fn pg(&self, name: &str, args: &[&str]) {
        let mut command = Command::new("runuser");
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
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
        assert!(status.success(), "{name}: {}", std::fs::read_to_string(err).unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be stopped already.
        if std::fs::exists(self.dir.path().join("data/postmaster.pid")).unwrap_or(false) {
            self.stop();
        }
    }
}
