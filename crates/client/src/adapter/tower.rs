//! Lanes as a tower layer, around any service from HTTP requests to HTTP responses.
//!
//! Each request goes through the lane of its origin: it waits for a permit, is sent, and is retried
//! if that is safe and useful. Why not `tower::retry` with `tower::limit`: they are independent, so
//! retries are not paced and throttling does not adapt the rate.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use tidegate_core::Rng;
use tidegate_core::call::{Call, CallPolicy};
use tidegate_core::signal::Network;
use tower_layer::Layer;
use tower_service::Service;
use url::Url;

use super::{answered, failed};
use crate::call::{self, CallOutcome};
use crate::lane::{LaneKey, Lanes};

/// A layer that sends requests through lanes.
#[derive(Clone)]
pub struct LaneLayer {
    lanes: Lanes,
    policy: CallPolicy,
    credential: String,
    seed: u64,
    calls: Arc<AtomicU64>,
}

impl LaneLayer {
    /// A layer with these lanes; `seed` determines the jitter.
    #[must_use]
    pub fn new(lanes: Lanes, policy: CallPolicy, seed: u64) -> LaneLayer {
        LaneLayer { lanes, policy, credential: String::new(), seed, calls: Arc::default() }
    }

    /// Sets the name of the credential of its calls. Each credential has its own lanes.
    #[must_use]
    pub fn credential(mut self, name: &str) -> LaneLayer {
        name.clone_into(&mut self.credential);
        self
    }
}

impl<S> Layer<S> for LaneLayer {
    type Service = LaneService<S>;

    fn layer(&self, inner: S) -> LaneService<S> {
        LaneService { layer: self.clone(), inner }
    }
}

/// A service that sends requests through lanes.
#[derive(Clone)]
pub struct LaneService<S> {
    layer: LaneLayer,
    inner: S,
}

/// Why there is no response.
#[derive(Debug)]
pub enum LaneError<E> {
    /// The request has no host, so it has no lane.
    NoHost,
    /// The service failed with an error that is not retried.
    Service(E),
    /// No response in time: the lane is shut, or the service did not answer.
    NoAnswer(Box<CallOutcome<()>>),
}

impl<E: fmt::Display> fmt::Display for LaneError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaneError::NoHost => f.write_str("the request has no host"),
            LaneError::Service(error) => error.fmt(f),
            LaneError::NoAnswer(outcome) => write!(f, "no response: {}", outcome.word()),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for LaneError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LaneError::Service(error) => Some(error),
            LaneError::NoHost | LaneError::NoAnswer(_) => None,
        }
    }
}

impl<S, B, R> Service<Request<B>> for LaneService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Clone + Send + 'static,
    R: Send,
{
    /// The last response, whatever its status.
    type Response = Response<R>;
    type Error = LaneError<S::Error>;
    type Future = BoxFuture<'static, Result<Response<R>, LaneError<S::Error>>>;

    /// Always ready, because requests wait in their lanes.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let LaneService { layer, inner } = self.clone();
        Box::pin(async move {
            let key = key(request.uri(), &layer.credential).ok_or(LaneError::NoHost)?;
            let lane = layer.lanes.get(&key);
            let chance = Rng::fork(layer.seed, layer.calls.fetch_add(1, Ordering::Relaxed));
            let call = if is_repeatable(&request) { Call::new() } else { Call::once() };
            let own = lane.clone();
            let outcome = call::run(&lane, &layer.policy, call, chance, move |_| {
                let (lane, mut inner, request) = (own.clone(), inner.clone(), request.clone());
                async move {
                    let response = match poll_fn(|cx| inner.poll_ready(cx)).await {
                        Ok(()) => inner.call(request).await,
                        Err(error) => Err(error),
                    };
                    match response {
                        Ok(response) => {
                            let (status, headers) = (response.status(), response.headers().clone());
                            answered(&lane, status, &headers, Ok(response))
                        }
                        Err(error) => failed(&lane, Network::Reset, Err(error)),
                    }
                }
            });
            match outcome.await.split() {
                (_, Some(Ok(response))) => Ok(response),
                (_, Some(Err(error))) => Err(LaneError::Service(error)),
                (outcome, None) => Err(LaneError::NoAnswer(Box::new(outcome))),
            }
        })
    }
}

/// The lane of a request.
fn key(uri: &Uri, credential: &str) -> Option<LaneKey> {
    let url = Url::parse(&format!("{}://{}", uri.scheme_str()?, uri.authority()?)).ok()?;
    Some(LaneKey::of_url(&url, credential))
}

/// Whether the request may be retried: its method is idempotent, or it has an idempotency key.
fn is_repeatable<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
        || request.headers().contains_key("idempotency-key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::Clock;
    use http::StatusCode;
    use std::io;
    use std::sync::Mutex;
    use std::time::Duration;
    use tidegate_core::lane::LaneConfig;

    type Script = Arc<Mutex<Vec<Result<(u16, &'static str), ()>>>>;

    /// A service that answers from a script of statuses and `Retry-After` values, last entry first.
    #[derive(Clone)]
    struct Scripted(Script);

    impl Service<Request<()>> for Scripted {
        type Response = Response<()>;
        type Error = io::Error;
        type Future = std::future::Ready<io::Result<Response<()>>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::ready(match self.0.lock().unwrap().pop().expect("one more call than was scripted") {
                Ok((status, wait)) => {
                    Ok(Response::builder().status(status).header("retry-after", wait).body(()).unwrap())
                }
                Err(()) => Err(io::ErrorKind::ConnectionReset.into()),
            })
        }
    }

    async fn send(
        method: Method,
        script: &[Result<(u16, &'static str), ()>],
    ) -> (Result<StatusCode, LaneError<io::Error>>, usize, Duration) {
        let script: Script = Arc::new(Mutex::new(script.iter().rev().copied().collect()));
        let lanes = Lanes::new(&LaneConfig::default(), Clock::system());
        let mut service =
            LaneLayer::new(lanes, CallPolicy::default(), 7).layer(Scripted(Arc::clone(&script)));
        let request = Request::builder().method(method).uri("http://geo.example/search").body(()).unwrap();
        let began = tokio::time::Instant::now();
        let got = service.call(request).await.map(|response| response.status());
        let left = script.lock().unwrap().len();
        (got, left, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_help_is_sent_again_and_not_before_the_server_asked() {
        let (got, left, took) = send(Method::GET, &[Ok((429, "7")), Err(()), Ok((200, "0"))]).await;
        assert_eq!((got.unwrap(), left), (StatusCode::OK, 0));
        assert!(took >= Duration::from_secs(7), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_help_is_sent_once() {
        let (got, left, _) = send(Method::GET, &[Ok((404, "0")), Ok((200, "0"))]).await;
        assert_eq!((got.unwrap(), left), (StatusCode::NOT_FOUND, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_post_whose_fate_is_unknown_is_not_repeated() {
        let (got, left, _) = send(Method::POST, &[Err(()), Ok((200, "0"))]).await;
        assert!(matches!(got, Err(LaneError::Service(_))));
        assert_eq!(left, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_host_has_no_lane() {
        let lanes = Lanes::new(&LaneConfig::default(), Clock::system());
        let mut service = LaneLayer::new(lanes, CallPolicy::default(), 7).layer(Scripted(Arc::default()));
        let got = service.call(Request::builder().uri("/search").body(()).unwrap()).await;
        assert!(matches!(got, Err(LaneError::NoHost)));
    }
}
