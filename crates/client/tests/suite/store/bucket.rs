//! A bucket on loopback that keeps what it is given, and misbehaves when told to.

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use tidegate_client::store::{CloudSettings, StoreSettings};

/// What goes wrong with one request.
pub(crate) enum Mischief {
    /// This status with this error code; nothing is done.
    Refuse(u16, &'static str),
    /// It is done and the connection is closed before the answer.
    LoseAnswer,
    /// The connection is closed and nothing is done.
    HangUp,
    /// The body of the answer ends after so many bytes.
    Cut(usize),
    /// 200 with an error in the body; nothing is done.
    ErrorIn200(&'static str),
}

type Hook = Box<dyn FnMut(&Parts) -> Option<Mischief> + Send>;
type Body = BoxBody<Bytes, io::Error>;

#[derive(Default)]
struct Shelf {
    objects: BTreeMap<String, (Bytes, u64)>,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    writes: u64,
    log: Vec<String>,
    hook: Option<Hook>,
}

#[derive(Clone)]
pub(crate) struct Bucket {
    shelf: Arc<Mutex<Shelf>>,
    pub(crate) url: String,
}

impl Bucket {
    pub(crate) async fn start() -> Bucket {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bucket = Bucket { shelf: Arc::default(), url };
        let served = bucket.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let bucket = served.clone();
                tokio::spawn(async move {
                    let answer = service_fn(move |request| {
                        let bucket = bucket.clone();
                        async move { bucket.answer(request).await }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        });
        bucket
    }

    /// Settings that reach it.
    pub(crate) fn settings(&self) -> StoreSettings {
        let endpoint = Some(self.url.parse().unwrap());
        StoreSettings { cloud: CloudSettings { endpoint, ..CloudSettings::default() }, ..super::quick() }
    }

    /// From now on, every request is first shown to `hook`.
    pub(crate) fn misbehave(&self, hook: impl FnMut(&Parts) -> Option<Mischief> + Send + 'static) {
        self.shelf.lock().unwrap().hook = Some(Box::new(hook));
    }

    /// Method, path and query of the requests so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.shelf.lock().unwrap().log.clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.shelf.lock().unwrap().objects.keys().cloned().collect()
    }

    pub(crate) fn uploads(&self) -> usize {
        self.shelf.lock().unwrap().uploads.len()
    }

    pub(crate) fn overwrite(&self, key: &str, content: &'static [u8]) {
        self.shelf.lock().unwrap().put(key, Bytes::from_static(content));
    }

    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let mut shelf = self.shelf.lock().unwrap();
        shelf.log.push(format!("{} {}", head.method, head.uri));
        let mischief = shelf.hook.as_mut().and_then(|hook| hook(&head));
        match mischief {
            Some(Mischief::HangUp) => return Err(io::Error::other("hung up")),
            Some(Mischief::Refuse(status, code)) => return Ok(fault(status, code)),
            Some(Mischief::ErrorIn200(code)) => return Ok(fault(200, code)),
            _ => {}
        }
        let (mut answer, content) = shelf.act(&head, body);
        match mischief {
            Some(Mischief::LoseAnswer) => Err(io::Error::other("lost")),
            Some(Mischief::Cut(after)) => {
                let length = content.len();
                let pieces =
                    [Ok(Frame::data(content.slice(..after.min(length)))), Err(io::Error::other("cut"))];
                answer.headers_mut().insert("content-length", length.into());
                Ok(answer.map(|()| StreamBody::new(stream::iter(pieces)).boxed()))
            }
            _ => Ok(answer.map(|()| whole(content))),
        }
    }
}

fn whole(content: Bytes) -> Body {
    Full::new(content).map_err(|never| match never {}).boxed()
}

fn fault(status: u16, code: &str) -> Response<Body> {
    let body = format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>no</Message></Error>");
    let answer = Response::builder().status(status).header("content-type", "application/xml");
    answer.body(whole(body.into())).unwrap()
}

impl Shelf {
    fn put(&mut self, key: &str, content: Bytes) -> String {
        self.writes += 1;
        self.objects.insert(key.to_owned(), (content, self.writes));
        format!("\"{:x}\"", self.writes)
    }

    /// Does what is asked, and answers.
    fn act(&mut self, head: &Parts, body: Bytes) -> (Response<()>, Bytes) {
        let query: BTreeMap<String, String> =
            url::form_urlencoded::parse(head.uri.query().unwrap_or("").as_bytes()).into_owned().collect();
        let path = decode(head.uri.path().strip_prefix("/bucket").unwrap());
        let key = path.trim_start_matches('/');
        let ok = || Response::builder();
        let plain = |answer: http::response::Builder| (answer.body(()).unwrap(), Bytes::new());
        let refuse = |status: u16, code: &str| {
            let body = format!("<Error><Code>{code}</Code></Error>");
            (Response::builder().status(status).body(()).unwrap(), Bytes::from(body))
        };
        let part = query.get("partNumber").map(|n| n.parse().unwrap());
        match (&head.method, query.get("uploadId"), part) {
            (&Method::PUT, Some(id), Some(number)) => {
                let Some(upload) = self.uploads.get_mut(id) else { return refuse(404, "NoSuchUpload") };
                upload.insert(number, body);
                plain(ok().header("etag", format!("\"part-{number}\"")))
            }
            (&Method::POST, Some(id), _) => {
                let Some(upload) = self.uploads.remove(id) else { return refuse(404, "NoSuchUpload") };
                let content = upload.into_values().collect::<Vec<_>>().concat();
                let etag = self.put(key, content.into());
                let xml = format!(
                    "<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
                );
                (ok().body(()).unwrap(), xml.into())
            }
            (&Method::POST, None, _) => {
                let id = format!("upload-{}", self.log.len());
                self.uploads.insert(id.clone(), BTreeMap::new());
                let xml = format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                );
                (ok().body(()).unwrap(), xml.into())
            }
            (&Method::DELETE, Some(id), _) => {
                self.uploads.remove(id);
                plain(ok().status(204))
            }
            (&Method::DELETE, None, _) => {
                self.objects.remove(key);
                plain(ok().status(204))
            }
            (&Method::PUT, None, _) => {
                let content = match head.headers.get("x-amz-copy-source") {
                    None => body,
                    Some(source) => {
                        let source = decode(source.to_str().unwrap());
                        let source = source.trim_start_matches('/').strip_prefix("bucket/").unwrap();
                        match self.objects.get(source) {
                            Some((content, _)) => content.clone(),
                            None => return refuse(404, "NoSuchKey"),
                        }
                    }
                };
                let etag = self.put(key, content);
                let xml = format!("<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>");
                (ok().header("etag", etag).body(()).unwrap(), xml.into())
            }
            _ if key.is_empty() => (ok().body(()).unwrap(), self.list(&query).into()),
            _ => match self.objects.get(key) {
                None => refuse(404, "NoSuchKey"),
                Some((content, write)) => read(&head.method, &head.headers, content, *write),
            },
        }
    }

    fn list(&self, query: &BTreeMap<String, String>) -> String {
        let prefix = query.get("prefix").cloned().unwrap_or_default();
        let after = query.get("continuation-token").cloned().unwrap_or_default();
        let found = self.objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after);
        // Pages of three, so that every list has several.
        let page: Vec<_> = found.take(4).collect();
        let mut xml = "<ListBucketResult>".to_owned();
        for (key, (content, write)) in page.iter().take(3) {
            let key = key.replace('&', "&amp;").replace('<', "&lt;");
            xml += &format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>\"{write:x}\"</ETag><Size>{}</Size></Contents>",
                content.len()
            );
        }
        if page.len() == 4 {
            let token = page[2].0.replace('&', "&amp;").replace('<', "&lt;");
            xml += &format!("<NextContinuationToken>{token}</NextContinuationToken>");
        }
        xml + "</ListBucketResult>"
    }
}

fn read(method: &Method, headers: &HeaderMap, content: &Bytes, write: u64) -> (Response<()>, Bytes) {
    let text = |name: &str| headers.get(name).map(|v| v.to_str().unwrap().to_owned());
    let etag = format!("\"{write:x}\"");
    let mut answer =
        Response::builder().header("etag", &etag).header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
    if text("if-match").is_some_and(|wanted| wanted != etag) {
        return (answer.status(StatusCode::PRECONDITION_FAILED).body(()).unwrap(), Bytes::new());
    }
    let length = content.len();
    let mut body = content.clone();
    if let Some(range) = text("range") {
        let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (from, to) = match (from.parse::<usize>(), to.parse::<usize>()) {
            (Ok(from), Ok(to)) => (from, (to + 1).min(length)),
            (Ok(from), Err(_)) => (from, length),
            (Err(_), Ok(last)) => (length.saturating_sub(last), length),
            _ => panic!("{range}"),
        };
        if from >= length {
            return (answer.status(416).body(()).unwrap(), Bytes::new());
        }
        body = content.slice(from..to);
        answer = answer.status(206).header("content-range", format!("bytes {from}-{}/{length}", to - 1));
    }
    if method == Method::HEAD {
        answer = answer.header("content-length", length);
        body = Bytes::new();
    }
    (answer.body(()).unwrap(), body)
}

fn decode(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
            out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).unwrap()
}
