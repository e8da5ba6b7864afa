//! Where the next hop goes, and what it leaves behind.
//!
//! Credentials belong to an origin: scheme, host and port. The first hop that leaves it leaves
//! them behind, and they do not come back, not even when a later hop returns. A redirect that
//! would turn a POST into a GET is not followed unless it is a 303, which says so: data that was
//! not written must not look like data that was.

use super::allow::Allow;
use super::failure::HttpFailure;
use super::request::{Request, attach, detach};
use super::{OutgoingRequest, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use std::borrow::Cow;
use url::Url;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// One attempt on its way from hop to hop.
pub(super) struct Hop<'a> {
    request: &'a Request,
    user_agent: &'a HeaderValue,
    /// What tells the service its span.
    traceparent: Option<HeaderValue>,
    /// Still at the origin that the credentials are for.
    home: bool,
    /// Turned into a question without a body.
    bare: bool,
    /// Where a redirect led; at first it is where the request goes.
    moved: Option<Url>,
    followed: u32,
}

/// Whether an answer sends us elsewhere.
pub(super) fn is_redirect(response: &Response) -> bool {
    matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308)
        && response.headers.contains_key(header::LOCATION)
}

impl<'a> Hop<'a> {
    pub(super) fn first(request: &'a Request, user_agent: &'a HeaderValue) -> Hop<'a> {
        Hop { request, user_agent, traceparent: None, home: true, bare: false, moved: None, followed: 0 }
    }

    /// Where it goes now.
    pub(super) fn url(&self) -> &Url {
        self.moved.as_ref().unwrap_or(&self.request.url)
    }

    fn method(&self) -> &Method {
        // What has no body any more is a GET, or the HEAD that it was.
        if self.bare && self.request.method != Method::HEAD { &Method::GET } else { &self.request.method }
    }

    /// What goes on the wire now.
    pub(super) fn wire(&self, allow: &Allow) -> Result<OutgoingRequest<'_>, HttpFailure> {
        allow.url(self.url())?;
        let mut url = Cow::Borrowed(self.url());
        let mut headers = self.request.sent_headers(self.user_agent);
        // A user in the URL would be printed and sent by the libraries below.
        if !url.username().is_empty() || url.password().is_some() {
            let _ = url.to_mut().set_username("");
            let _ = url.to_mut().set_password(None);
        }
        if self.bare {
            for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING] {
                headers.remove(name);
            }
        }
        if self.home {
            if let Some(traceparent) = &self.traceparent {
                headers.insert(TRACEPARENT, traceparent.clone());
            }
            if !self.request.credentials.is_empty() {
                attach(&self.request.credentials, url.to_mut(), &mut headers);
            }
        } else {
            detach(&mut headers);
        }
        let body = if self.bare { Bytes::new() } else { self.request.body.clone() };
        Ok(OutgoingRequest { method: self.method().clone(), url, headers, body })
    }

    /// Tells the service to which span this attempt belongs. Not others: a redirect elsewhere
    /// leaves it behind like a credential.
    pub(super) fn belongs_to(&mut self, traceparent: &[u8]) {
        self.traceparent = HeaderValue::from_bytes(traceparent).ok();
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
    ) -> Result<(), HttpFailure> {
        let refuse = |why: &str| Err(HttpFailure::Redirect(why.into()));
        if self.followed >= redirects_max {
            return refuse("too many redirects");
        }
        let location = response.headers.get(header::LOCATION).and_then(|l| l.to_str().ok());
        let Some(mut next) = location.and_then(|l| self.url().join(l).ok()) else {
            return refuse("the redirect has no valid URL");
        };
        next.set_fragment(None);
        match response.status {
            StatusCode::SEE_OTHER => self.bare = true,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND
                if *self.method() != Method::GET && *self.method() != Method::HEAD =>
            {
                return refuse("the redirect would change the method");
            }
            _ => {}
        }
        allow.url(&next)?;
        if self.url().scheme() == "https" && next.scheme() == "http" {
            return refuse("the redirect leads from https to http");
        }
        if next.origin() != self.url().origin() {
            self.home = false;
        }
        self.moved = Some(next);
        self.followed += 1;
        Ok(())
    }
}
