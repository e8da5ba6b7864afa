//! Follows redirects.
//!
//! Credentials belong to an origin: scheme, host and port. The first redirect to another origin
//! drops them for the rest of the attempt, even if a later redirect returns. A redirect that would
//! turn a POST into a GET is followed only for a 303, which asks for it: otherwise data that was
//! not written could look written.

use super::allow::Allow;
use super::failure::HttpFailure;
use super::request::{Request, attach, detach};
use super::{OutgoingRequest, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use std::borrow::Cow;
use url::Url;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The state of one attempt between redirects.
pub(super) struct Hop<'a> {
    request: &'a Request,
    user_agent: &'a HeaderValue,
    /// The `traceparent` header for the service.
    traceparent: Option<HeaderValue>,
    /// Whether no redirect has left the origin of the credentials.
    home: bool,
    /// Whether a redirect has dropped the body.
    bare: bool,
    /// The target of the last redirect; `None` before the first.
    moved: Option<Url>,
    /// The number of redirects followed.
    followed: u32,
}

/// Whether a response is a redirect.
pub(super) fn is_redirect(response: &Response) -> bool {
    matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308)
        && response.headers.contains_key(header::LOCATION)
}

impl<'a> Hop<'a> {
    pub(super) fn first(request: &'a Request, user_agent: &'a HeaderValue) -> Hop<'a> {
        Hop { request, user_agent, traceparent: None, home: true, bare: false, moved: None, followed: 0 }
    }

    /// The current URL.
    pub(super) fn url(&self) -> &Url {
        self.moved.as_ref().unwrap_or(&self.request.url)
    }

    fn method(&self) -> &Method {
        // Without its body it is a GET, or remains a HEAD.
        if self.bare && self.request.method != Method::HEAD { &Method::GET } else { &self.request.method }
    }

    /// The request to send now.
    pub(super) fn wire(&self, allow: &Allow) -> Result<OutgoingRequest<'_>, HttpFailure> {
        allow.url(self.url())?;
        let mut url = Cow::Borrowed(self.url());
        let mut headers = self.request.sent_headers(self.user_agent);
        // The libraries below would log and send a user name in the URL.
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

    /// Sets the `traceparent` header. It is dropped with the credentials when a redirect leaves the
    /// origin.
    pub(super) fn belongs_to(&mut self, traceparent: &[u8]) {
        self.traceparent = HeaderValue::from_bytes(traceparent).ok();
    }

    /// The names of the credentials that are still sent.
    pub(super) fn credential_name(&self) -> Cow<'_, str> {
        if self.home { self.request.credential_name() } else { Cow::Borrowed("") }
    }

    /// Follows the redirect in `response`.
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
