//! Servers in the background of a page: `tidegate chaos` and `tidegate serve`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that ends with its page.
pub(crate) struct Server {
    child: Child,
    /// Its address, such as `http://127.0.0.1:41873`.
    pub(crate) url: String,
}

impl Server {
    /// Starts the command and waits until it has printed its address.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Server {
        let out = fs::File::create(log).unwrap();
        let child =
            command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        let mut server = Server { child, url: String::new() };
        let start = Instant::now();
        while server.url.is_empty() {
            let text = fs::read_to_string(log).unwrap();
            // A line that is complete: an address is never cut.
            let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            if let Some((_, rest)) = complete.split_once("http://") {
                let host: String =
                    rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
                server.url = format!("http://{host}");
            } else {
                assert!(server.child.try_wait().unwrap().is_none(), "{command:?} ended:\n{text}");
                assert!(start.elapsed() < Duration::from_secs(30), "{command:?} told no address:\n{text}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `curl -s URL` does, so that the tests do not need curl.
pub(crate) fn get(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
