//! Where the next hop goes, and what it leaves behind.
//!
//! Credentials belong to an origin: scheme, host and port. The first hop that leaves it leaves
//! them behind, and they do not come back, not even when a later hop returns. A redirect that
//! would turn a POST into a GET is not followed unless it is a 303, which says so: data that was
//! not written must not look like data that was.

use super::allow::Allow;
use super::failure::Failure;
use super::request::{Request, attach, detach};
use super::{Response, Wire};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use url::Url;

/// One attempt on its way from hop to hop.
pub(super) struct Hop<'a> {
    request: &'a Request,
    /// Still at the origin that the credentials are for.
    home: bool,
    method: Method,
    pub(super) url: Url,
    headers: HeaderMap,
    body: Bytes,
    followed: u32,
}

/// Whether an answer sends us elsewhere.
pub(super) fn is_redirect(response: &Response) -> bool {
    matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308)
        && response.headers.contains_key(header::LOCATION)
}

impl<'a> Hop<'a> {
    pub(super) fn first(request: &'a Request, user_agent: &HeaderValue) -> Hop<'a> {
        Hop {
            request,
            home: true,
            method: request.method.clone(),
            url: request.url.clone(),
            headers: request.sent_headers(user_agent),
            body: request.body.clone(),
            followed: 0,
        }
    }

    /// What goes on the wire now.
    pub(super) fn wire(&self, allow: &Allow) -> Result<Wire, Failure> {
        allow.url(&self.url)?;
        let (mut url, mut headers) = (self.url.clone(), self.headers.clone());
        // A user in the URL would be printed and sent by the libraries below.
        if !url.username().is_empty() || url.password().is_some() {
            let _ = url.set_username("");
            let _ = url.set_password(None);
        }
        url.set_fragment(None);
        if self.home {
            attach(&self.request.credentials, &mut url, &mut headers);
        }
        let uri: Uri =
            url.as_str().parse().map_err(|_| Failure::Malformed("the URL is too long or no URL".into()))?;
        Ok(Wire { method: self.method.clone(), uri, headers, body: self.body.clone() })
    }

    /// Tells the service to which span this attempt belongs. Not others: a redirect elsewhere
    /// leaves it behind like a credential.
    pub(super) fn belongs_to(&mut self, traceparent: &[u8]) {
        let name = HeaderName::from_static("traceparent");
        match HeaderValue::from_bytes(traceparent) {
            Ok(value) if self.home => drop(self.headers.insert(name, value)),
            _ => drop(self.headers.remove(name)),
        }
    }

    /// The name of the credentials that go along.
    pub(super) fn credential_name(&self) -> String {
        if self.home { self.request.credential_name() } else { String::new() }
    }

    /// Goes on to where `response` points.
    pub(super) fn follow(
        &mut self,
        response: &Response,
        allow: &Allow,
        redirects_max: u32,
    ) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Redirect(why.into()));
        if self.followed >= redirects_max {
            return refuse("too many redirects");
        }
        let location = response.headers.get(header::LOCATION).and_then(|l| l.to_str().ok());
        let Some(mut next) = location.and_then(|l| self.url.join(l).ok()) else {
            return refuse("the redirect names no URL");
        };
        next.set_fragment(None);
        match response.status {
            StatusCode::SEE_OTHER => {
                if self.method != Method::HEAD {
                    self.method = Method::GET;
                }
                self.body = Bytes::new();
                for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING] {
                    self.headers.remove(name);
                }
            }
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND
                if self.method != Method::GET && self.method != Method::HEAD =>
            {
                return refuse("the redirect would change the method");
            }
            _ => {}
        }
        allow.url(&next)?;
        if self.url.scheme() == "https" && next.scheme() == "http" {
            return refuse("the redirect leads from https to http");
        }
        if next.origin() != self.url.origin() {
            self.home = false;
            detach(&mut self.headers);
        }
        self.url = next;
        self.followed += 1;
        Ok(())
    }
}
