//! A server of a few lines: it reads one request head at a time and answers with given bytes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tidegate_client::call::CallOutcome;
use tidegate_client::http::address::Addresses;
use tidegate_client::http::{
    Allow, Answered, BodyLimits, Client, ClientConfig, Exchange, Request, Resolve, ServiceDialect, Trace,
    platform_tls,
};
use tidegate_client::lane::{Clock, Lanes};
use tidegate_client::secret::Redactor;
use tidegate_core::Rng;
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use tidegate_core::retry::backoff::{Backoff, Jitter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// What the server does with a request.
pub(crate) enum Act {
    /// Sends these bytes and keeps the connection.
    Send(Vec<u8>),
    /// Sends these bytes and closes.
    Close(Vec<u8>),
    /// Sends these bytes and resets.
    Reset(Vec<u8>),
    /// Sends these bytes and then nothing for ever.
    Hang(Vec<u8>),
}

pub(crate) struct Server {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// `answer` gets the number of the request, from 0, and its head.
    pub(crate) async fn start(answer: impl Fn(usize, &str) -> Act + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, answer) = (heads.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(stream, seen.clone(), answer.clone()));
            }
        });
        Server { address, heads }
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    /// The request heads that arrived, in order.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn talk(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<String>>>,
    answer: Arc<impl Fn(usize, &str) -> Act + Send + Sync + 'static>,
) {
    let mut buffer = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            let mut chunk = [0; 4096];
            match stream.read(&mut chunk).await {
                Ok(n) if n > 0 => buffer.extend_from_slice(&chunk[..n]),
                _ => return,
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(head.clone());
            seen.len() - 1
        };
        match answer(number, &head) {
            Act::Send(bytes) => stream.write_all(&bytes).await.unwrap(),
            Act::Close(bytes) => {
                stream.write_all(&bytes).await.unwrap();
                return;
            }
            Act::Reset(bytes) => {
                stream.write_all(&bytes).await.unwrap();
                stream.flush().await.unwrap();
                stream.set_zero_linger().unwrap();
                return;
            }
            Act::Hang(bytes) => {
                stream.write_all(&bytes).await.unwrap();
                std::future::pending::<()>().await;
            }
        }
    }
}

/// A whole answer.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Act {
    Act::Send(
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes(),
    )
}

pub(crate) fn redirect(status: &str, to: &str) -> Act {
    answer(status, &format!("location: {to}\r\n"), "")
}

/// Names that resolve as the test says, in turn when there are several answers, the last one staying.
#[derive(Default)]
pub(crate) struct Names(Mutex<HashMap<String, Vec<Vec<IpAddr>>>>);

impl Names {
    pub(crate) fn of(names: &[(&str, &[&str])]) -> Arc<Names> {
        let names = names.iter().map(|(name, answers)| {
            let answers = answers.iter().rev().map(|ip| vec![ip.parse().unwrap()]).collect();
            ((*name).to_owned(), answers)
        });
        Arc::new(Names(Mutex::new(names.collect())))
    }
}

impl Resolve for Names {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
    ) -> futures_util::future::BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let mut names = self.0.lock().unwrap();
            match names.get_mut(host) {
                Some(answers) if answers.len() > 1 => Ok(answers.pop().unwrap()),
                Some(answers) => Ok(answers.last().cloned().unwrap_or_default()),
                None => Err(std::io::Error::other("no such name")),
            }
        })
    }
}

pub(crate) static TLS: OnceLock<rustls::ClientConfig> = OnceLock::new();

/// Tiny waits, three attempts, and timeouts that no slow machine meets.
pub(crate) fn exchange(config: ClientConfig, names: Arc<Names>) -> Exchange {
    let backoff = Backoff::new(Duration::from_millis(1), 1.0, Duration::from_millis(1), Jitter::None);
    let policy = CallPolicy {
        attempts_max: 3,
        backoff,
        attempt_timeout: Duration::from_secs(300),
        deadline: Duration::from_secs(900),
        ..CallPolicy::default()
    };
    Exchange {
        client: Client::with(config, names, TLS.get_or_init(|| platform_tls().unwrap()).clone()),
        lanes: Lanes::new(&LaneConfig::default(), Clock::system()),
        dialect: ServiceDialect::default(),
        policy,
        redactor: Arc::new(Redactor::new()),
        trace: Trace::Spans,
    }
}

pub(crate) fn private() -> ClientConfig {
    let allow = Allow { addresses: Addresses { private: true, exact: vec![] }, ..Allow::default() };
    let body = BodyLimits { bytes_max: 1024 * 1024, ratio_max: 100 };
    ClientConfig { allow, body, connect_timeout: Duration::from_secs(300), ..ClientConfig::default() }
}

pub(crate) async fn ask(exchange: &Exchange, request: &Request) -> CallOutcome<Answered> {
    exchange.call(request, Rng::new(1)).await
}

pub(crate) async fn get(server: &Server) -> CallOutcome<Answered> {
    ask(&exchange(private(), Arc::default()), &Request::get(server.url("/"))).await
}

pub(crate) fn body(outcome: &CallOutcome<Answered>) -> String {
    match &outcome.value {
        Some(Ok(answer)) => String::from_utf8_lossy(&answer.response.body).into_owned(),
        other => panic!("{other:?}"),
    }
}
