//! A private server on a free port, with its data in a temporary directory.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How to start it: the port and the directory of its data.
type Start = fn(u16, &Path) -> io::Result<Command>;

/// A server that ends with its test.
pub(crate) struct Server {
    start: Start,
    pub(crate) port: u16,
    pub(crate) directory: TempDir,
    process: Mutex<Child>,
}

impl Server {
    /// Starts a server. `prepare` writes files into its directory before.
    pub(crate) fn start(prepare: impl Fn(&Path) -> io::Result<()>, start: Start) -> io::Result<Server> {
        let directory = tempfile::tempdir()?;
        prepare(directory.path())?;
        // Another process can take the port between the look and the start.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            if let Some(process) = run(start, port, directory.path())? {
                return Ok(Server { start, port, directory, process: Mutex::new(process) });
            }
        }
        Err(io::Error::other("the server did not start; is it installed?"))
    }

    /// Kills the server without warning and starts it with the same data.
    pub(crate) fn restart(&self) -> io::Result<()> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.kill()?;
        process.wait()?;
        for _ in 0..20 {
            if let Some(started) = run(self.start, self.port, self.directory.path())? {
                *process = started;
                return Ok(());
            }
        }
        Err(io::Error::other("the server did not start again"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Starts it and waits until it accepts connections; `None` if it ended.
fn run(start: Start, port: u16, directory: &Path) -> io::Result<Option<Child>> {
    let mut process = start(port, directory)?.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if process.try_wait()?.is_some() {
            return Ok(None);
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            // Not another program on the same port: that would have ended ours.
            std::thread::sleep(Duration::from_millis(50));
            return Ok(process.try_wait()?.is_none().then_some(process));
        }
        if Instant::now() > end {
            process.kill()?;
            process.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes an authority (`ca.pem`) and a certificate of this machine (`server.pem`, `server.key`).
pub(crate) fn write_certificates(directory: &Path) -> io::Result<()> {
    let made = || {
        let ca_key = rcgen::KeyPair::generate()?;
        let mut ca = rcgen::CertificateParams::new(vec!["Tests".to_owned()])?;
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key)?.pem();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate()?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = rcgen::CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        Ok([("ca.pem", ca_pem), ("server.pem", certificate.pem()), ("server.key", key.serialize_pem())])
    };
    for (name, text) in made().map_err(|e: rcgen::Error| io::Error::other(e.to_string()))? {
        std::fs::write(directory.join(name), text)?;
    }
    Ok(())
}

/// Where the certificate of the authority is.
pub(crate) fn ca(server: &Server) -> PathBuf {
    server.directory.path().join("ca.pem")
}
