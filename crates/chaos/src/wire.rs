//! Reads HTTP/1.1 requests from a socket.
//!
//! Why our own parser around `httparse` and not a server framework: truncating bodies, breaking
//! chunks and resetting connections require the bare socket, and a loop per connection with few
//! allocations is fast enough not to limit a benchmark.

use std::io;
use std::num::NonZeroU32;
use tidegate_core::hex::unhex_byte;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::hash;

const HEAD_MAX: usize = 64 * 1024;
const BODY_MAX: usize = 64 * 1024 * 1024;
const HEADERS_MAX: usize = 100;

/// A request as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    /// Path and query as sent.
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) keep_alive: bool,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    /// The path without the query, as sent.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The query, as sent.
    pub(crate) fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, q)| q)
    }

    /// The decoded value of a query parameter; names are case-insensitive.
    pub(crate) fn param(&self, name: &str) -> Option<String> {
        find(self.query(), name)
    }

    /// The same, from the query or from a form in the body.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        self.param(name).or_else(|| {
            let form = self.content_type.starts_with("application/x-www-form-urlencoded");
            form.then(|| std::str::from_utf8(&self.body).ok().and_then(|body| find(body, name))).flatten()
        })
    }

    /// The identity of a request: the hash of its idempotency key, else of the whole request.
    pub(crate) fn identity(&self) -> u64 {
        match &self.idempotency_key {
            Some(key) => hash::bytes(1, key.as_bytes()),
            None => self.all(),
        }
    }

    /// A short hash of the content, to detect a key that is reused for another request.
    pub(crate) fn print(&self) -> NonZeroU32 {
        NonZeroU32::new(self.all() as u32).unwrap_or(NonZeroU32::MIN)
    }

    fn all(&self) -> u64 {
        let head = hash::bytes(hash::bytes(2, self.method.as_bytes()), self.target.as_bytes());
        // Each range of a raster is a request of its own.
        let head = match &self.range {
            Some(range) if self.target.starts_with("/raster/") => hash::bytes(head, range.as_bytes()),
            _ => head,
        };
        hash::bytes(head, &self.body)
    }
}

fn find(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        key.eq_ignore_ascii_case(name).then(|| decode(value))
    })
}

/// Decodes percent escapes and plus signs; invalid UTF-8 is replaced.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let hex = || unhex_byte(*bytes.get(i + 1)?, *bytes.get(i + 2)?);
        match byte {
            b'+' => out.push(b' '),
            b'%' => match hex() {
                Some(value) => {
                    out.push(value);
                    i += 2;
                }
                None => out.push(byte),
            },
            _ => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Why a request could not be read.
#[derive(Debug)]
pub(crate) enum RequestReadError {
    /// The client has closed the connection, or the socket failed.
    Gone,
    /// The bytes are not valid HTTP; the status of the response.
    Wrong(u16),
}

impl From<io::Error> for RequestReadError {
    fn from(_: io::Error) -> RequestReadError {
        RequestReadError::Gone
    }
}

enum Length {
    Known(usize),
    Chunked,
}

/// Reads one request; `buffer` keeps the bytes after it.
pub(crate) async fn read(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> Result<ReceivedRequest, RequestReadError> {
    loop {
        if let Some((mut request, used, length, expects)) = head(buffer)? {
            if expects {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
            }
            buffer.drain(..used);
            match length {
                Length::Known(length) => {
                    while buffer.len() < length {
                        more(stream, buffer).await?;
                    }
                    request.body = buffer.drain(..length).collect();
                }
                Length::Chunked => request.body = chunks(stream, buffer).await?,
            }
            return Ok(request);
        }
        if buffer.len() > HEAD_MAX {
            return Err(RequestReadError::Wrong(431));
        }
        more(stream, buffer).await?;
    }
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(), RequestReadError> {
    buffer.reserve(16 * 1024);
    if stream.read_buf(buffer).await? == 0 { Err(RequestReadError::Gone) } else { Ok(()) }
}

fn head(buffer: &[u8]) -> Result<Option<(ReceivedRequest, usize, Length, bool)>, RequestReadError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let used = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(RequestReadError::Wrong(431)),
        Err(_) => return Err(RequestReadError::Wrong(400)),
    };
    let mut request = ReceivedRequest {
        method: parsed.method.unwrap_or_default().to_owned(),
        target: parsed.path.unwrap_or_default().to_owned(),
        keep_alive: parsed.version == Some(1),
        ..ReceivedRequest::default()
    };
    let mut length = Length::Known(0);
    let mut expects = false;
    for header in parsed.headers.iter() {
        let text = || String::from_utf8_lossy(header.value).trim().to_owned();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("host") {
            if !request.host.is_empty() {
                return Err(RequestReadError::Wrong(400));
            }
            request.host = text();
        } else if is("content-length") {
            match text().parse::<usize>() {
                Ok(n) if n <= BODY_MAX => length = Length::Known(n),
                Ok(_) => return Err(RequestReadError::Wrong(413)),
                Err(_) => return Err(RequestReadError::Wrong(400)),
            }
        } else if is("transfer-encoding") {
            if !text().eq_ignore_ascii_case("chunked") {
                return Err(RequestReadError::Wrong(501));
            }
            length = Length::Chunked;
        } else if is("connection") {
            let value = text().to_ascii_lowercase();
            request.keep_alive =
                if request.keep_alive { !value.contains("close") } else { value.contains("keep-alive") };
        } else if is("expect") {
            expects = text().eq_ignore_ascii_case("100-continue");
        } else if is("content-type") {
            request.content_type = text();
        } else if is("accept") {
            request.accept = text();
        } else if is("idempotency-key") {
            request.idempotency_key = Some(text());
        } else if is("range") {
            request.range = Some(text());
        } else if is("if-range") {
            request.if_range = Some(text());
        } else if is("if-match") {
            request.if_match = Some(text());
        } else if is("authorization") || is("x-api-key") || is("api-key") {
            request.api_key = Some(text());
        }
    }
    Ok(Some((request, used, length, expects)))
}

/// Reads a chunked body and its trailers.
async fn chunks(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<Vec<u8>, RequestReadError> {
    let mut body = Vec::new();
    loop {
        let line = line(stream, buffer).await?;
        let size = std::str::from_utf8(&line).ok().and_then(|l| l.split(';').next());
        let size = size
            .and_then(|l| usize::from_str_radix(l.trim(), 16).ok())
            .ok_or(RequestReadError::Wrong(400))?;
        if size == 0 {
            while !self::line(stream, buffer).await?.is_empty() {}
            return Ok(body);
        }
        if body.len().saturating_add(size) > BODY_MAX {
            return Err(RequestReadError::Wrong(413));
        }
        while buffer.len() < size + 2 {
            more(stream, buffer).await?;
        }
        body.extend(buffer.drain(..size));
        buffer.drain(..2);
    }
}

/// Reads a line without its line break.
async fn line(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<Vec<u8>, RequestReadError> {
    loop {
        if let Some(end) = buffer.windows(2).position(|pair| pair == b"\r\n") {
            let line = buffer.drain(..end).collect();
            buffer.drain(..2);
            return Ok(line);
        }
        if buffer.len() > HEAD_MAX {
            return Err(RequestReadError::Wrong(400));
        }
        more(stream, buffer).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_and_finds() {
        assert_eq!(decode("a%20b+c%C3%A9%zz%"), "a b cé%zz%");
        let request = ReceivedRequest { target: "/x?q=1+Main&Foo=b%26".into(), ..ReceivedRequest::default() };
        assert_eq!(request.param("foo").as_deref(), Some("b&"));
        assert_eq!((request.path(), request.param("bar")), ("/x", None));
    }

    #[test]
    fn identity_is_the_key_or_the_whole_request() {
        let a = ReceivedRequest { method: "GET".into(), target: "/a".into(), ..ReceivedRequest::default() };
        let b = ReceivedRequest { host: "other".into(), ..a.clone() };
        let c = ReceivedRequest { body: b"x".to_vec(), ..a.clone() };
        assert_eq!(a.identity(), b.identity());
        assert_ne!(a.identity(), c.identity());
        let key = |r: &ReceivedRequest| {
            ReceivedRequest { idempotency_key: Some("k".into()), ..r.clone() }.identity()
        };
        assert_eq!(key(&a), key(&c));
    }
}
