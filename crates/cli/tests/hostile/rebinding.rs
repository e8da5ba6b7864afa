//! DNS rebinding: a web site lets its name point to this machine, and the browser of a user asks our servers
//! in its name. They answer only to names that are theirs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Child;

use crate::workdir::Workdir;

/// A server of the built binary. It is killed at the end.
struct Server(Child, SocketAddr);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn chaos(work: &Workdir, more: &[&str]) -> Server {
        let mut child = work.command(&[&["chaos"], more].concat()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let addr = line.trim().strip_prefix("http://").unwrap().parse().unwrap();
        Server(child, addr)
    }

    /// Sends a head, and returns the status line and the rest of the answer.
    fn ask(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(self.1).unwrap();
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn status(&self, head: &str) -> String {
        self.ask(head).lines().next().unwrap_or_default().to_owned()
    }
}

#[test]
fn chaos_answers_only_to_its_own_names() {
    let work = Workdir::new();
    let server = Server::chaos(&work, &[]);
    let port = server.1.port();
    for path in
        ["/__quit", "/__reset", "/__stats", "/__config", "/__layer", "/geocode?q=1+Main", "/", "/s3/b/k"]
    {
        for host in [
            "evil.example".to_owned(),
            format!("evil.example:{port}"),
            format!("127.0.0.1.evil.example:{port}"),
            format!("10.0.0.7:{port}"),
            format!("0.0.0.0:{port}"),
            format!("2130706433:{port}"),
            format!("localhost:{port}@evil.example"),
            String::new(),
        ] {
            for method in ["GET", "POST"] {
                let answer = server.ask(&format!("{method} {path} HTTP/1.1\r\nHost: {host}"));
                assert!(answer.starts_with("HTTP/1.1 421 "), "{path} {host}: {answer}");
                assert!(!answer.contains("requests"), "{path} {host}: it tells something: {answer}");
            }
        }
        assert!(server.status(&format!("GET {path} HTTP/1.1")).contains(" 421 "), "{path} without a host");
        let twice = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: evil.example");
        assert!(server.status(&twice).contains(" 400 "), "{path} with two hosts");
    }
    // It was not stopped, and counted none of them.
    for host in [format!("127.0.0.1:{port}"), "localhost".into(), format!("LOCALHOST:{port}"), "[::1]".into()]
    {
        let answer = server.ask(&format!("GET /__stats HTTP/1.1\r\nHost: {host}"));
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"requests\": 0"),
            "{host}: {answer}"
        );
    }
}

#[test]
fn a_name_that_was_allowed_is_one_of_its_own() {
    let work = Workdir::new();
    let server = Server::chaos(&work, &["--allow-host", "provider.test", "--allow-host", "other.test"]);
    for (host, status) in [
        ("provider.test", "200"),
        ("Other.Test:80", "200"),
        ("sub.provider.test", "421"),
        ("provider.test.evil.example", "421"),
    ] {
        let said = server.status(&format!("GET /__stats HTTP/1.1\r\nHost: {host}"));
        assert!(said.contains(status), "{host}: {said}");
    }
    assert!(server.status("GET /__quit HTTP/1.1\r\nHost: provider.test").contains(" 200 "));
}
