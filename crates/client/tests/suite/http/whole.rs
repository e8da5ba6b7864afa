//! What does not break: connections are kept, rows are answered.

use crate::http::server::{Server, answer, ask, body, exchange, private};
use futures_util::{StreamExt, stream};
use std::sync::Arc;
use tidegate_client::http::Request;
use tidegate_core::Rng;

#[tokio::test]
async fn every_row_gets_its_own_answer() {
    let server = Server::start(|_, head| {
        let path = head.split(' ').nth(1).unwrap();
        answer("200 OK", "", path)
    })
    .await;
    let exchange = exchange(private(), Arc::default());
    let good = stream::iter(0..500u64)
        .map(|n| {
            let (exchange, path) = (&exchange, format!("/{n}"));
            let request = Request::get(server.url(&path));
            async move { body(&exchange.call(&request, Rng::fork(1, n)).await) == path }
        })
        .buffer_unordered(100)
        .filter(|good| std::future::ready(*good))
        .count()
        .await;
    assert_eq!((good, server.heads().len()), (500, 500));
    let counts = exchange.lanes.snapshots().remove(0).counts;
    assert_eq!((counts.started, counts.sent, counts.settled), (500, 500, 500));
    assert_eq!(counts.statuses, [(200, 500)]);
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_no_attempt() {
    let server = Server::start(|_, _| answer("200 OK", "connection: close\r\n", "ok")).await;
    let exchange = exchange(private(), Arc::default());
    for _ in 0..20 {
        let outcome = ask(&exchange, &Request::get(server.url("/"))).await;
        assert_eq!((body(&outcome).as_str(), outcome.attempts()), ("ok", 1));
    }
}

#[tokio::test]
async fn an_exchange_can_be_spawned() {
    let server = Server::start(|_, _| answer("200 OK", "", "ok")).await;
    let exchange = exchange(private(), Arc::default());
    let request = Request::get(server.url("/"));
    let task = tokio::spawn(async move { exchange.call(&request, Rng::new(1)).await.is_accepted() });
    assert!(task.await.unwrap());
}
