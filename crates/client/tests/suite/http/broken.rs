//! Answers that break on the way.

use crate::http::server::{Act, Server, answer, ask, body, exchange, get, private};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tidegate_client::http::{HttpFailure, Request};
use tidegate_core::call::{CallPolicy, GiveUpReason, Next};
use tidegate_core::{Chance, Code, Rng};
use tokio::io::AsyncWriteExt;

async fn code_of(act: impl Fn() -> Act + Send + Sync + 'static) -> (Code, u32, usize) {
    let server = Server::start(move |_, _| act()).await;
    let outcome = get(&server).await;
    assert!(!outcome.is_accepted());
    (outcome.verdict.code, outcome.attempts(), server.heads().len())
}

#[tokio::test]
async fn a_cut_body_is_truncated_and_never_data() {
    let short = || Act::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345".to_vec());
    assert_eq!(code_of(short).await, (Code::TRUNCATED_BODY, 3, 3));
    let chunked =
        || Act::Close(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n".to_vec());
    assert_eq!(code_of(chunked).await, (Code::TRUNCATED_BODY, 3, 3));
    let reset = || Act::Reset(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345".to_vec());
    assert_eq!(code_of(reset).await, (Code::TRUNCATED_BODY, 3, 3));
}

#[tokio::test]
async fn a_broken_connection_is_reset() {
    assert_eq!(code_of(|| Act::Reset(vec![])).await, (Code::CONNECTION_RESET, 3, 3));
    assert_eq!(code_of(|| Act::Close(vec![])).await, (Code::CONNECTION_RESET, 3, 3));
    assert_eq!(
        code_of(|| Act::Close(b"HTTP/1.1 200 OK\r\ncont".to_vec())).await,
        (Code::CONNECTION_RESET, 3, 3)
    );
    assert_eq!(code_of(|| Act::Close(b"SSH-2.0-x\r\n\r\n".to_vec())).await, (Code::UNEXPECTED_BODY, 3, 3));
}

#[tokio::test]
async fn a_failure_heals_when_the_next_answer_is_whole() {
    let server = Server::start(|n, _| match n {
        0 => Act::Reset(vec![]),
        1 => Act::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345".to_vec()),
        _ => answer("200 OK", "", "whole"),
    })
    .await;
    let outcome = get(&server).await;
    assert_eq!((outcome.attempts(), body(&outcome).as_str()), (3, "whole"));
    let codes: Vec<Code> = outcome.history().iter().map(|a| a.verdict.code).collect();
    assert_eq!(codes, [Code::CONNECTION_RESET, Code::TRUNCATED_BODY, Code::OK]);
}

/// The server closes without a word, so the connection looks free when the next request takes it.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_answer() {
    let server = Server::start(|n, _| match n {
        0 | 1 => Act::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec()),
        _ => answer("200 OK", "", "ok"),
    })
    .await;
    let exchange = exchange(private(), Arc::default());
    for n in 1..=4 {
        assert_eq!(body(&ask(&exchange, &Request::get(server.url("/"))).await), "ok");
        assert_eq!(server.heads().len(), n, "each request was seen once");
    }
}

#[tokio::test]
async fn a_post_without_a_key_is_not_sent_twice() {
    let server = Server::start(|_, _| Act::Reset(vec![])).await;
    let mut request = Request::new(http::Method::POST, server.url("/"), "x".into());
    let exchange = exchange(private(), Arc::default());
    let outcome = ask(&exchange, &request).await;
    assert_eq!((outcome.next, server.heads().len()), (Next::GiveUp(GiveUpReason::NotRepeatable), 1));
    request.idempotency_key = Some(request.key_bytes());
    assert_eq!(ask(&exchange, &request).await.next, Next::GiveUp(GiveUpReason::Exhausted));
    let heads = server.heads();
    assert_eq!(heads.len(), 4);
    let key: String = request.key_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let sent = format!("idempotency-key: {key}\r\n");
    assert!(heads[1..].iter().all(|head| head.contains(&sent)), "{heads:?}");
}

#[tokio::test]
async fn a_hang_is_a_timeout_of_the_attempt() {
    for bytes in ["", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n123"] {
        let server = Server::start(move |_, _| Act::Hang(bytes.into())).await;
        let mut exchange = exchange(private(), Arc::default());
        exchange.policy = CallPolicy { attempt_timeout: Duration::from_millis(30), ..exchange.policy };
        let outcome = ask(&exchange, &Request::get(server.url("/"))).await;
        assert_eq!((outcome.verdict.code, outcome.attempts()), (Code::TIMEOUT, 3));
        assert!(outcome.value.is_none());
    }
}

#[tokio::test]
async fn nobody_listening_and_no_such_name() {
    let free = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let exchange = exchange(private(), Arc::default());
    let refused = ask(&exchange, &Request::get(format!("http://{free}/").parse().unwrap())).await;
    assert_eq!(refused.verdict.code, Code::CONNECTION_REFUSED);
    let mut exchange = exchange;
    exchange.policy.attempts_max = 1;
    let unknown = ask(&exchange, &Request::get("http://nowhere.test/".parse().unwrap())).await;
    assert_eq!(unknown.verdict.code, Code::DNS_FAILURE);
    // A server that speaks no TLS.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = format!("https://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    });
    let tls = ask(&exchange, &Request::get(plain.parse().unwrap())).await;
    assert_eq!((tls.verdict.code, tls.attempts()), (Code::TLS_FAILURE, 1));
    drop(server.await.unwrap());
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(data).unwrap();
    packer.finish().unwrap()
}

fn packed(body: Vec<u8>) -> Act {
    let mut bytes =
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len())
            .into_bytes();
    bytes.extend(body);
    Act::Send(bytes)
}

#[tokio::test]
async fn gzip_is_unpacked_and_a_bomb_is_not() {
    let mut rng = Rng::new(1);
    let noise: Vec<u8> = (0..2_000_000).map(|_| rng.below(16) as u8).collect();
    let mut cut = gzip(b"a text that is cut in its middle");
    cut.truncate(20);
    let bodies = [gzip(b"small"), gzip(&[b'x'; 60_000]), gzip(&vec![0; 900_000]), gzip(&noise), cut];
    let server = Server::start(move |n, _| packed(bodies[n.min(4)].clone())).await;
    assert_eq!(body(&get(&server).await), "small");
    assert_eq!(body(&get(&server).await).len(), 60_000, "small bodies are not judged by their ratio");
    for what in ["ratio", "bytes"] {
        let outcome = get(&server).await;
        assert_eq!(
            (outcome.verdict.code, outcome.attempts()),
            (Code::PAYLOAD_TOO_LARGE, 1),
            "{what}: {:?}",
            outcome.history()
        );
    }
    assert_eq!(get(&server).await.verdict.code, Code::TRUNCATED_BODY);
    assert!(server.heads()[0].contains("accept-encoding: gzip\r\n"));
}

#[tokio::test]
async fn too_many_bytes_are_not_read() {
    // Declared and undeclared; the server would send for ever.
    for head in ["content-length: 99999999999", "transfer-encoding: chunked"] {
        let server = Server::start(move |_, _| {
            let mut bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").into_bytes();
            for _ in 0..20 {
                bytes.extend(b"10000\r\n");
                bytes.extend([b'x'; 0x10000]);
                bytes.extend(b"\r\n");
            }
            Act::Hang(bytes)
        })
        .await;
        let outcome = get(&server).await;
        assert_eq!(outcome.verdict.code, Code::PAYLOAD_TOO_LARGE);
        assert!(matches!(outcome.value, Some(Err(HttpFailure::TooLarge(_)))));
    }
}

#[tokio::test]
async fn the_hint_of_an_error_outlives_its_cut_body() {
    let server = Server::start(|_, _| {
        Act::Close(b"HTTP/1.1 429 Slow\r\nretry-after: 100\r\ncontent-length: 10\r\n\r\n12345".to_vec())
    })
    .await;
    let outcome = get(&server).await;
    assert_eq!((outcome.verdict.code, outcome.verdict.status), (Code::RATE_LIMITED, Some(429)));
    assert!(matches!(outcome.next, Next::Park(_, GiveUpReason::HintTooFar)), "{:?}", outcome.next);
    assert_eq!(server.heads().len(), 1);
}
