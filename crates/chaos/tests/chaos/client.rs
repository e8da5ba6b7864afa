//! A client without manners of its own: raw bytes over TCP, so that every fault is seen as it is.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tidegate_chaos::{Chaos, ChaosClock, Config, FaultKind, FaultRule, Handle, spec};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Cut,
    Reset,
}

/// An answer as it came over the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) end: End,
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

/// A server on a clock turned by hand.
pub(crate) fn start(config: Config) -> (Handle, ChaosClock) {
    let clock = ChaosClock::manual();
    (Chaos::start_on(config, clock.clone()).unwrap(), clock)
}

/// A configuration with one fault.
pub(crate) fn with(kind: FaultKind, when: &str) -> Config {
    Config { faults: vec![FaultRule { kind, when: spec::when(when).unwrap() }], ..Config::default() }
}

/// Sends bytes and reads until the server closes.
pub(crate) fn send(addr: SocketAddr, request: &[u8]) -> Got {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request).unwrap();
    let mut bytes = Vec::new();
    let reset = match stream.read_to_end(&mut bytes) {
        Ok(_) => false,
        Err(e) if e.kind() == ErrorKind::ConnectionReset => true,
        Err(e) => panic!("{e}"),
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let mut got = Got { end: End::Whole, status, head: head.to_owned(), body: body.to_owned() };
    let length = got.header("content-length").and_then(|v| v.parse::<usize>().ok());
    let chunked = got.header("transfer-encoding").is_some();
    let no_body = request.starts_with(b"HEAD") || status == 204;
    let whole = !chunked && (no_body || length == Some(got.body.len()));
    got.end = if reset {
        End::Reset
    } else if whole {
        End::Whole
    } else {
        End::Cut
    };
    got
}

/// A GET.
pub(crate) fn get(handle: &Handle, target: &str) -> Got {
    call(handle, "GET", target, "", "")
}

/// Any request; `headers` are whole lines.
pub(crate) fn call(handle: &Handle, method: &str, target: &str, headers: &str, body: &str) -> Got {
    let length = body.len();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\
         {headers}\r\n{body}"
    );
    send(handle.addr(), request.as_bytes())
}
