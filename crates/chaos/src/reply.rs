//! A response and its serialization.

use std::io::Write;

use tidegate_core::Wall;
use tidegate_core::hint::date;

use super::fate::RowFate;
use super::quota_headers::Headers;

/// A response before faults are applied to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseDraft {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
    /// The Content-Length to send instead of the body's, for HEAD.
    pub(crate) stated_length: Option<u64>,
    /// Whether it counts as executed work: a repeat would be a duplicate.
    pub(crate) work: bool,
    /// The outcome of the row that it is about.
    pub(crate) row: RowFate,
}

impl ResponseDraft {
    /// A response with this status and body.
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> ResponseDraft {
        ResponseDraft { status, content_type, body: body.into(), ..ResponseDraft::default() }
    }

    /// A JSON response.
    pub(crate) fn json(status: u16, value: &serde_json::Value) -> ResponseDraft {
        ResponseDraft::new(status, "application/json", value.to_string())
    }

    /// Marks the response as executed work.
    pub(crate) fn worked(self) -> ResponseDraft {
        ResponseDraft { work: true, ..self }
    }

    /// The status line and headers; chunked if no length may be sent.
    pub(crate) fn head(&self, wall: Wall, close: bool, chunked: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.body.len());
        // Writing to a vector cannot fail.
        let _ = write!(out, "HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        let _ = write!(out, "Date: {}\r\n", date::imf_fixdate(wall));
        if !self.content_type.is_empty() {
            let _ = write!(out, "Content-Type: {}\r\n", self.content_type);
        }
        if chunked {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if self.status != 204 {
            let length = self.stated_length.unwrap_or(self.body.len() as u64);
            let _ = write!(out, "Content-Length: {length}\r\n");
        }
        for (name, value) in &self.headers {
            // Some dialects include a Date header; send only one.
            if *name != "Date" {
                let _ = write!(out, "{name}: {value}\r\n");
            }
        }
        if close {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Other",
    }
}
